"""One measurement of a very large virtual dataset in a process of its own, for peak memory; prints one line of JSON.

python -m benchmarks.many_virtual write FILES CHUNKS_PER_FILE DIRECTORY
python -m benchmarks.many_virtual use FILES CHUNKS_PER_FILE DIRECTORY
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import xarray as xr
import zarr
from numcodecs import Zstd
from virtualizarr.manifests import ChunkManifest, ManifestArray
from virtualizarr.manifests.utils import create_v3_array_metadata

import arraystore
from arraystore.storage import Storage
from arraystore.virtual import write_virtual_dataset
from benchmarks import memory

__all__ = ["use", "write"]

_ITEMS = 250
"""Items of a chunk."""
_HEADER = 8192
_VALUES = np.arange(_ITEMS, dtype="<f4")
_FRAME = Zstd().encode(_VALUES)
"""The one chunk that is read: the middle one of the file in the middle."""


def _prefix(directory: Path) -> str:
    return f"file://{directory}/sources/"


def _storage(directory: Path) -> Storage:
    return arraystore.local_filesystem_storage(directory / "repository")


def _name(number: int) -> str:
    return f"part-{number:07}.nc"


def _places(number: int, chunks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets and lengths of the chunks of a file, of different lengths, as compressed ones are."""
    lengths = np.random.default_rng(number).integers(700_000, 1_000_000, size=(1, chunks), dtype=np.uint64)
    lengths[0, chunks // 2] = len(_FRAME)
    return np.cumsum(lengths, axis=1) - lengths + np.uint64(_HEADER), lengths


def _dataset(prefix: str, number: int, chunks: int) -> xr.Dataset:
    """Return references to all chunks of a file."""
    offsets, lengths = _places(number, chunks)
    manifest = ChunkManifest.from_arrays(
        paths=np.full((1, chunks), prefix + _name(number), dtype=np.dtypes.StringDType()),
        offsets=offsets,
        lengths=lengths,
        validate_paths=False,
    )
    metadata = create_v3_array_metadata(
        shape=(1, chunks * _ITEMS),
        data_type=np.dtype("f4"),
        chunk_shape=(1, _ITEMS),
        fill_value=0.0,
        codecs=[{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd", "configuration": {}}],
    )
    return xr.Dataset({"rain": (("time", "x"), ManifestArray(metadata, manifest))})


def _make_source(files: int, chunks: int, directory: Path) -> None:
    """Make the file in the middle, with nothing in it but the chunk that is read."""
    sources = directory / "sources"
    sources.mkdir(parents=True)
    with (sources / _name(files // 2)).open("wb") as file:
        file.seek(int(_places(files // 2, chunks)[0][0, chunks // 2]))
        file.write(_FRAME)


def write(files: int, chunks: int, directory: Path) -> dict[str, float]:
    """Refer to a file after the other in one session, and commit."""
    prefix = _prefix(directory)
    _make_source(files, chunks, directory)
    config = arraystore.RepositoryConfig(virtual_chunk_containers=(arraystore.VirtualChunkContainer(prefix),))
    session = arraystore.Repository.create(_storage(directory), config).writable_session("main")
    base = memory.reset_peak()
    started = time.perf_counter()
    for number in range(files):
        append = None if number == 0 else "time"
        write_virtual_dataset(_dataset(prefix, number, chunks), session, append_dim=append, checksum=None)
    written = time.perf_counter()
    session.commit("all files")
    done = time.perf_counter()
    return {"write": written - started, "commit": done - written, "bytes": memory.peak(), "base": base}


def use(files: int, chunks: int, directory: Path) -> dict[str, float]:
    """Open the repository, read one chunk, and commit another in its place."""
    base = memory.reset_peak()
    started = time.perf_counter()
    access = {_prefix(directory): None}
    repository = arraystore.Repository.open(_storage(directory), authorize_virtual_chunk_access=access)
    session = repository.writable_session("main")
    array = zarr.open_array(session.store, path="rain", mode="r+")
    assert array.shape == (files, chunks * _ITEMS)
    opened = time.perf_counter()
    row, first = files // 2, chunks // 2 * _ITEMS
    assert np.array_equal(array[row, first : first + _ITEMS], _VALUES)
    read = time.perf_counter()
    array[row, first : first + _ITEMS] = -_VALUES
    session.commit("one chunk")
    committed = time.perf_counter()
    again = zarr.open_array(repository.readonly_session("main").store, path="rain", mode="r")
    assert np.array_equal(again[row, first : first + _ITEMS], -_VALUES)
    return {
        "open": opened - started,
        "read": read - opened,
        "commit one": committed - read,
        "bytes": memory.peak(),
        "base": base,
    }


if __name__ == "__main__":
    does = {"write": write, "use": use}[sys.argv[1]]
    print(json.dumps(does(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))))
