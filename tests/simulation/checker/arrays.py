"""What metadata documents say, read independently: kind of a node, shape, grid, and which key is which chunk."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

__all__ = ["DOCUMENTS", "Array", "array_of", "grown", "integers", "kind_of", "reads_alike", "same_json", "shape_only"]

DOCUMENTS = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"})
_ARRAYS = ("zarr.json", ".zarray")
_MEANING = frozenset(
    {"scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "units", "calendar", "_ARRAY_DIMENSIONS"}
)


@dataclass(frozen=True)
class Array:
    """An array with a regular grid.

    Parameters
    ----------
    shape, chunk
        In items.
    start, separator
        Of chunk keys, relative to the array; `start` is what stands before the first coordinate.
    """

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    start: str
    separator: str

    @property
    def grid(self) -> tuple[int, ...]:
        """How many chunks there are along each dimension."""
        return tuple([-(-s // c) if c else 0 for s, c in zip(self.shape, self.chunk, strict=True)])

    def key(self, coords: tuple[int, ...]) -> str:
        """Return the key of a chunk, relative to the array."""
        if not coords:
            return "c" if self.start else "0"
        return self.start + self.separator.join(map(str, coords))

    def coords(self, key: str) -> tuple[int, ...] | None:
        """Return the chunk that a key (relative to the array) names; None if it is that of no chunk."""
        if not self.shape:
            return () if key == ("c" if self.start else "0") else None
        parts = key.removeprefix(self.start).split(self.separator) if key.startswith(self.start) else []
        if len(parts) != len(self.shape) or not all(p.isascii() and p.isdigit() and str(int(p)) == p for p in parts):
            return None
        return tuple(map(int, parts))


@lru_cache(maxsize=4096)
def _parsed(document: bytes) -> dict[str, Any]:
    value = json.loads(document)
    if not isinstance(value, dict):
        raise ValueError("a metadata document that is no JSON object")
    return value


@lru_cache(maxsize=4096)
def _array(name: str, document: bytes) -> Array:
    value = _parsed(document)
    shape = tuple(value["shape"])
    if name == ".zarray":
        return Array(shape, tuple(value["chunks"]), "", value.get("dimension_separator", "."))
    if value["chunk_grid"]["name"] != "regular":
        raise ValueError("the checker knows regular grids only")
    encoding = value.get("chunk_key_encoding", {"name": "default"})
    default = encoding["name"] == "default"
    separator = (encoding.get("configuration") or {}).get("separator", "/" if default else ".")
    chunk = tuple(value["chunk_grid"]["configuration"]["chunk_shape"])
    return Array(shape, chunk, "c" + separator if default else "", separator)


def array_of(documents: Mapping[str, bytes]) -> Array:
    """Return what the documents of an array say of its chunks; raises ValueError or KeyError where they say nothing."""
    for name in _ARRAYS:
        if name in documents:
            return _array(name, documents[name])
    raise KeyError("an array without a document that makes it one")


def kind_of(documents: Mapping[str, bytes]) -> int:
    """Return 0 for the documents of a group, 1 for those of an array."""
    if "zarr.json" in documents:
        return {"group": 0, "array": 1}[_parsed(documents["zarr.json"])["node_type"]]
    return 1 if ".zarray" in documents else 0


def grown(documents: Mapping[str, bytes], axis: int, items: int) -> dict[str, bytes]:
    """Return the documents of an array that has become longer, as an append makes them."""
    changed = dict(documents)
    for name in _ARRAYS:
        if name in changed:
            value = json.loads(changed[name])
            value["shape"][axis] += items
            changed[name] = json.dumps(value, indent=2).encode()
    return changed


def shape_only(documents: Mapping[str, bytes], shape: tuple[int, ...]) -> dict[str, bytes]:
    """Return the documents with another shape, unchanged where they have it already."""
    changed = dict(documents)
    for name in _ARRAYS:
        if name in changed and tuple(_parsed(changed[name])["shape"]) != shape:
            value = json.loads(changed[name])
            value["shape"] = list(shape)
            changed[name] = json.dumps(value, indent=2).encode()
    return changed


def same_json(first: bytes, second: bytes) -> bool:
    """Tell whether two documents are the same, or the same JSON with members in the same order."""
    if first == second:
        return True
    try:
        return json.dumps(_parsed(first)) == json.dumps(_parsed(second))
    except ValueError:
        return False


def _meaning(name: str, document: bytes | None) -> Any:
    """Return what of a document decides how chunks become values, but for the shape."""
    if document is None:
        return {}
    value = dict(_parsed(document))
    attributes = value if name == ".zattrs" else value.pop("attributes", {})
    meaning = {k: v for k, v in attributes.items() if k in _MEANING}
    if name == ".zattrs":
        return meaning
    value.pop("shape", None)
    value.pop("consolidated_metadata", None)
    return [value, meaning]


def reads_alike(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> bool:
    """Tell whether every chunk is read as before: an array only grew, or got other plain attributes."""
    for name in ("zarr.json", ".zarray", ".zattrs"):
        old, new = before.get(name), after.get(name)
        if old != new and json.dumps(_meaning(name, old), sort_keys=True) != json.dumps(
            _meaning(name, new), sort_keys=True
        ):
            return False
    old_shape, new_shape = array_of(before).shape, array_of(after).shape
    return len(old_shape) == len(new_shape) and all(a <= b for a, b in zip(old_shape, new_shape, strict=True))


def integers(chunks: Iterable[bytes]) -> set[int]:
    """Return the values of chunks of integers of 64 bits."""
    return {value for data in chunks for (value,) in struct.iter_unpack("<q", data)}
