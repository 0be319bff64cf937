"""Writing and reading whole arrays of small, middling and large chunks through zarr."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import icechunk
import numpy as np
import zarr

from benchmarks.pipelines import DEFAULT, FUSED, FUSED_ONE, Pipeline, configured
from benchmarks.places import PlaceMaker
from benchmarks.results import Bar, CaseResult, Table, at_least, human
from benchmarks.setup import Setup
from benchmarks.systems import FloorSystem, IcechunkSystem, System, ZarrSystem
from benchmarks.timing import Samples, Stopwatch, interleaved, note

__all__ = ["ChunkLoad", "make_data", "run", "run_once"]

_LARGEST_INLINE = 65_535  # icechunk's threshold is a 16-bit number
_INLINED = "chunks inlined"
_UNIT = "µs/chunk"


@dataclass(frozen=True, slots=True)
class ChunkLoad:
    """A one-dimensional array of `count` uncompressed chunks of `chunk_bytes` each."""

    chunk_bytes: int
    count: int

    @property
    def elements(self) -> int:
        """Elements of a chunk."""
        return self.chunk_bytes // 4


def make_data(load: ChunkLoad) -> np.ndarray:
    """Values without a pattern, none of them the fill value."""
    random = np.random.default_rng(load.chunk_bytes)
    return random.integers(1, 2**32, size=load.elements * load.count, dtype=np.uint32)


def run_once(system: System, pipeline: Pipeline, load: ChunkLoad, data: np.ndarray, places: PlaceMaker) -> Stopwatch:
    """Write by one assignment, commit, open anew, read by one slice and compare; seconds a chunk."""
    watch = Stopwatch()
    with places.fresh() as place, configured(pipeline):
        handle = system.create(place)
        writer = system.writer(handle)
        array = zarr.create_array(
            writer.store,
            name="data",
            shape=data.shape,
            chunks=(load.elements,),
            dtype=data.dtype,
            compressors=None,
            filters=None,
            fill_value=0,
        )
        given = data.copy()
        watch.start()
        array[:] = given
        watch.stop("write")
        if system.takes_over(place):
            given[:] = 0  # whoever reads this at the commit has not taken the data over
        watch.start()
        writer.commit()
        watch.stop("commit")
        del array, writer
        reader = system.reader(system.open(place, handle))
        source = zarr.open_array(reader, path="data", mode="r")
        watch.start()
        read = source[:]
        watch.stop("read")
        if not np.array_equal(read, data):
            raise AssertionError(f"{system.name} did not give back what was written")
    per_chunk = {part: seconds / load.count for part, seconds in watch.parts.items()}
    per_chunk["write+commit"] = per_chunk["write"] + per_chunk["commit"]
    return Stopwatch(per_chunk)


@dataclass(frozen=True, slots=True)
class _Contender:
    label: str
    system: System
    pipeline: Pipeline


def _peers(chunk_bytes: int) -> list[_Contender]:
    """icechunk as it comes and in every setting that made it faster here."""
    caching = icechunk.CachingConfig(num_bytes_chunks=4 << 30)
    cached = IcechunkSystem(settings={"caching": caching}, keep_open=True)
    inlined = IcechunkSystem(settings={"inline_chunk_threshold_bytes": _LARGEST_INLINE}, keep_open=True)
    many = Pipeline("fused", concurrency=128)
    many_one = Pipeline("fused", workers=1, concurrency=128)
    ways: list[tuple[str, System, tuple[Pipeline, ...]]] = [
        ("icechunk", IcechunkSystem(), (DEFAULT, FUSED, FUSED_ONE, many, many_one)),
        ("icechunk, same repository object", IcechunkSystem(keep_open=True), (many_one,)),
        ("icechunk, chunk cache", cached, (many_one,)),
    ]
    if chunk_bytes <= _LARGEST_INLINE:
        ways.append((f"icechunk, {_INLINED}", inlined, (FUSED, many_one)))
    return [
        _Contender(f"{label} / {pipeline.label}", system, pipeline)
        for label, system, pipelines in ways
        for pipeline in pipelines
    ]


def _contenders(setup: Setup, chunk_bytes: int) -> list[_Contender]:
    plain: list[System] = [setup.ours, setup.ours_durable, ZarrSystem(), FloorSystem()]
    return [
        _Contender(f"{system.name} / {pipeline.label}", system, pipeline)
        for system in plain
        for pipeline in (DEFAULT, FUSED, FUSED_ONE)
    ] + _peers(chunk_bytes)


def _bars(setup: Setup, load: ChunkLoad, where: str, found: dict[str, Samples]) -> list[Bar]:
    """The promises for one size of chunks on one file system."""
    size = f"{load.chunk_bytes // 1024} KiB chunks, {where}"
    bars: list[Bar] = []
    for part in ("write", "write+commit", "read"):
        if load.chunk_bytes < 1 << 20:
            bars += _small_bars(setup.ours.name, part, size, found)
        else:
            bars += _large_bars(setup.ours.name, part, size, found)
    return bars


def _best(found: dict[str, Samples], labels: list[str], part: str) -> tuple[str, float]:
    """The quickest of some contenders and its figure."""
    label = min(labels, key=lambda one: found[one].median(part))
    return label, found[label].median(part) * 1e6


def _fused(name: str, part: str, found: dict[str, Samples]) -> float:
    return _best(found, [f"{name} / {pipeline.label}" for pipeline in (FUSED, FUSED_ONE)], part)[1]


def _small_bars(ours: str, part: str, size: str, found: dict[str, Samples]) -> list[Bar]:
    peers = [label for label in found if label.startswith("icechunk")]
    inlined = [label for label in peers if _INLINED in label]
    objects, best = _best(found, [label for label in peers if label not in inlined], part)
    fused, default = _fused(ours, part, found), found[f"{ours} / default"].median(part) * 1e6
    bars = [at_least(f"{part}, {size}, fused", fused, best, 3.0, _UNIT, peer_label=objects)]
    if inlined:
        label, best = _best(found, inlined, part)
        what = f"{part}, {size}, fused, against inlining"
        bars.append(at_least(what, fused, best, 3.0, _UNIT, peer_label=label))
    peer_default = found["icechunk / default"].median(part) * 1e6
    bars.append(at_least(f"{part}, {size}, default pipeline", default, peer_default, 1.2, _UNIT))
    return bars


def _large_bars(ours: str, part: str, size: str, found: dict[str, Samples]) -> list[Bar]:
    fused = _fused(ours, part, found)
    peer, best = _best(found, [label for label in found if label.startswith("icechunk")], part)
    plain, plain_best = _best(found, [label for label in found if label.startswith("zarr")], part)
    factor = 1.5 if part == "read" else 1.0
    return [
        at_least(f"{part}, {size}", fused, best, factor, _UNIT, peer_label=peer),
        at_least(f"{part}, {size}, against plain zarr", fused, plain_best, 0.9, _UNIT, peer_label=plain),
    ]


def _table(load: ChunkLoad, where: str, found: dict[str, Samples]) -> Table:
    rows = []
    for label, samples in found.items():
        figures = [samples.median(part) * 1e6 for part in ("write", "commit", "write+commit", "read")]
        low, high = samples.spread("read")
        rows.append([label, *(human(figure) for figure in figures), f"{human(low * 1e6)} to {human(high * 1e6)}"])
    header = ["contender / pipeline", "write", "commit", "write+commit", "read", "read, least to greatest"]
    title = f"{load.count:,} chunks of {load.chunk_bytes // 1024} KiB on {where}, median µs per chunk"
    return Table(title, header, rows)


def run(setup: Setup) -> CaseResult:
    """Every size of chunks on every place."""
    result = CaseResult("chunks", "Writing and reading chunks through zarr")
    loads = [ChunkLoad(4096, setup.scaled(2000, 64)), ChunkLoad(65536, setup.scaled(1000, 16))]
    loads.append(ChunkLoad(1 << 20, setup.scaled(64, 4)))
    for where, places in setup.places.items():
        for load in loads:
            note(f"chunks: {load.count} of {load.chunk_bytes} bytes on {where}")
            data = make_data(load)
            contenders = _contenders(setup, load.chunk_bytes)
            runs = {one.label: partial(run_once, one.system, one.pipeline, load, data, places) for one in contenders}
            found = interleaved(runs, setup.rounds)
            result.bars += _bars(setup, load, where, found)
            result.tables.append(_table(load, where, found))
    return result
