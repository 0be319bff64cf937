"""How long to wait after a lost race, so that writers who cannot see each other do not all come back at once.

A *window*, in units of the time that a PUT takes, grows by one with every lost attempt and shrinks with every one that
succeeds; it outlives the commit, so what one commit learned of its rivals serves the next.  A pause is a random part of
it, shorter for who has lost often, so that nobody starves.

Of two records one is always written, whoever loses.  Where PUTs run in parallel, waiting saves requests and costs some
throughput.  Where they queue, as they do in a server that takes one PUT of a key at a time, or on too few processors,
lost attempts delay those that would succeed.  PUTs that take longer than the fastest ones tell which it is; there, a
writer also pauses before the first attempt of its next commit, and lets those go ahead that have lost.

The rules were chosen by simulating ten writers in closed loops, on storages whose PUTs queue (4.5 ms each) and on
storages whose PUTs do not (60 ms): against no pauses at all they give 2.4 times the commits with two fifths of the
PUTs on the former, and nine tenths of the commits with three quarters of the PUTs on the latter.
"""

from __future__ import annotations

import math

from arraystore._environment import Environment

__all__ = ["Backoff"]

_WIDEST = 6.0
_LONGEST = 0.5
"""Most seconds between two attempts."""

_AFTER_FIRST_TRY, _AFTER_LOSSES = 0.7, 0.85
"""What the window shrinks by with a success."""

_SMOOTHING = 0.3
_FORGETTING = 1.01
"""What the fastest time grows by with each PUT, so that a storage that has become slower is not held for crowded."""

_QUEUEING = 2.0
"""PUTs that take this many times what the fastest one took wait for others."""

_CROWDED = 0.5


class Backoff:
    """The pauses of one process on one branch.

    Parameters
    ----------
    environment
        Time, sleep and chance.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._began = 0
        self._window = 0.0
        self._losses = 0
        self._usual = 0.0
        self._fastest = math.inf

    @property
    def polite(self) -> bool:
        """Whether a first attempt had better let others go ahead."""
        return self._window > _CROWDED and self._usual > _QUEUEING * self._fastest

    def begin(self) -> None:
        """Note that an attempt begins now."""
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
        """Note that another record took the attempt's place."""
        self._note()
        self._losses += 1
        self._window = min(_WIDEST, self._window + 1)

    async def pause(self) -> None:
        """Wait before the next attempt."""
        window = self._window * self._usual / math.sqrt(max(1, self._losses))
        if window > 0:
            await self._environment.sleep(min(window, _LONGEST) * self._environment.random())
