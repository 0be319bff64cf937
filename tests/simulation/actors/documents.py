"""Metadata documents of small Zarr v3 arrays and groups, and keys of their chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from zarr.core.buffer import default_buffer_prototype
from zarr.core.metadata import ArrayV3Metadata

__all__ = [
    "DOCUMENT",
    "UNIQUE_DIMENSION",
    "Shape",
    "array_document",
    "chunk_key",
    "coordinate_document",
    "document_key",
    "edited",
    "group_document",
    "is_coordinate",
    "shape_of",
]

DOCUMENT = "zarr.json"
UNIQUE_DIMENSION = "event"
"""Of arrays of which the values must not repeat; no other array has it."""


@dataclass(frozen=True)
class Shape:
    """Shape of an array, and of its chunks, and the names of its dimensions."""

    items: tuple[int, ...]
    chunk: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def grid(self) -> tuple[int, ...]:
        """How many chunks there are along each dimension."""
        return tuple(-(-n // c) for n, c in zip(self.items, self.chunk, strict=True))


def group_document(attributes: Mapping[str, Any]) -> bytes:
    """Return the document of a group."""
    return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}, indent=2).encode()


def array_document(shape: Shape, attributes: Mapping[str, Any]) -> bytes:
    """Return the document of an array."""
    values = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape.items),
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(shape.chunk)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
        "attributes": dict(attributes),
        "dimension_names": list(shape.names),
    }
    return json.dumps(values, indent=2).encode()


def coordinate_document() -> bytes:
    """Return the document of an empty array of integers, as Zarr itself writes it."""
    values = json.loads(array_document(Shape((0,), (1,), (UNIQUE_DIMENSION,)), {}))
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}]
    values |= {"data_type": "int64", "fill_value": -1, "codecs": codecs}
    written = ArrayV3Metadata.from_dict(values).to_buffer_dict(default_buffer_prototype())
    return written[DOCUMENT].to_bytes()


def is_coordinate(document: bytes) -> bool:
    """Tell whether a document is that of an array of which the values must not repeat."""
    return bool(json.loads(document).get("dimension_names") == [UNIQUE_DIMENSION])


@lru_cache(maxsize=4096)
def shape_of(document: bytes) -> Shape | None:
    """Return the shape that the document of an array of bytes states; None if it is that of anything else."""
    values = json.loads(document)
    if values["node_type"] != "array" or values["data_type"] != "uint8":
        return None
    chunk = values["chunk_grid"]["configuration"]["chunk_shape"]
    return Shape(tuple(values["shape"]), tuple(chunk), tuple(values["dimension_names"]))


def edited(
    document: bytes, *, attributes: Mapping[str, Any] | None = None, items: Sequence[int] | None = None
) -> bytes:
    """Return a document with some attributes set, or another shape."""
    values = json.loads(document)
    if attributes is not None:
        values["attributes"].update(attributes)
    if items is not None:
        values["shape"] = list(items)
    return json.dumps(values, indent=2).encode()


def document_key(path: str) -> str:
    """Return the key of a node's document."""
    return f"{path}/{DOCUMENT}" if path else DOCUMENT


def chunk_key(path: str, coords: Sequence[int]) -> str:
    """Return the key of a chunk."""
    return "/".join([path, "c", *map(str, coords)])
