"""Small programs on a Zarr store, step by step: what they leave behind has to be the same in any store."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.core.chunk_key_encodings import ChunkKeyEncoding
from zarr.registry import register_chunk_key_encoding
from zarr.storage import WrapperStore

Step = Callable[[Store], Any]
Program = list[Step]


def unconsolidated(keys: dict[str, bytes]) -> dict[str, bytes]:
    """Return keys and values without consolidated metadata, which a repository does not keep."""
    found = {key: value for key, value in keys.items() if key.rpartition("/")[2] != ".zmetadata"}
    for key, value in found.items():
        if key.rpartition("/")[2] == "zarr.json" and "consolidated_metadata" in (document := json.loads(value)):
            del document["consolidated_metadata"]
            found[key] = json.dumps(document, indent=2).encode()
    return found


@dataclass(frozen=True)
class ReversedEncoding(ChunkKeyEncoding):
    """A custom encoding that can be decoded: ``r-2-1`` is chunk (1, 2)."""

    name: ClassVar[str] = "test-reversed"  # type: ignore[misc]

    def encode_chunk_key(self, chunk_coords: tuple[int, ...]) -> str:
        return "-".join(["r", *map(str, reversed(chunk_coords))])

    def decode_chunk_key(self, chunk_key: str) -> tuple[int, ...]:
        start, *parts = chunk_key.split("-")
        if start != "r":
            raise ValueError(chunk_key)
        return tuple(int(part) for part in reversed(parts))


@dataclass(frozen=True)
class OneWayEncoding(ChunkKeyEncoding):
    """A custom encoding that cannot be decoded, as zarr allows."""

    name: ClassVar[str] = "test-one-way"  # type: ignore[misc]

    def encode_chunk_key(self, chunk_coords: tuple[int, ...]) -> str:
        return "x/" + "_".join(f"{c:03d}" for c in chunk_coords)


register_chunk_key_encoding("test-reversed", ReversedEncoding)
register_chunk_key_encoding("test-one-way", OneWayEncoding)


def numbers(*shape: int, dtype: str = "i4") -> np.ndarray[Any, Any]:
    """Values that are all different and never a fill value."""
    return (np.arange(int(np.prod(shape)), dtype="i8") + 1).reshape(shape).astype(dtype)


def create(name: str, **options: Any) -> Step:
    return lambda store: zarr.create_array(store, name=name, **options)


def write(name: str, selection: Any, value: Any) -> Step:
    return lambda store: zarr.open_array(store, path=name, mode="r+").__setitem__(selection, value)


def resize(name: str, *shape: int) -> Step:
    return lambda store: zarr.open_array(store, path=name, mode="r+").resize(shape)


def append(name: str, value: Any, axis: int = 0) -> Step:
    return lambda store: zarr.open_array(store, path=name, mode="r+").append(value, axis=axis)


def _filled(name: str, value: Any, **options: Any) -> Program:
    defaults = {"shape": value.shape, "dtype": value.dtype}
    return [create(name, **defaults | options), write(name, Ellipsis, value)]


def _changed(name: str, value: Any, **options: Any) -> Program:
    """Fill a two-dimensional array, overwrite a part, empty a part, shrink, grow, append."""
    rows, columns = value.shape
    return [
        *_filled(name, value, **options),
        write(name, (slice(2, 5), slice(1, 4)), value[3:6, 2:5]),
        write(name, (slice(0, 4), slice(0, 4)), 0),
        resize(name, rows - 3, columns - 2),
        resize(name, rows + 4, columns + 1),
        append(name, value[:, :1].repeat(columns + 1, axis=1)),
        append(name, numbers(2 * rows + 4, 3), axis=1),
    ]


def _groups(store: Store) -> None:
    root = zarr.open_group(store, mode="a", attributes={"title": "root"})
    deep = root.require_group("a/b/c")
    deep.attrs["depth"] = 3
    deep.create_array("x", shape=4, chunks=2, dtype="u1")[:] = 7
    root.require_group("a/other").attrs.update(list=[1, 2.5, None], text="ä\u0000\U0001f40d")


def _change_groups(store: Store) -> None:
    root = zarr.open_group(store, mode="r+")
    root.attrs["title"] = "new"
    root["a/b/c"].attrs.put({"depth": 4})
    del root["a/other"]


def _array_over_group(store: Store) -> None:
    zarr.create_array(store, name="a/b", shape=3, chunks=2, dtype="f8", overwrite=True)[:] = 1.5


def _group_over_array(store: Store) -> None:
    zarr.open_group(store, mode="r+").create_group("a/b", overwrite=True)


def _consolidated(store: Store) -> None:
    zarr.consolidate_metadata(WrapperStore(store))  # which asks nobody whether it may
    assert zarr.open_group(WrapperStore(store), mode="r")["a/b/c/x"].shape == (4,)


def _v2_groups(store: Store) -> None:
    root = zarr.open_group(store, mode="a", zarr_format=2, attributes={"title": "root"})
    group = root.create_group("g", attributes={"a": 1})
    group.create_array("x", shape=(5,), chunks=(2,), dtype="i2", attributes={"units": "m"})[:] = 3
    root.create_group("empty")


def _change_v2_groups(store: Store) -> None:
    root = zarr.open_group(store, mode="r+", zarr_format=2)
    root["g/x"].attrs["units"] = "km"
    root["g"].attrs.put({})
    del root["empty"]


def _v2_consolidated(store: Store) -> None:
    zarr.consolidate_metadata(WrapperStore(store), zarr_format=2)
    assert zarr.open_group(WrapperStore(store), mode="r", zarr_format=2)["g/x"].attrs["units"] == "m"


def _both_formats(store: Store) -> None:
    zarr.open_group(store, mode="a", zarr_format=3, path="both", attributes={"format": 3})
    zarr.open_group(store, mode="a", zarr_format=2, path="both", attributes={"format": 2})


def _rectilinear(store: Store) -> None:
    array = zarr.create_array(store, name="r", shape=(10, 6), chunks=[[2, 5, 3], [4, 2]], dtype="i4")
    array[:] = numbers(10, 6)


def _change_rectilinear(store: Store) -> None:
    array = zarr.open_array(store, path="r", mode="r+")
    array[1:3, 3:5] = 77
    array[7:] = 0
    array.resize((6, 6))
    array.resize((12, 6))


def _structured() -> np.ndarray[Any, Any]:
    value = np.zeros((6, 3), dtype=[("a", "<i4"), ("b", "<f8"), ("c", "S3")])
    value["a"], value["b"], value["c"] = numbers(6, 3), numbers(6, 3) / 7, b"xyz"
    return value


_TEXTS = np.array(["", "a", "ü\U0001f40d", "long " * 100, "b"], dtype=object)
_SHARDS = {"chunks": (2, 2), "shards": (4, 4)}
_ZERO = np.zeros((0, 5), dtype="i4")

PROGRAMS: dict[str, Program] = {
    "default-slash": _changed("a", numbers(9, 7), chunks=(2, 3)),
    "default-dot": _changed(
        "a", numbers(9, 7), chunks=(2, 3), chunk_key_encoding={"name": "default", "separator": "."}
    ),
    "v2-dot-in-v3": _changed("a", numbers(9, 7), chunks=(2, 3), chunk_key_encoding={"name": "v2", "separator": "."}),
    "v2-slash-in-v3": _changed("a", numbers(9, 7), chunks=(2, 3), chunk_key_encoding={"name": "v2", "separator": "/"}),
    "custom-encoding": _changed("a", numbers(9, 7), chunks=(2, 3), chunk_key_encoding=ReversedEncoding()),
    "one-way-encoding": _changed("a", numbers(9, 7), chunks=(2, 3), chunk_key_encoding=OneWayEncoding()),
    "array-at-the-root": _changed("", numbers(9, 7), chunks=(2, 3)),
    "array-deep-down": _changed("some/where/deep", numbers(9, 7), chunks=(2, 3)),
    "sharded": _changed("a", numbers(9, 7), **_SHARDS),
    "sharded-uncompressed": _changed("a", numbers(9, 7), **_SHARDS, compressors=None),
    "empty-chunks-written": _changed("a", numbers(9, 7), chunks=(2, 3), config={"write_empty_chunks": True}),
    "packed-chunks": _changed("a", numbers(90, 70, dtype="f8"), chunks=(16, 16), compressors=None),
    "own-objects": _changed("a", numbers(600, 300, dtype="f8"), chunks=(512, 256), compressors=None),
    "big-endian": _filled("a", numbers(6, 4, dtype=">f4"), chunks=(4, 4)),
    "fill-value": [
        *_filled("a", numbers(6, 4), chunks=(2, 2), fill_value=9),
        write("a", (slice(0, 3), slice(0, 3)), 9),
        resize("a", 9, 9),
    ],
    "scalar": [*_filled("s", np.array(7.5), chunks=()), write("s", (), 8.5), write("s", (), 0.0)],
    "scalar-v2": [*_filled("s", np.array(7.5), chunks=(), zarr_format=2), write("s", (), 8.5)],
    "zero-size": [*_filled("z", _ZERO, chunks=(2, 2)), append("z", numbers(3, 5)), resize("z", 0, 5)],
    "all-zero-sizes": [create("z", shape=(0, 0), dtype="i4", chunks=(2, 2)), resize("z", 3, 3), resize("z", 0, 3)],
    "strings": [*_filled("t", _TEXTS, chunks=(2,), dtype="str"), write("t", slice(1, 3), np.array(["x", "y"]))],
    "fixed-strings": _filled("t", np.array(["a", "bc", "def"]), chunks=(2,)),
    "datetimes": _filled("t", np.arange(5).astype("M8[s]"), chunks=(2,)),
    "structured": [*_filled("r", _structured(), chunks=(4, 2)), write("r", slice(1, 3), _structured()[3:5])],
    "groups": [_groups, _change_groups, _array_over_group, _group_over_array],
    "consolidated": [_groups, _consolidated, _change_groups],
    "overwritten": [
        *_filled("a", numbers(9, 7), chunks=(2, 3)),
        *_filled("a", numbers(4, 4, 4), chunks=(2, 3, 4), overwrite=True),
        *_filled("a", numbers(5), chunks=(2,), overwrite=True, zarr_format=2),
    ],
    "v2-dot": _changed("a", numbers(9, 7), chunks=(2, 3), zarr_format=2),
    "v2-slash": _changed(
        "a", numbers(9, 7), chunks=(2, 3), zarr_format=2, chunk_key_encoding={"name": "v2", "separator": "/"}
    ),
    "v2-at-the-root": _changed("", numbers(9, 7), chunks=(2, 3), zarr_format=2),
    "v2-fortran": _filled("a", numbers(5, 4), chunks=(2, 3), zarr_format=2, order="F"),
    "v2-strings": _filled("t", _TEXTS, chunks=(2,), dtype="str", zarr_format=2),
    "v2-groups": [_v2_groups, _v2_consolidated, _change_v2_groups],
    "both-formats": [_both_formats],
}

RECTILINEAR = "rectilinear_chunks" in zarr.config.get("array")
"""Whether this release of zarr has rectilinear grids."""

if RECTILINEAR:
    PROGRAMS["rectilinear"] = [_rectilinear, _change_rectilinear]
