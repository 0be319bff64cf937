"""References of kerchunk in Parquet: a directory with consolidated metadata, and files of so many chunks each."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.core.metadata.v3 import ArrayV3Metadata

from arraystore._session.keys import join
from arraystore.virtual.arrays import VirtualArray
from arraystore.virtual.errors import VirtualizeError
from arraystore.virtual.inlined import decode_inline
from arraystore.virtual.locations import absolute_url

_METADATA = ".zmetadata"


@dataclass(frozen=True)
class Records:
    """A directory of references."""

    filesystem: Any
    path: str
    documents: Mapping[str, Any]
    """Documents of groups and arrays by key."""
    size: int
    """Chunks a file."""

    @classmethod
    def read(cls, filesystem: Any, path: str) -> Records:
        """Read the metadata of a directory; raises `VirtualizeError` if it has none."""
        try:
            with filesystem.open(f"{path}/{_METADATA}", "rb") as file:
                content = json.load(file)
            return cls(filesystem, path, content["metadata"], int(content["record_size"]))
        except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
            raise VirtualizeError(
                f"{path!r} is no directory of kerchunk's Parquet: its {_METADATA} needs metadata and record_size "
                f"({error})"
            ) from None

    def array(self, path: str, metadata: ArrayV3Metadata) -> VirtualArray:
        """Return an array with its references."""
        grid = tuple(-(-length // side) for length, side in zip(metadata.shape, metadata.chunks, strict=True))
        volume = math.prod(grid)
        parts = [self._columns(path, number) for number in range(-(-volume // self.size))]
        urls, offsets, lengths = (
            np.concatenate([part[column] for part in parts])[:volume] if parts else np.zeros(0, dtype=np.int64)
            for column in range(3)
        )
        inlined = {
            tuple(int(at) for at in np.unravel_index(row + number * self.size, grid)): data
            for number, part in enumerate(parts)
            for row, data in part[3]
        }
        return VirtualArray(metadata, grid, urls, offsets, lengths, inlined)

    def _columns(self, path: str, number: int) -> tuple[Any, Any, Any, list[tuple[int, bytes]]]:
        """Return URLs, offsets, lengths (-1 for all of a source) and inlined chunks of a file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        name = f"{self.path}/{join(path, f'refs.{number}.parq')}"
        try:
            with self.filesystem.open(name, "rb") as file:
                table = pq.read_table(file)
        except FileNotFoundError:
            return _nothing(self.size)
        except pa.ArrowException as error:
            raise VirtualizeError(f"{name!r} is no Parquet of kerchunk: {error}") from None
        if missing := {"path", "offset", "size", "raw"} - set(table.column_names):
            raise VirtualizeError(f"{name!r} is no Parquet of kerchunk: it has no column {min(missing)!r}")
        lengths = _numbers(table["size"])
        if lengths.min(initial=0) < 0:
            raise VirtualizeError(f"{name!r} is no Parquet of kerchunk: it has a negative size")
        urls = _urls(table["path"])
        there = urls != ""
        raw = table["raw"].combine_chunks()
        rows = np.flatnonzero(np.asarray(raw.is_valid())).tolist()
        inlined = [(row, data) for row in rows if (data := decode_inline(raw[row].as_py()))]
        return urls, _numbers(table["offset"]), np.where(there & (lengths == 0), -1, lengths), inlined


def _nothing(count: int) -> tuple[Any, Any, Any, list[tuple[int, bytes]]]:
    zeros = np.zeros(count, dtype=np.int64)
    return np.zeros(count, dtype=np.dtypes.StringDType()), zeros, zeros, []


def _numbers(column: Any) -> Any:
    return column.fill_null(0).to_numpy().astype(np.int64)


def _urls(column: Any) -> Any:
    """Return URLs as an array of strings, empty where there are none: a step of Python for each that is different."""
    import pyarrow as pa

    values = column.combine_chunks()
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    distinct = [absolute_url(_text(value)) if value else "" for value in coded.dictionary.to_pylist()]
    table = np.array([*distinct, ""], dtype=np.dtypes.StringDType())
    return table[coded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
