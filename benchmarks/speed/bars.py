"""The bars of the speed table, each with what it asks for and how it came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.speed.contenders import ICECHUNK, OCDBT, OURS_REGIONS, OURS_ZARR, PEERS, ZARRS
from benchmarks.speed.rows import Line

__all__ = ["Verdict", "verdicts"]


@dataclass(frozen=True)
class Verdict:
    """How one bar came out."""

    what: str
    ours: str
    peer: str
    ratio: float
    limit: float

    @property
    def met(self) -> bool:
        """Whether the bar was met."""
        return self.ratio <= self.limit


_Picks = Callable[[Line], bool]


def _whole(line: Line) -> bool:
    return line.part in ("write", "read") and not line.workload.startswith("s3-")


def _up_to_one_mib(line: Line) -> bool:
    return _whole(line) and not line.workload.startswith("16384k")


def _looks(line: Line) -> bool:
    return line.workload in ("series", "crops", "map")


def _distant(line: Line) -> bool:
    return line.workload.startswith("s3-")


def _any(line: Line) -> bool:
    return True


_RULES: Sequence[tuple[_Picks, str, str | None, float]] = (
    (_up_to_one_mib, OURS_ZARR, ZARRS, 1.0),
    (_up_to_one_mib, OURS_REGIONS, OCDBT, 1.0),
    (_looks, OURS_REGIONS, None, 1.0),
    (_looks, OURS_ZARR, None, 1.2),
    (_distant, OURS_ZARR, None, 1.0),
    (_any, OURS_ZARR, ICECHUNK, 1.0),
)
"""Which lines, who of ours, against whom (None: the best of all others), and at most how many times as long."""

_PARTS = {
    ("append", "steps"): ((OURS_REGIONS, ICECHUNK, 0.25), (OURS_ZARR, ICECHUNK, 0.9)),
    ("variables", "xr.open_zarr"): ((OURS_ZARR, "zarr directory", 1.0),),
    ("variables", "list(arrays)"): ((OURS_ZARR, "zarr directory", 1.1),),
}


def verdicts(lines: Iterable[Line]) -> list[Verdict]:
    """Return how all bars came out for which there are figures."""
    found = []
    for line in lines:
        rules = [(ours, peer, limit) for picks, ours, peer, limit in _RULES if picks(line)]
        rules += _PARTS.get((line.workload, line.part), ())
        for ours, peer, limit in rules:
            other = peer or _best(line)
            ratio = None if other is None else line.ratio(ours, other)
            if ratio is not None and other is not None:
                found.append(Verdict(f"{line.title}: {line.part}", ours, other, ratio, limit))
    return found


def _best(line: Line) -> str | None:
    names = [name for name in line.seconds if name in PEERS]
    return min(names, key=lambda name: line.ratios[name], default=None)
