"""Groups of the work that the speed table measures, and how arraystore compares in each."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.results import CaseResult
from benchmarks.speed.contenders import ICECHUNK, OURS_REGIONS, OURS_ZARR, PEERS
from benchmarks.speed.rows import Line

__all__ = ["Comparison", "Saving", "compare", "savings"]

_GROUPS = {
    "whole arrays, chunks of 4 and 16 KiB": r"(4|16)k-",
    "whole arrays, chunks of 64 KiB": r"64k-",
    "whole arrays, chunks of 1 MiB": r"1024k-",
    "whole arrays, chunks of 16 MiB": r"16384k-",
    "a point through 10,000 chunks": r"series",
    "random crops": r"crops",
    "maps rechunked to series": r"rechunk",
    "single values overwritten": r"overwrites",
    "a time step to 50 variables": r"append",
    "200 variables: open, list, backfill": r"variables",
    "S3 at 25 ms a request": r"s3-",
}

_SAVINGS = {
    "requests of a small commit": "commit of one tiny chunk: requests in all",
    "objects for 50,000 chunks of 4 KiB": "objects for 50,000 chunks of 4 KiB",
    "bytes of a commit, after 10,000": "bytes a commit after 10,000 one-chunk commits, everything included",
    "a commit among 1,000,000 chunks": "commit of 1 MiB into 1,000,000 references, against icechunk",
    "time to write 1,000,000 references": "write 1,000,000 references and commit, 1,000 references a file",
    "memory to write them": (
        "write 1,000,000 references and commit, 1,000 references a file: peak memory above the input's"
    ),
}


@dataclass(frozen=True)
class Comparison:
    """Times of peers over ours in a group of work, geometric means; more than 1 is ahead."""

    title: str
    icechunk: float
    fastest: float
    """Against whichever peer was the fastest at each line."""


@dataclass(frozen=True)
class Saving:
    """What the peer needs over what we need."""

    title: str
    ours: str
    peer: str
    ratio: float


def compare(lines: Sequence[Line]) -> list[Comparison]:
    """Compare the faster of our two ways with the peers, group by group."""
    found = []
    for title, pattern in _GROUPS.items():
        chosen = [line for line in lines if re.match(pattern, line.workload)]
        if chosen:
            fastest = statistics.geometric_mean(_over_ours(line, PEERS) for line in chosen)
            found.append(
                Comparison(title, statistics.geometric_mean(_over_ours(line, {ICECHUNK}) for line in chosen), fastest)
            )
    return found


def _over_ours(line: Line, peers: Iterable[str]) -> float:
    ours = min(line.ratios[name] for name in (OURS_ZARR, OURS_REGIONS) if name in line.ratios)
    return min(line.ratios[name] for name in peers if name in line.ratios) / ours


def savings(results: Iterable[CaseResult]) -> list[Saving]:
    """Return what the other benchmarks say about requests, objects, bytes and memory."""
    bars = {bar.what: bar for result in results for bar in result.bars}
    chosen = [(title, bars[what]) for title, what in _SAVINGS.items()]
    return [
        Saving(title, bar.ours, bar.peer.split(" (")[0], _number(bar.peer) / _number(bar.ours)) for title, bar in chosen
    ]


def _number(text: str) -> float:
    match = re.match(r"[\d.,]+", text)
    assert match is not None, text
    return float(match[0].replace(",", ""))
