"""A repository of somebody who wants to break the page."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import zarr

import arraystore
from arraystore._runtime import run

MARKUP = "<img src=x onerror=\"window.broken='yes'\">"
SCRIPT = "<script>window.broken='yes'</script>"
LONG = "x" * 10_000


def build_hostile(storage: arraystore.Storage) -> dict[str, str]:
    """Write it; the ids of snapshots by what they are."""
    repo = arraystore.Repository.create(storage)
    session = repo.writable_session("main")
    store = session.store
    group = zarr.create_group(store, path="names", attributes={
        MARKUP: SCRIPT, "deep": _deep(60), "long": LONG * 3, "__proto__": {"broken": "yes"}, "constructor": "c",
        "nan": float("nan"), "dtype": "<f4", "data": "AAAA", "shape": [1],
    })  # fmt: skip
    for name in (
        MARKUP.replace("/", ""),
        "a'b\"c",
        "javascript:alert(1)",
        "\u202egnp.exe",
        "ctrl\x1b[31m",
        "%2e%2e",
        "&amp;",
        "#hash?x=1",
    ):
        small = group.create_array(name, shape=(2, 2), chunks=(1, 1), dtype="f4", dimension_names=(MARKUP, None))
        small[...] = 1
    zarr.create_array(store, name="huge/shape", shape=(1 << 62, 1 << 61), chunks=(1 << 10, 1 << 10), dtype="f4")
    zarr.create_array(store, name="huge/chunk", shape=(1 << 40,), chunks=(1 << 40,), dtype="f8")
    zarr.create_array(store, name="huge/grid", shape=(1 << 50,), chunks=(1,), dtype="u1")
    zarr.create_array(store, name="huge/dims", shape=(2,) * 32, chunks=(1,) * 32, dtype="u1")
    zarr.create_array(store, name="empty", shape=(0, 5), chunks=(1, 5), dtype="f4")
    special = zarr.create_array(store, name="special", shape=(2, 3), dtype="f4", attributes={
        "units": "days since the beginning", "calendar": MARKUP, "_FillValue": "!!", "scale_factor": "x",
        "add_offset": 1e400,
    })  # fmt: skip
    special[...] = [[np.nan, np.inf, -np.inf], [1e38, -1e38, 0]]
    times = zarr.create_array(store, name="times", shape=(3,), dtype="f8", dimension_names=("times",), attributes={
        "units": "days since 0000-00-00", "calendar": "no such calendar",
    })  # fmt: skip
    times[...] = [1e300, -1e300, np.nan]
    words = zarr.create_array(store, name="words", shape=3, dtype="U200", chunks=3)
    words[...] = [MARKUP, SCRIPT, LONG[:200]]
    zarr.create_array(store, name="word", shape=(), dtype="U200")[...] = MARKUP
    many = zarr.create_array(store, name="many", shape=(4_000,), chunks=(1,), dtype="f8", compressors=None)
    many[...] = np.arange(4_000)
    noise = zarr.create_array(store, name="noise", shape=(64, 64), chunks=(16, 16), dtype="f8", compressors=None)
    noise[...] = np.random.default_rng(0).random((64, 64))
    ids = {"names": session.commit(MARKUP + LONG, {MARKUP: SCRIPT, "long": LONG})}
    for name in ("branch<b>", "a/b/c"):
        repo.create_branch(name, ids["names"])
    repo.create_tag("tag'\"<i>", ids["names"])
    session = repo.writable_session("main")
    for name, change in _BROKEN.items():
        _set_document(session.store, name, change)
    ids["broken"] = session.commit("\u202e\x00\x1b[2J\n" + SCRIPT)
    repo.wait_for_maintenance()
    return ids


def _deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


_BASE = {
    "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "float32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "fill_value": 0,
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": {},
}  # fmt: skip
_BROKEN: dict[str, dict[str, Any]] = {
    "bad/codec": {"codecs": [{"name": SCRIPT}]},
    "bad/dtype": {"data_type": {"name": MARKUP, "configuration": 3}},
    "bad/dimensions": {"dimension_names": [{"x": 1}, 2, 3]},
    "bad/attributes": {"attributes": [1, 2]},
    "bad/codecs": {"codecs": "none"},
    "bad/inner": {"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [0]}}]},
    "bad/zero": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0]}}},
    "bad/fill": {"fill_value": {"a": 1}},
}


def _set_document(store: Any, name: str, change: dict[str, Any]) -> None:
    from zarr.core.buffer import default_buffer_prototype

    document = json.dumps(_BASE | change).encode()
    buffer = default_buffer_prototype().buffer.from_bytes(document)
    run(store.set(f"{name}/zarr.json", buffer))


def damage(storage: arraystore.Storage, part: str) -> int:
    """Overwrite every object with some text in its key with other bytes; the number of objects."""

    async def overwrite() -> int:
        keys = [info.key async for page in storage.list("") for info in page if part in info.key]
        for key in keys:
            data = bytearray(bytes(await storage.get(key)))
            data[len(data) // 2 :] = b"\xff" * (len(data) - len(data) // 2)
            await storage.delete([key])
            await storage.put(key, bytes(data))
        return len(keys)

    return run(overwrite())
