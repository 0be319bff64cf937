"""Chunk grid and chunk keys of an array, from its metadata documents.

Only the members that the store needs are parsed and checked; the documents are stored byte for byte.
"""

from __future__ import annotations

import json
from functools import cached_property, lru_cache
from operator import lt
from typing import Any

from arraystore._runtime.values import dataclass
from arraystore.errors import InvalidInputError

DOCUMENT_NAMES = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")

_indices: dict[str, int] = {}
"""Cache of valid chunk indices by their canonical string."""

_INDICES_LIMIT = 1 << 17

known_index = _indices.__getitem__
"""Return a chunk index that `parse_index` has cached; raises `KeyError` for any other string."""


def parse_index(text: str) -> int:
    """Parse a chunk index, ASCII digits without leading zeros; raises `ValueError` for any other string."""
    value = _indices.get(text)
    if value is None:
        if not (text.isascii() and text.isdigit()) or (text[0] == "0" and text != "0") or len(text) > 19:
            raise ValueError(f"{text[:40]!r} is not a valid chunk index")
        value = int(text)
        if len(_indices) < _INDICES_LIMIT:
            _indices[text] = value
    return value


@dataclass(frozen=True)
class ArrayInfo:
    """Shape, chunk grid and chunk keys of an array."""

    shape: tuple[int, ...]
    """Shape in items."""
    grid: tuple[int, ...]
    """Number of chunks along each dimension."""
    encodings: tuple[tuple[str, str], ...]
    """Chunk key encodings: name (``default`` or ``v2``) and separator; two if the documents of both Zarr versions exist
    and disagree."""
    foreign: Any = None
    """Chunk key encoding of zarr, for any other name."""

    @cached_property
    def chunk_prefixes(self) -> tuple[str, ...]:
        """Prefix of chunk keys relative to the array, for each encoding."""
        return tuple("c" + separator if name == "default" else "" for name, separator in self.encodings)

    def parse(self, key: str) -> tuple[int, ...] | None:
        """Parse a relative key into chunk coordinates, possibly outside of the grid; None for other keys."""
        for name, separator in self.encodings:
            rest = key
            if name == "default":
                if not self.grid:
                    if key == "c":
                        return ()
                    continue
                if not key.startswith("c" + separator):
                    continue
                rest = key[2:]
            elif not self.grid:
                if key == "0":
                    return ()
                continue
            parts = rest.split(separator)
            if len(parts) != len(self.grid):
                continue
            try:
                return tuple([parse_index(part) for part in parts])
            except ValueError:
                continue
        return self._parse_foreign(key) if self.foreign is not None else None

    def _parse_foreign(self, key: str) -> tuple[int, ...] | None:
        try:
            coords = tuple(int(c) for c in self.foreign.decode_chunk_key(key))
            same = len(coords) == len(self.grid) and self.foreign.encode_chunk_key(coords) == key
        except (NotImplementedError, ValueError, TypeError, KeyError, IndexError):
            return None
        return coords if same and all(c >= 0 for c in coords) else None

    def key(self, coords: tuple[int, ...]) -> str:
        """Return the key of a chunk, relative to the array."""
        if self.foreign is not None:
            return str(self.foreign.encode_chunk_key(coords))
        name, separator = self.encodings[0]
        text = separator.join(map(str, coords))
        if name == "default":
            return "c" + separator + text if coords else "c"
        return text if coords else "0"

    def inside(self, coords: tuple[int, ...]) -> bool:
        """Return whether a chunk is in the grid."""
        return all(map(lt, coords, self.grid))


def _load(document: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(document)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def node_type(name: str, document: bytes) -> str | None:
    """Return ``array`` or ``group`` for a document that defines a node, None for any other bytes."""
    if name == ".zgroup":
        value = _load(document)
        return "group" if value is not None and value.get("zarr_format") == 2 else None
    if name == ".zarray":
        value = _load(document)
        return "array" if value is not None and value.get("zarr_format") == 2 and _parsed_v2(value) else None
    if name != "zarr.json":
        return None
    value = _load(document)
    if value is None or value.get("zarr_format") != 3:
        return None
    if value.get("node_type") == "group":
        return "group"
    return "array" if value.get("node_type") == "array" and _parsed_v3(value) else None


def array_info(documents: dict[str, bytes]) -> ArrayInfo:
    """Parse the documents of an array; raises `InvalidInputError` if they do not define one."""
    infos: list[ArrayInfo] = []
    if (document := documents.get("zarr.json")) is not None:
        info = _cached_v3(document) if len(document) <= _CACHED_BYTES else None
        info = info or _info_v3(document)  # an encoding registered meanwhile may be needed
        if info is not None:
            infos.append(info)
    if ".zarray" in documents and (value := _load(documents[".zarray"])) is not None:
        info = _parsed_v2(value)
        if info is not None:
            infos.append(info)
    if not infos:
        raise InvalidInputError("the metadata does not describe an array that this release can read")
    first = infos[0]
    if len(infos) == 2 and infos[1].encodings != first.encodings:
        return ArrayInfo(first.shape, first.grid, first.encodings + infos[1].encodings, first.foreign)
    return first


def _info_v3(document: bytes) -> ArrayInfo | None:
    value = _load(document)
    return None if value is None else _parsed_v3(value)


_CACHED_BYTES = 4096
_cached_v3 = lru_cache(maxsize=1024)(_info_v3)
"""Parsed documents, needed at each access to an array and each time a log is applied."""


def _sizes(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > 64:
        return None
    if not all(type(item) is int and 0 <= item < 1 << 63 for item in value):
        return None
    return tuple(value)


def _regular_grid(shape: tuple[int, ...], chunks: Any) -> tuple[int, ...] | None:
    sizes = _sizes(chunks)
    if sizes is None or len(sizes) != len(shape):
        return None
    # zarr writes chunk sides of 0 for empty dimensions
    return tuple([0 if c == 0 else -(-s // c) for s, c in zip(shape, sizes, strict=True)])


def _rectilinear_grid(shape: tuple[int, ...], configuration: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the grid of chunks of varying sides, which zarr supports only if enabled, or not at all."""
    if configuration.get("kind") != "inline":
        return None
    sides = configuration.get("chunk_shapes")
    if not isinstance(sides, list) or len(sides) != len(shape):
        return None
    grid: list[int] = []
    for extent, side in zip(shape, sides, strict=True):
        # A bare size is repeated as often as necessary.
        count = _chunks_in_runs(extent, side if isinstance(side, list) else [[side, max(extent, 1)]])
        if count is None:
            return None
        grid.append(count)
    return tuple(grid)


def _chunks_in_runs(extent: int, runs: list[Any]) -> int | None:
    """Return the number of chunks within the extent of a dimension; None if they do not cover it.

    A run is the size of one chunk, or a pair of size and count.  Chunks may lie beyond the end of a shrunk array.
    """
    covered = count = 0
    for run in runs:
        pair = _sizes(run if isinstance(run, list) else [run, 1])
        if pair is None or len(pair) != 2 or 0 in pair:
            return None
        size, repeated = pair
        count += min(-(-max(extent - covered, 0) // size), repeated)
        covered += size * repeated
    return count if runs and covered >= extent else None


def _parsed_v2(value: dict[str, Any]) -> ArrayInfo | None:
    shape = _sizes(value.get("shape"))
    separator = value.get("dimension_separator", ".")
    if shape is None or separator not in (".", "/"):
        return None
    grid = _regular_grid(shape, value.get("chunks"))
    return None if grid is None else ArrayInfo(shape, grid, (("v2", separator),))


def _grid_v3(shape: tuple[int, ...], name: Any, configuration: Any) -> tuple[int, ...] | None:
    if not isinstance(configuration, dict):
        return None
    if name == "regular":
        return _regular_grid(shape, configuration.get("chunk_shape"))
    return _rectilinear_grid(shape, configuration) if name == "rectilinear" else None


def _parsed_v3(value: dict[str, Any]) -> ArrayInfo | None:
    shape = _sizes(value.get("shape"))
    grid_document = value.get("chunk_grid")
    if shape is None or not isinstance(grid_document, dict):
        return None
    grid = _grid_v3(shape, grid_document.get("name"), grid_document.get("configuration"))
    if grid is None:
        return None
    encoding = value.get("chunk_key_encoding")
    if isinstance(encoding, str):
        encoding = {"name": encoding}
    if not isinstance(encoding, dict):
        return None
    name = encoding.get("name")
    configuration = encoding.get("configuration") or {}
    if name in ("default", "v2") and isinstance(configuration, dict):
        separator = configuration.get("separator", "/" if name == "default" else ".")
        return ArrayInfo(shape, grid, ((name, separator),)) if separator in (".", "/") else None
    foreign = _encoding_by_zarr(encoding)
    return None if foreign is None else ArrayInfo(shape, grid, (), foreign)


def _encoding_by_zarr(encoding: dict[str, Any]) -> Any:
    try:
        from zarr.core.chunk_key_encodings import ChunkKeyEncoding
        from zarr.registry import get_chunk_key_encoding_class

        key_encoding = get_chunk_key_encoding_class(encoding["name"]).from_dict(encoding)
    except (ImportError, ValueError, TypeError, KeyError):
        return None
    return key_encoding if isinstance(key_encoding, ChunkKeyEncoding) else None
