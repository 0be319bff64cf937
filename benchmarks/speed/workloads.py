"""What is measured: each workload prepares data for a contender once, and runs in rounds."""

from __future__ import annotations

import abc
import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.places import Place, PlaceMaker
from benchmarks.speed.datasets import ArraySpec, Contender, Selection, ZarrContender
from benchmarks.speed.floors import Floor
from benchmarks.timing import Stopwatch

__all__ = ["WORKLOADS", "Workload", "distant_workloads", "field_of", "workloads"]

KIB = 1 << 10


@cache
def field_of(shape: tuple[int, ...]) -> np.ndarray:
    """Return values like those of a measured field: smooth, with digits that are noise; none is 0.

    Zstandard makes some 40 % of them.
    """
    random = np.random.default_rng(len(shape))
    values = random.integers(0, 50, size=shape, dtype=np.int16).astype(np.float32)
    slope = np.arange(shape[-1], dtype=np.float32)
    values += 25_000 + np.round(100 * np.sin(slope / 40))
    values /= 100
    values.setflags(write=False)
    return values


def _whole(spec: ArraySpec) -> Selection:
    return tuple(slice(None) for _ in spec.shape)


def _check(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    if not np.array_equal(found, expected):
        raise AssertionError(f"{what} did not give back what was written")


class Workload(abc.ABC):
    """Work of one kind; `prepare` is not timed and its place is kept for all rounds."""

    title: str
    parts: tuple[str, ...]

    def prepare(self, contender: Contender, place: Place) -> None:  # noqa: B027 - most have nothing to prepare
        """Write what the rounds read."""

    @abc.abstractmethod
    def run(self, contender: Contender, place: Place, fresh: PlaceMaker) -> Stopwatch:
        """Run one round; `place` is what was prepared."""

    def suits(self, contender: Contender) -> bool:
        """Tell whether a contender can do this."""
        return not isinstance(contender, Floor)


@dataclass(frozen=True)
class WholeArray(Workload):
    """Write an array by one assignment and commit; open it anew and read it by one slice."""

    title: str
    spec: ArraySpec
    parts: tuple[str, ...] = ("write", "read")

    def suits(self, contender: Contender) -> bool:
        return not isinstance(contender, Floor) or contender.compressed == self.spec.compressed

    def run(self, contender: Contender, place: Place, fresh: PlaceMaker) -> Stopwatch:
        watch, data = Stopwatch(), field_of(self.spec.shape)
        with fresh.fresh() as at:
            writing = contender.new(at)
            writing.create("data", self.spec)
            watch.start()
            writing.write("data", _whole(self.spec), data)
            writing.commit()
            watch.stop("write")
            reading = contender.opened(at)
            watch.start()
            found = reading.read("data", _whole(self.spec))
            watch.stop("read")
        _check(found, data, contender.name)
        return watch


@dataclass(frozen=True)
class _Prepared(Workload):
    title: str
    spec: ArraySpec
    parts: tuple[str, ...]

    def prepare(self, contender: Contender, place: Place) -> None:
        writing = contender.new(place)
        writing.create("data", self.spec)
        writing.write("data", _whole(self.spec), field_of(self.spec.shape))
        writing.commit()


@dataclass(frozen=True)
class Series(_Prepared):
    """Read one point of all times, each in a chunk of its own: in a new reader, then again."""

    parts: tuple[str, ...] = ("first", "again")

    def run(self, contender: Contender, place: Place, fresh: PlaceMaker) -> Stopwatch:
        watch, data = Stopwatch(), field_of(self.spec.shape)
        reading = contender.opened(place)
        for number, part in enumerate(self.parts):
            at = 3 + number
            watch.start()
            found = reading.read("data", (slice(None), at, at))
            watch.stop(part)
            _check(found, data[:, at, at], contender.name)
        return watch


@dataclass(frozen=True)
class OneMap(_Prepared):
    """Read one time of a cube in a new reader."""

    parts: tuple[str, ...] = ("map",)

    def run(self, contender: Contender, place: Place, fresh: PlaceMaker) -> Stopwatch:
        watch, data = Stopwatch(), field_of(self.spec.shape)
        reading = contender.opened(place)
        at = self.spec.shape[0] // 2
        watch.start()
        found = reading.read("data", (at, slice(None), slice(None)))
        watch.stop("map")
        _check(found, data[at], contender.name)
        return watch


@dataclass(frozen=True)
class Crops(_Prepared):
    """Read random cubes, one by one and as a batch, as a loader of training data does."""

    parts: tuple[str, ...] = ("one by one", "batch")
    count: int = 400
    side: int = 32

    def selections(self) -> list[Selection]:
        """Return the same random cubes for all."""
        random = np.random.default_rng(7)
        starts = random.integers(0, np.array(self.spec.shape) - self.side, size=(self.count, len(self.spec.shape)))
        return [tuple(slice(at, at + self.side) for at in row) for row in starts.tolist()]

    def run(self, contender: Contender, place: Place, fresh: PlaceMaker) -> Stopwatch:
        watch, data, wanted = Stopwatch(), field_of(self.spec.shape), self.selections()
        reading = contender.opened(place)
        watch.start()
        found = [reading.read("data", each) for each in wanted]
        watch.stop("one by one")
        again = contender.opened(place)
        watch.start()
        batch = again.read_many("data", wanted)
        watch.stop("batch")
        for selection, one, other in zip(wanted, found, batch, strict=True):
            _check(one, data[selection], contender.name)
            _check(other, data[selection], contender.name)
        return watch


@dataclass(frozen=True)
class Chunks(_Prepared):
    """Read random single chunks, one after the other."""

    parts: tuple[str, ...] = ("chunks",)
    count: int = 40

    def run(self, contender: Contender, place: Place, fresh: PlaceMaker) -> Stopwatch:
        watch, data = Stopwatch(), field_of(self.spec.shape)
        random = np.random.default_rng(11)
        grid = [length // chunk for length, chunk in zip(self.spec.shape, self.spec.chunks, strict=True)]
        places = random.integers(0, grid, size=(self.count, len(grid))).tolist()
        wanted = [
            tuple(slice(at * chunk, (at + 1) * chunk) for at, chunk in zip(row, self.spec.chunks, strict=True))
            for row in places
        ]
        reading = contender.opened(place)
        watch.start()
        found = [reading.read("data", each) for each in wanted]
        watch.stop("chunks")
        for selection, one in zip(wanted, found, strict=True):
            _check(one, data[selection], contender.name)
        return watch


@dataclass(frozen=True)
class Overwrites(_Prepared):
    """Overwrite single values at random places in one session, and commit."""

    parts: tuple[str, ...] = ("overwrites",)
    count: int = 2000

    def run(self, contender: Contender, place: Place, fresh: PlaceMaker) -> Stopwatch:
        watch = Stopwatch()
        random = np.random.default_rng(13)
        points = random.integers(0, self.spec.shape, size=(self.count, len(self.spec.shape))).tolist()
        value = np.ones((1,) * len(self.spec.shape), dtype=self.spec.dtype)
        writing = contender.reopened(place)
        watch.start()
        for point in points:
            writing.write("data", tuple(slice(at, at + 1) for at in point), value)
        writing.commit()
        watch.stop("overwrites")
        return watch


@dataclass(frozen=True)
class Rechunk(_Prepared):
    """Read maps and write them as series, a block of series at a time."""

    parts: tuple[str, ...] = ("rechunk",)
    block: int = 64

    def run(self, contender: Contender, place: Place, fresh: PlaceMaker) -> Stopwatch:
        watch = Stopwatch()
        times, rows, columns = self.spec.shape
        target = ArraySpec(self.spec.shape, (times, self.block, self.block), self.spec.dtype, self.spec.compressed)
        with fresh.fresh() as at:
            reading, writing = contender.opened(place), contender.new(at)
            writing.create("data", target)
            watch.start()
            for first in range(0, rows, self.block):
                region: Selection = (slice(None), slice(first, first + self.block), slice(0, columns))
                writing.write("data", region, reading.read("data", region))
            writing.commit()
            watch.stop("rechunk")
            found = contender.opened(at).read("data", _whole(target))
        _check(found, field_of(self.spec.shape), contender.name)
        return watch


@dataclass(frozen=True)
class Append(Workload):
    """Append time steps to many variables, a commit each."""

    title: str
    variables: int = 50
    steps: int = 10
    parts: tuple[str, ...] = ("steps",)

    def suits(self, contender: Contender) -> bool:
        return super().suits(contender) and "TensorStore" not in contender.name

    def run(self, contender: Contender, place: Place, fresh: PlaceMaker) -> Stopwatch:
        watch, step = Stopwatch(), field_of((1, 90, 180))
        names = [f"v{number}" for number in range(self.variables)]
        with fresh.fresh() as at:
            writing = contender.new(at)
            for name in names:
                writing.create(name, ArraySpec((0, 90, 180), (1, 90, 180), compressed=True))
            writing.commit()
            seconds = 0.0
            for _ in range(self.steps):
                watch.start()
                writing = contender.reopened(at)
                writing.append(dict.fromkeys(names, step))
                writing.commit()
                watch.stop("steps")
                seconds += watch.parts["steps"]
            watch.add("steps", seconds)
            found = contender.opened(at).read(names[-1], (slice(None), slice(None), slice(None)))
        _check(found, np.repeat(step, self.steps, axis=0), contender.name)
        return watch


@dataclass(frozen=True)
class Variables(Workload):
    """A dataset of many variables: open it with xarray, list its arrays, fill one in later."""

    title: str
    variables: int = 200
    parts: tuple[str, ...] = ("xr.open_zarr", "list(arrays)", "backfill")

    def suits(self, contender: Contender) -> bool:
        return isinstance(contender, ZarrContender)

    def prepare(self, contender: Contender, place: Place) -> None:
        import xarray as xr
        import zarr

        assert isinstance(contender, ZarrContender)
        values = field_of((4, 16, 32))
        variables = {f"v{number}": (("time", "lat", "lon"), values) for number in range(self.variables)}
        writer = contender.system.writer(contender.system.create(place))
        xr.Dataset(variables).to_zarr(writer.store, consolidated=False, mode="w", zarr_format=3)
        writer.commit()
        if _is_plain(contender):
            zarr.consolidate_metadata(writer.store)

    def run(self, contender: Contender, place: Place, fresh: PlaceMaker) -> Stopwatch:
        import xarray as xr
        import zarr

        assert isinstance(contender, ZarrContender)
        watch, plain = Stopwatch(), _is_plain(contender)
        store = contender.store(place)
        watch.start()
        opened = xr.open_zarr(store, consolidated=plain, zarr_format=3)
        watch.stop("xr.open_zarr")
        store = contender.store(place)
        watch.start()
        arrays = list(zarr.open_group(store, mode="r").arrays())
        watch.stop("list(arrays)")
        if len(opened) != self.variables or len(arrays) != self.variables:
            raise AssertionError(f"{contender.name} lost variables")
        watch.start()
        writing = contender.reopened(place)
        writing.write(f"v{self.variables // 2}", (slice(None), slice(None), slice(None)), field_of((4, 16, 32)))
        writing.commit()
        watch.stop("backfill")
        return watch


def _is_plain(contender: ZarrContender) -> bool:
    return contender.name.startswith("zarr")


def _sizes(quick: bool) -> list[tuple[str, ArraySpec]]:
    """Return arrays of one size of chunks each: small ones in two dimensions, large ones as maps."""
    found = []
    for label, side, grid in (("4 KiB", 32, (128, 64)), ("16 KiB", 64, (128, 64)), ("64 KiB", 128, (64, 32))):
        down, across = (4, 2) if quick else grid
        found.append((f"{down * across:,} chunks of {label}", ArraySpec((side * down, side * across), (side, side))))
    for label, side, count in (("1 MiB", 512, 96), ("16 MiB", 2048, 8)):
        shape = (2 if quick else count, side, side)
        found.append((f"{shape[0]} maps of {label}", ArraySpec(shape, (1, side, side))))
    return found


def _compressed(spec: ArraySpec, compressed: bool) -> ArraySpec:
    return ArraySpec(spec.shape, spec.chunks, spec.dtype, compressed)


def workloads(quick: bool = False) -> dict[str, Workload]:
    """Return all workloads by name."""
    found: dict[str, Workload] = {}
    for (title, spec), (codec, compressed) in itertools.product(_sizes(quick), (("raw", False), ("zstd", True))):
        size = spec.chunks[-1] ** 2 * 4
        found[f"{size // KIB}k-{codec}"] = WholeArray(f"{title}, {codec}", _compressed(spec, compressed))
    times, side = (50, 128) if quick else (10_000, 4096)
    cube = ArraySpec((times, 64, 64), (1, 64, 64), compressed=True)
    maps = ArraySpec((4, side, side), (1, side // 8, side // 8), compressed=True)
    volume = ArraySpec((128,) * 3 if quick else (320,) * 3, (64,) * 3)
    series = ArraySpec((4, 128, 128) if quick else (96, 512, 512), (1, *((128, 128) if quick else (512, 512))))
    small = ArraySpec((256, 256) if quick else (2048, 2048), (32, 32))
    found["series"] = Series(f"a point through {times:,} chunks of 16 KiB, zstd", cube)
    found["map"] = OneMap("one map of 64 chunks, zstd", maps)
    found["crops"] = Crops("random 32³ crops out of 64³ chunks, raw", volume, count=20 if quick else 400)
    found["rechunk"] = Rechunk("96 maps of 1 MiB to series, raw", series)
    found["overwrites"] = Overwrites("2,000 single values overwritten, chunks of 4 KiB, raw", small)
    found["append"] = Append("time steps appended to 50 variables, a commit each", *((3, 2) if quick else (50, 10)))
    found["variables"] = Variables("200 variables", 5 if quick else 200)
    return found


def distant_workloads(quick: bool = False) -> dict[str, Workload]:
    """Return the workloads of a store where each request takes 25 ms."""
    count = 4 if quick else 64
    maps = ArraySpec((count, 512, 512), (1, 512, 512))
    small = ArraySpec((128 * 8, 128 * (2 if quick else 32)), (128, 128))
    cube = ArraySpec((20 if quick else 1000, 128, 128), (1, 128, 128), compressed=True)
    return {
        "s3-1024k-raw": WholeArray(f"S3, 25 ms: {count} maps of 1 MiB, raw", maps),
        "s3-64k-raw": WholeArray("S3, 25 ms: 256 chunks of 64 KiB, raw", small),
        "s3-series": Series("S3, 25 ms: a point through 1,000 chunks of 64 KiB, zstd", cube),
        "s3-chunks": Chunks("S3, 25 ms: 40 random chunks of 64 KiB, raw", small, count=4 if quick else 40),
    }


WORKLOADS = tuple(workloads(quick=True)) + tuple(distant_workloads(quick=True))
"""Names of all workloads."""
