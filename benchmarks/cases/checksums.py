"""What checking chunks against their checksums costs: the same reads with and without it, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import zarr

from arraystore import Repository
from benchmarks.cases.chunks import ChunkLoad, make_data
from benchmarks.pipelines import DEFAULT, FUSED_ONE, Pipeline, configured
from benchmarks.places import Place
from benchmarks.results import Bar, CaseResult, Table, human
from benchmarks.setup import Setup
from benchmarks.timing import note

__all__ = ["run"]

_MOST = 1.10
"""What a read may cost at most with checks, where it costs 1 without."""

_TURNS = 7
"""Pairs in a round."""

_CROPS = 64
_CROPPED_CHUNKS = 2.5

Read = Callable[[zarr.Array], object]


@dataclass(frozen=True, slots=True)
class _Work:
    """A way to read an array."""

    label: str
    load: ChunkLoad
    read: Read


def _whole(array: zarr.Array) -> object:
    return array[:]


def _crops(load: ChunkLoad) -> Read:
    """Return what reads stretches at random places, each of parts of some chunks."""
    size = int(load.elements * _CROPPED_CHUNKS)
    starts = np.random.default_rng(11).integers(0, load.elements * load.count - size, _CROPS).tolist()

    def read(array: zarr.Array) -> object:
        return [array[start : start + size] for start in starts]

    return read


def _work(setup: Setup) -> list[_Work]:
    large, small = ChunkLoad(1 << 20, setup.scaled(96, 4)), ChunkLoad(1 << 14, setup.scaled(8192, 64))
    return [
        _Work(f"{large.count} chunks of 1 MiB", large, _whole),
        _Work(f"{small.count:,} chunks of 16 KiB", small, _whole),
        _Work(f"{_CROPS} random crops, chunks of 1 MiB", large, _crops(large)),
        _Work(f"{_CROPS} random crops, chunks of 16 KiB", small, _crops(small)),
    ]


def _filled(repository: Repository, name: str, load: ChunkLoad) -> None:
    with repository.transaction("main", message=name) as store:
        data = make_data(load)
        chunks = (load.elements,)
        array = zarr.create_array(
            store, name=name, shape=data.shape, chunks=chunks, dtype=data.dtype, compressors=None, filters=None
        )
        array[:] = data


def _seconds(array: zarr.Array, read: Read) -> float:
    started = time.perf_counter()
    read(array)
    return time.perf_counter() - started


def _measured(repository: Repository, work: _Work, pipeline: Pipeline, pairs: int) -> tuple[float, float, float]:
    """Return median seconds with and without checks, and the median of their ratio, pair by pair."""
    with configured(pipeline):
        checked, unchecked = [
            zarr.open_array(
                repository.readonly_session("main", verify_chunks=verify).store,
                path=str(work.load.chunk_bytes),
                mode="r",
            )
            for verify in (True, False)
        ]
        found: list[tuple[float, float]] = []
        for turn in range(pairs + 1):
            first, second = (checked, unchecked) if turn % 2 else (unchecked, checked)
            one, other = _seconds(first, work.read), _seconds(second, work.read)
            found.append((one, other) if turn % 2 else (other, one))
    found = found[1:]  # the first pair fills caches
    return median(a for a, _ in found), median(b for _, b in found), median(a / b for a, b in found)


def _bar(what: str, checked: float, unchecked: float, ratio: float) -> Bar:
    return Bar(
        what, f"{human(checked * 1e3)} ms", f"{human(unchecked * 1e3)} ms", f"{ratio:.3f}", f"≤ {_MOST}", ratio <= _MOST
    )


def _measure_place(setup: Setup, where: str, place: Place, result: CaseResult) -> None:
    repository = setup.ours.create(place)
    works = _work(setup)
    for load in {work.load for work in works}:
        _filled(repository, str(load.chunk_bytes), load)
    repository = setup.ours.open(place, repository)
    rows: list[list[str]] = []
    for work in works:
        for pipeline in (FUSED_ONE, DEFAULT):
            note(f"checksums: {work.label}, {pipeline.label}, on {where}")
            checked, unchecked, ratio = _measured(repository, work, pipeline, _TURNS * setup.rounds)
            result.bars.append(_bar(f"{work.label}, {where}, {pipeline.label}", checked, unchecked, ratio))
            rows.append([work.label, pipeline.label, human(checked * 1e3), human(unchecked * 1e3), f"{ratio:.3f}"])
    header = ["read", "pipeline", "checked", "not checked", "ratio, median of pairs"]
    result.tables.append(Table(f"uncompressed chunks on {where}, median ms", header, rows))


def run(setup: Setup) -> CaseResult:
    """Every read on every place."""
    result = CaseResult("checksums", "What checking the checksums of chunks costs a reader")
    for where, places in setup.places.items():
        with places.fresh() as place:
            _measure_place(setup, where, place, result)
    result.notes.append(
        "Both sessions are of one repository object and read the same chunks from the page cache, in turns; the ratio "
        "is the median of that of each pair. In the bars, the column of the peer is the read without checks "
        "(`verify_chunks=False`)."
    )
    return result
