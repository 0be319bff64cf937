"""Pauses after a lost race, so that writers in several processes do not all try again at once.

A *window*, in units of the time that a PUT takes, grows by one with every lost attempt and shrinks with every one that
succeeds; it outlives the commit, so that the next one starts with it. A pause is a random part of it, shorter for a
commit that has lost often, so that none starves.

Of two records one is always written, whichever loses. Where PUTs run in parallel, waiting saves requests and costs some
throughput. Where they queue, as in a server that takes one PUT of a key at a time, or on too few processors, lost
attempts delay those that would succeed. Durations of PUTs relative to the shortest one tell these apart; where they
queue, a writer also pauses before the first attempt of its next commit, and lets those go first that have lost.

The constants were chosen by simulating ten writers in closed loops, on storages whose PUTs queue (4.5 ms each) and on
storages whose PUTs do not (60 ms): compared with no pauses they give 2.4 times the commits with two fifths of the PUTs
on the former, and nine tenths of the commits with three quarters of the PUTs on the latter.
"""

from __future__ import annotations

import math

from arraystore._environment import Environment

_WIDEST = 6.0
_LONGEST = 0.5
"""Most seconds between two attempts."""

_AFTER_FIRST_TRY, _AFTER_LOSSES = 0.7, 0.85
"""Factors by which the window shrinks with a success."""

_SMOOTHING = 0.3
_FORGETTING = 1.01
"""Factor by which the shortest time grows with each PUT, so that a slower storage does not count as queueing."""

_QUEUEING = 2.0
"""Ratio to the shortest PUT from which PUTs count as queueing."""

_CROWDED = 0.5


class Backoff:
    """Pauses of one process on one branch."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._began = 0
        self._window = 0.0
        self._losses = 0
        self._usual = 0.0
        self._fastest = math.inf

    @property
    def polite(self) -> bool:
        """Tell whether a first attempt should let others go first."""
        return self._window > _CROWDED and self._usual > _QUEUEING * self._fastest

    def begin(self) -> None:
        """Note that an attempt starts now."""
        self._began = self._environment.now_us()

    def _note(self) -> None:
        took = max(1e-6, (self._environment.now_us() - self._began) / 1e6)
        self._fastest = min(self._fastest * _FORGETTING, took)
        self._usual += (took - self._usual) * (_SMOOTHING if self._usual else 1.0)

    def won(self) -> None:
        """Note that the attempt succeeded."""
        self._note()
        self._window *= _AFTER_LOSSES if self._losses else _AFTER_FIRST_TRY
        self._losses = 0

    def lost(self) -> None:
        """Note that another record took the place of the attempt."""
        self._note()
        self._losses += 1
        self._window = min(_WIDEST, self._window + 1)

    async def pause(self) -> None:
        """Wait before the next attempt."""
        window = self._window * self._usual / math.sqrt(max(1, self._losses))
        if window > 0:
            await self._environment.sleep(min(window, _LONGEST) * self._environment.random())
