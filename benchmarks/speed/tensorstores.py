"""TensorStore (C++), as files and as its versioned database OCDBT."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorstore

from benchmarks.places import Place
from benchmarks.speed.datasets import ArraySpec, Contender, Dataset, Selection

__all__ = ["TensorStoreContender"]

_ZSTD_LEVEL = 3
"""What zarr's default level of 0 stands for."""


@dataclass
class _TensorStoreDataset(Dataset):
    kvstore: dict[str, Any]
    context: tensorstore.Context = field(default_factory=tensorstore.Context)
    arrays: dict[str, Any] = field(default_factory=dict[str, Any])
    transaction: tensorstore.Transaction | None = None

    def _spec(self, name: str) -> dict[str, Any]:
        driver = self.kvstore["driver"]
        if driver == "ocdbt":
            return {"driver": "zarr3", "kvstore": {**self.kvstore, "path": f"{name}/"}}
        return {"driver": "zarr3", "kvstore": {**self.kvstore, "path": f"{self.kvstore['path']}{name}/"}}

    def create(self, name: str, spec: ArraySpec) -> None:
        codecs: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
        if spec.compressed:
            codecs.append({"name": "zstd", "configuration": {"level": _ZSTD_LEVEL}})
        metadata = {
            "shape": list(spec.shape),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(spec.chunks)}},
            "data_type": spec.dtype,
            "codecs": codecs,
            "fill_value": 0,
        }
        wanted = {**self._spec(name), "metadata": metadata, "create": True}
        self.arrays[name] = tensorstore.open(wanted, context=self.context).result()

    def _array(self, name: str) -> Any:
        if name not in self.arrays:
            self.arrays[name] = tensorstore.open(self._spec(name), context=self.context).result()
        return self.arrays[name]

    def write(self, name: str, selection: Selection, data: np.ndarray) -> None:
        array = self._array(name)
        if self.kvstore["driver"] == "ocdbt":  # one commit for all, as the other versioned contenders do it
            if self.transaction is None:
                self.transaction = tensorstore.Transaction()
            array = array.with_transaction(self.transaction)
        array[selection].write(data).result()

    def read(self, name: str, selection: Selection) -> np.ndarray:
        return np.asarray(self._array(name)[selection].read().result())

    def read_many(self, name: str, selections: list[Selection]) -> list[np.ndarray]:
        array = self._array(name)
        return [np.asarray(each.result()) for each in [array[selection].read() for selection in selections]]

    def commit(self) -> None:
        if self.transaction is not None:
            self.transaction.commit_sync()
            self.transaction = None


@dataclass(frozen=True)
class TensorStoreContender(Contender):
    """TensorStore's zarr3 driver over files or over OCDBT."""

    name: str
    ocdbt: bool

    def _dataset(self, place: Place) -> Dataset:
        files = {"driver": "file", "path": f"{place.directory}/"}
        return _TensorStoreDataset({"driver": "ocdbt", "base": files} if self.ocdbt else files)

    def new(self, place: Place) -> Dataset:
        return self._dataset(place)

    def reopened(self, place: Place) -> Dataset:
        return self._dataset(place)

    def opened(self, place: Place) -> Dataset:
        return self._dataset(place)
