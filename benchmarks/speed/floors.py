"""What no contender can go below: a copy in memory, a file as a whole, the codec alone."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numcodecs import Zstd

from benchmarks.places import Place
from benchmarks.speed.datasets import ArraySpec, Contender, Dataset, Selection

__all__ = ["CodecAlone", "FileAlone", "Floor", "Memcpy"]

_KEPT: dict[Path, np.ndarray] = {}
_CHUNKS: dict[Path, list[bytes]] = {}


class Floor(Contender):
    """No contender: the least that the machine allows for whole arrays, compressed or not."""

    compressed = False

    def reopened(self, place: Place) -> Dataset:
        return self.opened(place)


@dataclass
class _Memory(Dataset):
    path: Path
    copy: np.ndarray = field(default_factory=lambda: np.empty(0))

    def create(self, name: str, spec: ArraySpec) -> None:
        self.copy = np.empty(spec.shape, spec.dtype)

    def write(self, name: str, selection: Selection, data: np.ndarray) -> None:
        np.copyto(self.copy, data)
        _KEPT[self.path] = self.copy

    def read(self, name: str, selection: Selection) -> np.ndarray:
        return _KEPT.pop(self.path).copy()

    def commit(self) -> None:
        """Do nothing: it is visible."""


class Memcpy(Floor):
    """One copy of the array, each way."""

    name = "floor: memcpy"

    def new(self, place: Place) -> Dataset:
        return _Memory(place.directory)

    opened = new


@dataclass
class _File(Dataset):
    path: Path

    def create(self, name: str, spec: ArraySpec) -> None:
        _KEPT[self.path] = np.empty(spec.shape, spec.dtype)

    def write(self, name: str, selection: Selection, data: np.ndarray) -> None:
        (self.path / "data").write_bytes(memoryview(data).cast("B"))

    def read(self, name: str, selection: Selection) -> np.ndarray:
        found = np.empty_like(_KEPT.pop(self.path))
        with open(self.path / "data", "rb") as file:
            os.preadv(file.fileno(), [memoryview(found).cast("B")], 0)
        return found

    def commit(self) -> None:
        """Do nothing: it is visible."""


class FileAlone(Floor):
    """The array as the bytes of one file."""

    name = "floor: one file"

    def new(self, place: Place) -> Dataset:
        return _File(place.directory)

    opened = new


@dataclass
class _Codec(Dataset):
    path: Path

    def create(self, name: str, spec: ArraySpec) -> None:
        starts = [range(0, length, step) for length, step in zip(spec.shape, spec.chunks, strict=True)]
        self.regions = [
            tuple(slice(at, at + step) for at, step in zip(place, spec.chunks, strict=True))
            for place in itertools.product(*starts)
        ]
        self.shape = spec.chunks
        _KEPT[self.path] = np.empty(spec.shape, spec.dtype)

    def write(self, name: str, selection: Selection, data: np.ndarray) -> None:
        codec = Zstd()
        _CHUNKS[self.path] = [codec.encode(np.ascontiguousarray(data[region])) for region in self.regions]

    def read(self, name: str, selection: Selection) -> np.ndarray:
        codec, found = Zstd(), np.empty_like(_KEPT[self.path])
        chunks = iter(_CHUNKS.pop(self.path))
        for region in self.regions:
            found[region] = np.frombuffer(codec.decode(next(chunks)), found.dtype).reshape(self.shape)
        return found

    def commit(self) -> None:
        """Do nothing: it is visible."""


class CodecAlone(Floor):
    """Zstandard of chunk after chunk, on one thread."""

    name = "floor: zstd, one thread"
    compressed = True

    def new(self, place: Place) -> Dataset:
        dataset = _OPEN[place.directory] = _Codec(place.directory)
        return dataset

    def opened(self, place: Place) -> Dataset:
        return _OPEN.pop(place.directory)


_OPEN: dict[Path, _Codec] = {}
