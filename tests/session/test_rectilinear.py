"""Arrays with rectilinear chunk grids, in a process whose zarr does not read them."""

from __future__ import annotations

import json

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import _collect_aiterator, sync

from arraystore import Repository, in_memory_storage

DOCUMENT = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [10],
    "data_type": "int8",
    "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[[3, 2], 4]]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0,
    "codecs": [{"name": "bytes"}],
    "attributes": {},
}


KNOWN = "rectilinear_chunks" in zarr.config.get("array")
"""Whether this release of zarr can read them when it is told to."""


def test_an_array_that_zarr_does_not_read_hides_nothing_from_those_who_list_and_read_the_store() -> None:
    repo = Repository.create(in_memory_storage())
    with zarr.config.set({"array.rectilinear_chunks": True} if KNOWN else {}):
        session = repo.writable_session("main")
        to_buffer = default_buffer_prototype().buffer.from_bytes
        session.store.set_sync("r/zarr.json", to_buffer(json.dumps(DOCUMENT).encode()))
        session.store.set_sync("r/c/2", to_buffer(b"last"))
        zarr.create_array(session.store, name="a", shape=(2,), chunks=(2,), dtype="i1")[:] = 1
        session.commit("one array of each kind")
    with zarr.config.set({"array.rectilinear_chunks": False} if KNOWN else {}):
        store = Repository.open(repo.storage).readonly_session("main").store
        keys = set(sync(_collect_aiterator(store.list())))
        assert {"r/zarr.json", "r/c/2", "a/zarr.json", "a/c/0"} <= keys
        chunk = store.get_sync("r/c/2")
        assert chunk is not None
        assert chunk.to_bytes() == b"last"
        assert store.get_sync("r/c/3") is None
