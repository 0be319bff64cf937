"""A dataset as every contender of the speed table keeps it: arrays by name, regions, a commit."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store

import arraystore
from benchmarks.places import Place
from benchmarks.systems import System, Writer

__all__ = ["ArraySpec", "Contender", "Dataset", "RegionContender", "Selection", "ZarrContender"]

Selection = tuple[slice | int, ...]

DIMENSIONS = ("time", "lat", "lon")


@dataclass(frozen=True)
class ArraySpec:
    """Shape, chunks and type of an array, and whether its chunks are compressed with zstd, as zarr does it."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str = "float32"
    compressed: bool = False


class Dataset(abc.ABC):
    """Arrays of one contender at one place, for writing or for reading."""

    @abc.abstractmethod
    def create(self, name: str, spec: ArraySpec) -> None:
        """Create an array."""

    @abc.abstractmethod
    def write(self, name: str, selection: Selection, data: np.ndarray) -> None:
        """Write a region."""

    @abc.abstractmethod
    def read(self, name: str, selection: Selection) -> np.ndarray:
        """Read a region."""

    def read_many(self, name: str, selections: list[Selection]) -> list[np.ndarray]:
        """Read many regions, one after the other unless the contender has a call for it."""
        return [self.read(name, selection) for selection in selections]

    def append(self, steps: Mapping[str, np.ndarray]) -> None:
        """Append to arrays along their first dimension."""
        raise NotImplementedError

    @abc.abstractmethod
    def commit(self) -> None:
        """Make visible what was written; nothing where it is visible at once."""


class Contender(abc.ABC):
    """A way to keep arrays."""

    name: str

    @abc.abstractmethod
    def new(self, place: Place) -> Dataset:
        """Make an empty dataset."""

    @abc.abstractmethod
    def reopened(self, place: Place) -> Dataset:
        """Open it for writing, as another process would."""

    @abc.abstractmethod
    def opened(self, place: Place) -> Dataset:
        """Open it for reading, as another process would."""

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Settings of the process while the contender runs."""
        yield


@dataclass
class _ZarrDataset(Dataset):
    store: Store
    writer: Writer | None = None
    arrays: dict[str, zarr.Array[Any]] = field(default_factory=dict[str, "zarr.Array[Any]"])

    def create(self, name: str, spec: ArraySpec) -> None:
        self.arrays[name] = zarr.create_array(
            self.store,
            name=name,
            shape=spec.shape,
            chunks=spec.chunks,
            dtype=spec.dtype,
            compressors="auto" if spec.compressed else None,
            fill_value=0,
            dimension_names=DIMENSIONS[: len(spec.shape)],
        )

    def array(self, name: str) -> zarr.Array[Any]:
        """Return an array, opened when it is first used."""
        found = self.arrays.get(name)
        if found is None:
            mode = "r" if self.writer is None else "r+"
            found = self.arrays[name] = zarr.open_array(self.store, path=name, mode=mode)
        return found

    def write(self, name: str, selection: Selection, data: np.ndarray) -> None:
        self.array(name)[selection] = data

    def read(self, name: str, selection: Selection) -> np.ndarray:
        return np.asarray(self.array(name)[selection])

    def append(self, steps: Mapping[str, np.ndarray]) -> None:
        for name, data in steps.items():
            self.array(name).append(data)

    def commit(self) -> None:
        assert self.writer is not None
        self.writer.commit()


@dataclass(frozen=True)
class ZarrContender(Contender):
    """A system used through `zarr.Array`, with one of the codec pipelines.

    Parameters
    ----------
    name
        For tables.
    system
        What is behind zarr's store.
    pipeline
        Path of the codec pipeline's class; that of arraystore where None.
    workers
        Threads of zarr; None is zarr's own default.
    """

    name: str
    system: System
    pipeline: str | None
    workers: int | None = None

    def new(self, place: Place) -> Dataset:
        return self._writable(self.system.create(place))

    def reopened(self, place: Place) -> Dataset:
        return self._writable(self.system.open(place, None))

    def opened(self, place: Place) -> Dataset:
        return _ZarrDataset(self.store(place))

    def store(self, place: Place) -> Store:
        """Open a read-only store."""
        return self.system.reader(self.system.open(place, None))

    def _writable(self, handle: Any) -> Dataset:
        writer = self.system.writer(handle)
        return _ZarrDataset(writer.store, writer)

    @contextmanager
    def settings(self) -> Iterator[None]:
        arraystore.use_pipeline(self.pipeline is None)
        changed: dict[str, Any] = {} if self.pipeline is None else {"codec_pipeline.path": self.pipeline}
        if self.workers is not None:
            changed["codec_pipeline.max_workers"] = self.workers
        with zarr.config.set(changed):
            yield


@dataclass
class _RegionDataset(Dataset):
    """arraystore through its own region calls; arrays are made through zarr."""

    session: arraystore.Session

    def create(self, name: str, spec: ArraySpec) -> None:
        _ZarrDataset(self.session.store).create(name, spec)

    def write(self, name: str, selection: Selection, data: np.ndarray) -> None:
        self.session.write(name, selection, data)

    def read(self, name: str, selection: Selection) -> np.ndarray:
        return np.asarray(self.session.read(name, selection))

    def read_many(self, name: str, selections: list[Selection]) -> list[np.ndarray]:
        return [np.asarray(each) for each in self.session.read_many([(name, selection) for selection in selections])]

    def append(self, steps: Mapping[str, np.ndarray]) -> None:
        self.session.append(dict(steps), dim=DIMENSIONS[0])

    def commit(self) -> None:
        self.session.commit("benchmark")


@dataclass(frozen=True)
class RegionContender(Contender):
    """arraystore through `session.read`, `session.write` and `session.append`."""

    name: str
    system: System

    def new(self, place: Place) -> Dataset:
        return _RegionDataset(self.system.create(place).writable_session("main"))

    def reopened(self, place: Place) -> Dataset:
        return _RegionDataset(self.system.open(place, None).writable_session("main"))

    def opened(self, place: Place) -> Dataset:
        return _RegionDataset(self.system.open(place, None).readonly_session("main"))

    @contextmanager
    def settings(self) -> Iterator[None]:
        arraystore.use_pipeline()
        yield
