"""What our transactions do: light ones append to an array, heavy ones overwrite a chunk and validate what they read."""

from __future__ import annotations

import json
from typing import Any

from zarr.core.buffer import default_buffer_prototype
from zarr.core.buffer.cpu import Buffer

from arraystore import ConflictDetector, Repository, RepositoryConfig
from arraystore._session.session import Session

__all__ = ["CONFIG", "SOLVER", "change", "make_arrays"]

CHUNK = b"\x5a" * 2048
"""Bytes of a chunk, uploaded while the transaction runs, as the data files of the study are."""

CONFIG = RepositoryConfig(own_object_threshold_bytes=1024)

SOLVER = ConflictDetector()

_APPENDED, _OVERWRITTEN = "appended", "overwritten"
_MOST = 1 << 24


def _array(length: int, dimension: str) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [length],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [len(CHUNK)]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
        "attributes": {},
        "dimension_names": [dimension],
    }


def _buffer(data: bytes) -> Buffer:
    return Buffer.from_bytes(data)


def _document(value: dict[str, Any]) -> Buffer:
    return _buffer(json.dumps(value).encode())


async def make_arrays(repo: Repository) -> None:
    """Make the two arrays that all transactions share, on `main`."""
    session = await repo.writable_session_async("main")
    store = session.store
    await store.set("zarr.json", _document({"zarr_format": 3, "node_type": "group", "attributes": {}}))
    await store.set(f"{_APPENDED}/zarr.json", _document(_array(0, "time")))
    await store.set(f"{_OVERWRITTEN}/zarr.json", _document(_array(_MOST * len(CHUNK), "place")))
    await session.commit_async("two arrays")


async def change(session: Session, number: int, heavy: bool) -> None:
    """Change what transaction `number` changes; no two heavy ones overwrite the same chunk, as in the study."""
    store = session.store
    if heavy:
        key = f"{_OVERWRITTEN}/c/{number}"
        await store.get(key, default_buffer_prototype())  # a serializable session depends on it from now on
        await store.set(key, _buffer(CHUNK))
        return
    found = await store.get(f"{_APPENDED}/zarr.json", default_buffer_prototype())
    assert found is not None
    document = json.loads(found.to_bytes())
    length = document["shape"][0]
    document["shape"] = [length + len(CHUNK)]
    with session.appending("time") as appended:
        await appended.set(f"{_APPENDED}/zarr.json", _document(document))
        await appended.set(f"{_APPENDED}/c/{length // len(CHUNK)}", _buffer(CHUNK))
