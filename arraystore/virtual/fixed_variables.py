"""Variables without the dimension along which files follow each other: one array has the values for all files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import prod
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer.cpu import Buffer
from zarr.storage import MemoryStore

from arraystore._chunks.virtual_containers import VirtualContainers
from arraystore._format.types import Array
from arraystore._runtime import run
from arraystore.virtual.arrays import VirtualArray, metadata_documents
from arraystore.virtual.joining import alike, check_meaning, other_values

_BLOCK = 1 << 24
"""Bytes of a variable that are compared at a time."""
_THREADS = 8

Rows = tuple[slice, ...]
"""Selection along the first dimension; empty for an array of none."""


def check_sources(
    name: str, urls: Sequence[str], arrays: Sequence[VirtualArray], containers: VirtualContainers
) -> None:
    """Read a variable of all files, and raise `VirtualizeError` unless it has the values of the first one."""
    for url, array in zip(urls, arrays, strict=True):
        if array.metadata.shape != arrays[0].metadata.shape:
            raise other_values(f"{name!r} of {url!r}", repr(urls[0]))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="arraystore-virtual") as threads:
        for rows in _blocks(arrays[0]):
            kept, *others = threads.map(partial(_read, rows=rows, containers=containers), arrays)
            for url, values in zip(urls[1:], others, strict=True):
                if not alike(values, kept):
                    raise other_values(f"{name!r} of {url!r}", repr(urls[0]))


def check_stored(
    name: str, where: str, array: VirtualArray, stored: zarr.Array[Any], containers: VirtualContainers
) -> None:
    """Read a variable of a file, and raise `VirtualizeError` unless it has the values of an array."""
    check_meaning(f"variable {name!r}", array.metadata.attributes, where, stored.attrs.asdict())
    if stored.shape != tuple(array.metadata.shape) or not all(
        alike(_read(array, rows, containers), np.asarray(stored[rows or ...])) for rows in _blocks(array)
    ):
        raise other_values(f"variable {name!r}", where)


def _blocks(array: VirtualArray) -> Iterator[Rows]:
    """Yield runs of whole chunks along the first dimension."""
    shape = array.metadata.shape
    if not shape:
        yield ()
        return
    side = max(1, array.metadata.chunks[0])
    row = prod(shape[1:]) * array.metadata.data_type.to_native_dtype().itemsize
    step = side * max(1, _BLOCK // max(1, side * row))
    for start in range(0, shape[0], step):
        yield (slice(start, min(start + step, shape[0])),)


def _read(array: VirtualArray, rows: Rows, containers: VirtualContainers) -> Array:
    """Return values of an array as they are stored; the source is read with one call for each file."""
    entries: dict[str, Any] = dict(metadata_documents(array.metadata))
    for cell, data in _chunks(array, rows, containers):
        entries["/".join(["c", *map(str, cell)])] = Buffer.from_bytes(data)
    return np.asarray(zarr.open_array(MemoryStore(entries), mode="r")[rows or ...])


def _chunks(array: VirtualArray, rows: Rows, containers: VirtualContainers) -> list[tuple[tuple[int, ...], bytes]]:
    """Return the encoded chunks of some rows, by their coordinates."""
    grid = np.arange(prod(array.grid), dtype=np.int64).reshape(array.grid)
    if rows:
        side = max(1, array.metadata.chunks[0])
        grid = grid[rows[0].start // side : -(-rows[0].stop // side)]
    wanted = grid.reshape(-1)
    locations = np.asarray(array.locations, dtype=object)[wanted].tolist()
    cells = np.stack(np.unravel_index(wanted, array.grid), axis=1).tolist() if array.grid else [[]]
    found = [(tuple(cell), array.inlined[tuple(cell)]) for cell in cells if tuple(cell) in array.inlined]
    sources = defaultdict(list)
    for row, location, cell in zip(wanted.tolist(), locations, cells, strict=True):
        if location:
            sources[location].append((tuple(cell), row))
    for location, places in sources.items():
        storage, key = containers.find(location)
        spans = [(int(array.offsets[row]), int(array.offsets[row] + array.lengths[row])) for _, row in places]
        found += zip(
            [cell for cell, _ in places], map(bytes, run(storage.get_source_ranges(key, spans))[0]), strict=True
        )
    return found
