"""Why bars were missed: a cause for each of them, and none for a bar that is met."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.results import CaseResult
from benchmarks.speed.bars import Verdict

__all__ = ["CAUSES", "Cause", "Missed", "explained", "missed_bars"]


@dataclass(frozen=True)
class Missed:
    """A bar that was missed."""

    what: str
    """Its work, and whom it is measured against."""
    ratio: str
    bar: str


@dataclass(frozen=True)
class Cause:
    """Why some bars were missed."""

    pattern: str
    """Regular expression of the bars' `Missed.what`."""
    work: str
    why: str


CAUSES = (
    Cause(
        r"(8,192 chunks of 16 KiB|2,048 chunks of 64 KiB), zstd: write",
        "zstd chunks of 16 and 64 KiB, through `zarr.Array`: write",
        "a sample keeps them at level 3, which takes 83 % of the processor time at 16 KiB and 90 % at 64 KiB, with "
        "any build of the library; `session.write` takes 0.78 of the time in the same run",
    ),
    Cause(
        r"(2,048 chunks of 64 KiB|96 maps of 1 MiB), zstd: read|2,048 chunks of 64 KiB, raw: read",
        "chunks of 64 KiB, and zstd chunks of 1 MiB, through `zarr.Array`: read",
        "the way through `zarr.Array`, which zarrs replaces as a whole, and a checksum that zarrs does not have",
    ),
    Cause(
        r"96 maps of 1 MiB, raw|8 maps of 16 MiB, raw|1024 KiB chunks, tmpfs",
        "raw chunks of 1 MiB and more on a file system in memory",
        "a chunk is copied by the kernel at 5 to 16 GB/s and checked at 29, in threads that Zarr's event loop wakes: "
        "zarrs has neither the loop nor the checksum, Icechunk keeps a reference to the caller's array and writes "
        "later; `session.write` and `session.read` take 0.6 to 0.8 of the time",
    ),
    Cause(
        r"64 KiB chunks, tmpfs",
        "raw chunks of 64 KiB with the commit on a file system in memory",
        "half of the time is Zarr's own; the rest is a copy into the pack, and the write of the pack",
    ),
    Cause(
        r"time steps appended to 50 variables",
        "time steps appended to 50 variables",
        "0.21 to 0.33, from machine to machine; a third is Zstandard, in one thread: of 50 chunks, two threads take "
        "0.97 of the time, of 400 they take 0.6",
    ),
    Cause(
        r"a point through",
        "a point through 10,000 chunks",
        "the way through `zarr.Array`; `session.read` takes 0.7 to 1.03 of TensorStore's time, by the machine",
    ),
    Cause(
        r"random 32³ crops",
        "random crops",
        "seven tenths of `session.read` copy whole chunks out of the page cache and a seventh checks them, which "
        "TensorStore does not (0.9 of its time on another machine); of `read_many` a fifth plans the copies in "
        "Python; `zarr.Array` cannot ask for several crops at once",
    ),
    Cause(
        r"S3, 25 ms: 64 maps of 1 MiB, raw: write",
        "chunks of 1 MiB written to S3",
        "as many requests for chunks as plain Zarr sends, most of whose time is the server's on the same two cores, "
        "and then the PUT of the commit, 27 ms, which plain Zarr does not make; Icechunk takes 1.17 of the time",
    ),
    Cause(
        r"one reference a file",
        "a million references, one URL each",
        "half of the time joins, encodes and cuts a million Python strings, the rest compresses the suffixes of URLs",
    ),
    Cause(
        r"bank, 10 processes",
        "money moved between accounts by ten processes",
        "server and processes share two cores; each of ten processes follows each record, and four of ten transfers "
        "are done again because somebody else has moved money of the same account",
    ),
    Cause(
        r"CPU seconds of .* rows in",
        "frames of Spark, in processor time",
        "`df.write` takes 0.9 to 1.7 s longer: 0.5 in the shuffle and for unpacking indices, 0.15 for two more columns "
        "in Arrow, 0.2 in Python, and 0.5 to 0.8 on Spark's way to a data source, which collects metrics every hundred "
        "rows; it takes 0.87 to 1.03 of the processor time of Parquet, `write_dataframe` 0.7 to 0.8",
    ),
    Cause(
        r"rechunk .* of maps to series",
        "maps rechunked to series on Spark",
        "a copy of the series alone takes 1.7 times as long as one of the maps: of these level 1 of Zstandard makes "
        "frames that are as short as those of level 3, of series level 2, which takes 2.4 times as long; rechunking "
        "takes 1.4 times as long as a copy of the series",
    ),
    Cause(
        r"write_dataframe|read_dataframe",
        "DataFrames of Spark",
        "both take the same route: shuffle, Arrow, a Python process for each task; ours also looks for nulls, "
        "duplicates and rows out of bounds, and bounds memory",
    ),
    Cause(
        r"write_regions",
        "regions written by Spark's tasks",
        "a job whose tasks do nothing takes half of the time already, and is the same for both",
    ),
)
"""What profiles and the other figures of the same run say; where nobody has looked, they say so."""


def missed_bars(results: Iterable[CaseResult], verdicts: Iterable[Verdict]) -> list[Missed]:
    """Return all bars that were missed."""
    found = [
        Missed(f"{each.what} ({each.ours} against {each.peer})", f"{each.ratio:.2f}", f"≤ {each.limit:g}")
        for each in verdicts
        if not each.met
    ]
    for result in results:
        found += [Missed(bar.what, bar.ratio, bar.bar) for bar in result.bars if not bar.met]
    return found


def explained(missed: Sequence[Missed]) -> list[tuple[Cause, list[Missed]]]:
    """Return each cause with its bars: the first cause that fits a bar counts.

    Raises
    ------
    SystemExit
        If a bar has no cause, or a cause no bar.
    """
    found: dict[Cause, list[Missed]] = {cause: [] for cause in CAUSES}
    for each in missed:
        cause = next((cause for cause in CAUSES if re.search(cause.pattern, each.what)), None)
        if cause is None:
            raise SystemExit(f"benchmarks/summary/missed.py does not say why this bar was missed: {each.what}")
        found[cause].append(each)
    if idle := [cause.work for cause, bars in found.items() if not bars]:
        raise SystemExit(f"benchmarks/summary/missed.py explains what is not missed any more: {', '.join(idle)}")
    return list(found.items())
