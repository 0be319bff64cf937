"""References of kerchunk, as JSON, as Parquet or as a mapping, made virtual chunks."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import fsspec
import numpy as np
import zarr
from virtualizarr.parsers.kerchunk.translator import from_kerchunk_refs
from xarray.backends.zarr import FillValueCoder
from zarr.core.metadata.v3 import ArrayV3Metadata

from arraystore._chunks.virtual_checksums import FROM_SOURCE
from arraystore._session.arguments import check_writable_session
from arraystore._session.keys import join
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.virtual import kerchunk_parquet
from arraystore.virtual.arrays import Checksums, VirtualArray, all_nodes_or_none, write_array
from arraystore.virtual.errors import VirtualizeError
from arraystore.virtual.inlined import decode_inline
from arraystore.virtual.locations import absolute_url, whole_lengths
from arraystore.virtual.reference_templates import resolved

__all__ = ["from_kerchunk"]

_LARGEST = 1 << 62

_DOCUMENTS = frozenset({".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json"})


def from_kerchunk(
    references: Mapping[str, Any] | str | os.PathLike[str],
    session: Session,
    *,
    group: str | None = None,
    checksum: Checksums = FROM_SOURCE,
    validate_containers: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write the references of kerchunk into a session, as groups and arrays of Zarr v3; nothing is committed.

    Arrays show the values that xarray shows through kerchunk's own engine.  If this fails, the session is as it was.

    Parameters
    ----------
    references
        Path or URL of a JSON file or of a directory of Parquet files, or what a JSON file has, as a mapping.
    session
        A writable session.
    group
        Path of the group that takes the root of the references; the root by default.
    checksum
        State that the sources must have whenever they are read, as for `ArrayStore.set_virtual_ref`; by default their
        present state, which one request for each of them looks up.
    validate_containers
        Whether all sources must be in a container of the repository.
    storage_options
        Options of fsspec for a URL.

    Raises
    ------
    AlreadyExistsError
        If an array exists.
    VirtualizeError
        If the references are malformed.
    VirtualReferenceError
        If a source is in no container, or its state cannot be looked up.
    """
    check_writable_session(session)
    tree = _read(references, storage_options or {})
    with all_nodes_or_none(session, [_below(group, path) for path in (*tree.groups, *tree.arrays)], None):
        for path, attributes in sorted(tree.groups.items()):
            found = zarr.open_group(session.store, path=_below(group, path), mode="a", zarr_format=3)
            if attributes:
                found.update_attributes(attributes)
        for path, array in sorted(tree.arrays.items()):
            chunks = tree.chunks(path, array, session)
            write_array(session, _below(group, path), chunks, None, checksum=checksum, validate=validate_containers)


def _below(group: str | None, path: str) -> str:
    return join((group or "").strip("/"), path) if path else (group or "").strip("/")


@dataclass(frozen=True)
class _ArrayDocuments:
    """The metadata of an array, and the form of its chunk keys."""

    metadata: ArrayV3Metadata
    separator: str
    prefix: str = ""


@dataclass(frozen=True)
class _Tree:
    """Groups and arrays of references, by path."""

    groups: dict[str, dict[str, Any]]
    arrays: dict[str, _ArrayDocuments]
    refs: Mapping[str, Any]
    parquet: kerchunk_parquet.Records | None = None
    _keys: dict[str, list[str]] = field(default_factory=dict)

    def chunks(self, path: str, array: _ArrayDocuments, session: Session) -> VirtualArray:
        """Return an array with its references."""
        if self.parquet is not None:
            return _with_lengths(self.parquet.array(path, array.metadata), session)
        return _with_lengths(_array_of(path, array, self._keys_by_array().get(path, []), self.refs), session)

    def _keys_by_array(self) -> dict[str, list[str]]:
        """Return the keys of chunks by the path of their array."""
        if not self._keys and self.refs:
            keys = defaultdict(list)
            for key in self.refs:
                name = key.rpartition("/")[2]
                if name in _DOCUMENTS:
                    continue
                above = key
                while above:
                    above = above.rpartition("/")[0]
                    if above in self.arrays:
                        keys[above].append(key)
                        break
            self._keys.update(keys)
        return self._keys


def _read(references: Mapping[str, Any] | str | os.PathLike[str], options: Mapping[str, Any]) -> _Tree:
    if isinstance(references, Mapping):
        return _tree(resolved(references))
    if not isinstance(references, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"references must be a mapping, a path or a URL, not {type(references).__name__}")
    url = os.fspath(references)
    filesystem, path = fsspec.url_to_fs(url, **options)
    if filesystem.isdir(path):
        records = kerchunk_parquet.Records.read(filesystem, path)
        return replace(_tree(records.documents), parquet=records)
    with filesystem.open(path, "rb") as file:
        try:
            content = json.load(file)
        except ValueError as error:
            raise VirtualizeError(f"{url!r} is not valid JSON of kerchunk: {error}") from None
    if not isinstance(content, dict):
        raise VirtualizeError(f"{url!r} is not valid JSON of kerchunk: it must be a mapping of keys to references")
    return _tree(resolved(content))


def _tree(refs: Mapping[str, Any]) -> _Tree:
    if not all(isinstance(key, str) for key in refs):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise VirtualizeError("the keys of references must be strings")
    groups: dict[str, dict[str, Any]] = {"": {}}
    arrays: dict[str, _ArrayDocuments] = {}
    for key in list(refs):
        path, _, name = key.rpartition("/")
        if name == ".zarray":
            attributes = _document(refs, join(path, ".zattrs"), {})
            arrays[path] = _from_v2(path, _document(refs, key), attributes)
        elif name == ".zgroup":
            groups[path] = _document(refs, join(path, ".zattrs"), {})
        elif name == "zarr.json":
            document = _document(refs, key)
            if document.get("node_type") == "array":
                arrays[path] = _from_v3(path, document)
            else:
                groups[path] = dict(document.get("attributes") or {})
    if not arrays and len(groups) == 1 and not groups[""]:
        raise VirtualizeError("the references have no array and no group: they need keys such as 'rain/.zarray'")
    return _Tree(groups, arrays, refs)


def _document(refs: Mapping[str, Any], key: str, default: dict[str, Any] | None = None) -> dict[str, Any]:
    value = refs.get(key, default)
    try:
        if isinstance(value, str | bytes):
            value = json.loads(decode_inline(value))
    except (ValueError, RecursionError) as error:
        raise VirtualizeError(f"the reference {key!r} must be a JSON document: {error}") from None
    if not isinstance(value, dict):
        raise VirtualizeError(f"the reference {key!r} must be a JSON document")
    return dict(value)


def _from_v2(path: str, document: dict[str, Any], attributes: dict[str, Any]) -> _ArrayDocuments:
    dims = attributes.pop("_ARRAY_DIMENSIONS", None)
    separator = document.get("dimension_separator") or "."
    try:
        metadata = from_kerchunk_refs(document | {"dimension_names": dims}, {})
    except (KeyError, TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise VirtualizeError(f"array {path!r} of the references has no counterpart in Zarr v3: {error}") from None
    masked = _as_mask(metadata, document.get("fill_value"), attributes)
    return _ArrayDocuments(replace(metadata, attributes=masked), separator)


def _as_mask(metadata: ArrayV3Metadata, fill: Any, attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes whose ``_FillValue`` masks what the fill value of Zarr v2 masks, as xarray keeps it in v3."""
    dtype = metadata.data_type.to_native_dtype()
    declared = attributes.pop("_FillValue", None) if dtype.kind in "fciub" else None
    value: Any = metadata.fill_value if fill is not None else declared
    if value is None or dtype.kind not in "fciub":
        return attributes
    try:
        number = dtype.type(value).item()
    except (TypeError, ValueError, OverflowError):
        return attributes
    return attributes | {"_FillValue": FillValueCoder.encode(number, dtype)}


def _from_v3(path: str, document: dict[str, Any]) -> _ArrayDocuments:
    try:
        metadata = ArrayV3Metadata.from_dict(document)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise VirtualizeError(f"array {path!r} of the references has metadata that is not valid: {error}") from None
    encoding: Any = metadata.chunk_key_encoding.to_dict()
    default = encoding["name"] == "default"
    separator = encoding.get("configuration", {}).get("separator") or ("/" if default else ".")
    return _ArrayDocuments(metadata, separator, "c" + separator if default else "")


def _array_of(path: str, array: _ArrayDocuments, keys: list[str], refs: Mapping[str, Any]) -> VirtualArray:
    """Return an array whose chunks are those of some keys."""
    start = len(join(path, "")) + len(array.prefix)
    ndim = len(array.metadata.shape)
    coords = _coords(path, [key[start:] for key in keys], array.separator, ndim)
    inlined: dict[tuple[int, ...], bytes] = {}
    rows, urls, offsets, lengths = [], [], [], []
    for row, value in enumerate(map(refs.__getitem__, keys)):
        if isinstance(value, str | bytes):
            inlined[tuple(coords[row].tolist())] = decode_inline(value)
            continue
        if not isinstance(value, list | tuple) or len(value) not in (1, 3) or value[0] is None:
            raise VirtualizeError(f"the reference {keys[row]!r} must be a string, [url] or [url, offset, length]")
        if not all(type(number) is int and 0 <= number < _LARGEST for number in value[1:]):
            raise VirtualizeError(f"offset and length of the reference {keys[row]!r} must be integers in 0..2**62")
        rows.append(row)
        urls.append(value[0])
        offsets.append(value[1] if len(value) == 3 else 0)
        lengths.append(value[2] if len(value) == 3 else -1)
    known = {url: absolute_url(url) for url in dict.fromkeys(urls)}
    return VirtualArray(
        array.metadata,
        grid_of(array.metadata),
        [known[url] for url in urls],
        np.array(offsets, dtype=np.int64),
        np.array(lengths, dtype=np.int64),
        inlined,
        coords[rows],
    )


def _coords(path: str, names: list[str], separator: str, ndim: int) -> Any:
    if not names or ndim == 0:
        return np.zeros((len(names), ndim), dtype=np.int64)
    try:
        numbers = np.array(separator.join(names).split(separator), dtype=np.int64)
        if separator.join(map(str, numbers.tolist())) == separator.join(names):  # "00" would be another name of "0"
            return numbers.reshape(len(names), ndim)
    except (ValueError, OverflowError):
        pass
    raise VirtualizeError(f"array {path!r} has chunk keys that are not {ndim} numbers, {names[0]!r} say")


def grid_of(metadata: ArrayV3Metadata) -> tuple[int, ...]:
    """Return the count of chunks along each dimension."""
    return tuple(-(-length // side) for length, side in zip(metadata.shape, metadata.chunks, strict=True))


def _with_lengths(array: VirtualArray, session: Session) -> VirtualArray:
    """Return an array with references to whole sources given their lengths."""
    unknown = array.lengths < 0
    if not unknown.any():
        return array
    locations = np.asarray(array.locations, dtype=np.dtypes.StringDType())
    wanted = list(dict.fromkeys(locations[unknown].tolist()))
    sizes = dict(zip(wanted, whole_lengths(session, wanted), strict=True))
    lengths = array.lengths.copy()
    lengths[unknown] = [sizes[url] for url in locations[unknown].tolist()]
    return replace(array, lengths=lengths)
