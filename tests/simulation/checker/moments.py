"""When things came about: from the trace of effects, or, where there is none, from the notes of those who did them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.simulation.checker.written import Happening

__all__ = ["Moments"]


@dataclass(frozen=True)
class Moments:
    """When objects were written and deleted.

    Parameters
    ----------
    written, deleted
        By key, in order; an object may be deleted, and come again from a request that was late.
    """

    written: Mapping[str, list[float]]
    deleted: Mapping[str, list[float]]

    @classmethod
    def of(cls, events: Iterable[Happening]) -> Moments:
        """Read a trace."""
        written: dict[str, list[float]] = {}
        deleted: dict[str, list[float]] = {}
        for event in events:
            effect = event.effect.partition(",")[0]
            if effect == "written":
                written.setdefault(event.key, []).append(event.time)
            elif event.operation == "delete" and effect == "read":
                for key in event.key.split(" "):
                    deleted.setdefault(key, []).append(event.time)
        return cls(written, deleted)

    def __bool__(self) -> bool:
        return bool(self.written)

    def since(self, key: str) -> float | None:
        """Return when an object was there first; None if no trace tells."""
        times = self.written.get(key)
        return None if not times else times[0]
