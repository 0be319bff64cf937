"""What every case is given: contenders, places and how thoroughly to measure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.places import PlaceMaker, S3Server
from benchmarks.systems import System

__all__ = ["Setup"]


@dataclass(frozen=True, slots=True)
class Setup:
    """How to measure.

    Parameters
    ----------
    rounds
        Measured rounds of the cases that take time.
    quick
        Small loads, to see that all works; the figures mean little.
    ours
        arraystore without fsync, as the peers do it.
    ours_durable
        arraystore as it is used.
    scratch
        An empty directory, on the disk.
    places
        Name of a file system or server -> where to write; the first is the main one.
    server
        The S3 server, None where the run does without.
    """

    rounds: int
    quick: bool
    ours: System
    ours_durable: System
    scratch: Path
    places: dict[str, PlaceMaker]
    server: S3Server | None = None

    def scaled(self, full: int, quick: int) -> int:
        """A load: `full`, or `quick` for a quick run."""
        return quick if self.quick else full

    @property
    def main_place(self) -> PlaceMaker:
        """The first of the places."""
        return next(iter(self.places.values()))

    @property
    def quickest_place(self) -> PlaceMaker:
        """Where to count objects and bytes, which are the same everywhere: in memory, where there is such a place."""
        return list(self.places.values())[-1]
