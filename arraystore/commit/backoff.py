"""How long to wait after a lost race, so that writers who cannot see each other do not all come back at once.

Each lost attempt tells how many records others have put meanwhile, which estimates how many rivals there are.  The
pause is a random part of a quarter of the time that their PUTs take: of two records one is always written, whoever
loses, so waiting longer costs throughput, and saves nothing but requests.  Who has lost often waits less, so that
nobody starves.
"""

from __future__ import annotations

from arraystore.commit.environment import Environment

__all__ = ["Backoff"]

_LONGEST = 2.0
"""Most seconds between two attempts."""

_SMOOTHING = 0.5
_SHARE = 0.25


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
        self._rivals = 0.0
        self._losses = 0

    def begin(self) -> None:
        """Note that an attempt begins now."""
        self._began = self._environment.now_us()

    def won(self) -> None:
        """Note that the attempt succeeded."""
        self._losses = 0

    async def pause(self) -> None:
        """Wait after an attempt that was lost."""
        self._losses += 1
        took = max(0.0, (self._environment.now_us() - self._began) / 1e6)
        window = _SHARE * took * self._rivals / self._losses
        if window > 0:
            await self._environment.sleep(min(window, _LONGEST) * self._environment.random())

    def lost_to(self, passed: int) -> None:
        """Learn from an attempt that was lost.

        Parameters
        ----------
        passed
            How many records were put since the one that the attempt was to follow.
        """
        self._rivals += _SMOOTHING * (max(0, passed - 1) - self._rivals)
