"""Arrays of references: their metadata, columns of byte ranges, and chunks that are inlined."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.chunk_key_encodings import DefaultChunkKeyEncoding
from zarr.core.metadata.v3 import ArrayV3Metadata

from arraystore._chunks.virtual_checksums import Checksum
from arraystore._format.node import NodeKind, ancestors
from arraystore._format.types import Int64s
from arraystore._format.zarr_metadata import array_info
from arraystore._runtime import run
from arraystore._runtime.concurrency import bounded
from arraystore._session.append_undo import all_or_none
from arraystore._session.fork import ForkSession
from arraystore._session.keys import join
from arraystore._session.session import Session
from arraystore._session.virtual_references import write_virtual_references
from arraystore.errors import AlreadyExistsError
from arraystore.virtual.errors import VirtualizeError

Checksums = Checksum | Mapping[str, Checksum]
AnySession = Session | ForkSession

MEANING = ("units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
"""Attributes that say what numbers mean: they must be equal where arrays are joined."""
_MOST_AT_ONCE = 16


@dataclass(frozen=True)
class VirtualArray:
    """An array whose chunks are virtual or inlined; those that are neither are missing."""

    metadata: ArrayV3Metadata
    """Its metadata, with the names of its dimensions and its attributes."""
    grid: tuple[int, ...]
    """Count of chunks along each dimension."""
    locations: Sequence[str] | npt.NDArray[Any]
    """URL of each chunk in row-major order; empty for one that is not virtual."""
    offsets: npt.NDArray[Any]
    lengths: npt.NDArray[Any]
    inlined: Mapping[tuple[int, ...], bytes] = field(default_factory=dict)
    """Encoded chunks by their coordinates."""
    coords: Int64s | None = None
    """Coordinates of the chunks that are virtual; None for all chunks of the grid in row-major order."""


@contextmanager
def all_nodes_or_none(session: AnySession, paths: Iterable[str], dim: str | None) -> Iterator[None]:
    """Restore nodes at some paths, and their ancestors, if the block fails; arrays may grow along the dimension."""
    every = dict.fromkeys(each for path in paths for each in (*reversed(list(ancestors(path))), path))
    alone = session.append_lock if isinstance(session, Session) else nullcontext()
    with alone, all_or_none(session.hierarchy, every, dim):
        yield


def write_array(
    session: AnySession, path: str, array: VirtualArray, append_dim: str | None, *, checksum: Checksums, validate: bool
) -> None:
    """Create an array, or append to it, and write its references."""
    existing = session.hierarchy.node(path)
    if append_dim is None or existing is None:
        if existing is not None:
            raise AlreadyExistsError(
                f"there is {path!r} already: choose another group, delete it first, or pass append_dim to append"
            )
        _write_metadata(session, path, array.metadata)
        first = (0,) * len(array.grid)
    else:
        if existing.kind != NodeKind.ARRAY:
            raise VirtualizeError(f"{path!r} is a group, to which no array can be appended")
        first = _grow(session, path, array.metadata, append_dim)
    _write_chunks(session, path, array, first, checksum, validate)


def metadata_documents(metadata: ArrayV3Metadata) -> dict[str, Buffer]:
    """Return the documents of an array, by name, whose chunks have keys of Zarr's default form."""
    plain = replace(metadata, chunk_key_encoding=DefaultChunkKeyEncoding(separator="/"))
    return plain.to_buffer_dict(default_buffer_prototype())


def _write_metadata(session: AnySession, path: str, metadata: ArrayV3Metadata) -> None:
    documents = metadata_documents(metadata)
    array_info({name: document.to_bytes() for name, document in documents.items()})  # or they would be plain files
    for name, document in documents.items():
        session.store.set_sync(join(path, name), document)


def _read_metadata(session: AnySession, path: str) -> ArrayV3Metadata:
    document = session.hierarchy.document(join(path, "zarr.json"))
    if document is None:
        raise VirtualizeError(f"{path!r} is an array of Zarr v2: references are appended to arrays of Zarr v3 only")
    return ArrayV3Metadata.from_dict(json.loads(document))


def _grow(session: AnySession, path: str, metadata: ArrayV3Metadata, dim: str) -> tuple[int, ...]:
    """Grow an array by another one; return the coordinates of the first chunk that is added."""
    existing = _read_metadata(session, path)
    dims = existing.dimension_names or ()
    axis = dims.index(dim)
    _check_alike(path, existing, metadata, axis)
    length, side = existing.shape[axis], existing.chunks[axis]
    if length % side:
        raise VirtualizeError(
            f"array {path!r} ends within a chunk: its {length} values along {dim!r} are no multiple of {side}, and "
            "virtual chunks cannot be joined; append to arrays that end at the boundary of a chunk"
        )
    grown = length + metadata.shape[axis]
    _write_metadata(
        session, path, replace(existing, shape=(*existing.shape[:axis], grown, *existing.shape[axis + 1 :]))
    )
    return tuple(length // side if each == axis else 0 for each in range(len(existing.shape)))


def _check_alike(path: str, existing: ArrayV3Metadata, added: ArrayV3Metadata, axis: int) -> None:
    """Refuse metadata under which references would be decoded wrongly, or numbers mean something else."""
    one, other = _comparable(existing, axis), _comparable(added, axis)
    differing = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    if differing:
        name = differing[0]
        raise VirtualizeError(
            f"what is to be appended to array {path!r} differs in {', '.join(differing)}: {name} is "
            f"{other.get(name)!r} and must be {one.get(name)!r}; write it to another group, or copy the files instead "
            "(arraystore ingest)"
        )


def _comparable(metadata: ArrayV3Metadata, axis: int) -> dict[str, Any]:
    values = dict(ArrayV3Metadata.from_dict(_plain(metadata)).to_dict())
    attributes: Any = values.pop("attributes", None) or {}
    shape: Any = values.pop("shape")
    values.pop("chunk_key_encoding", None)
    values["shape"] = tuple(None if each == axis else side for each, side in enumerate(shape))
    values["dimension_names"] = tuple(metadata.dimension_names or ())
    values["codecs"] = json.dumps(values["codecs"], default=str, sort_keys=True)
    values["fill_value"] = json.dumps(values["fill_value"], default=str)
    return values | {name: attributes[name] for name in MEANING if name in attributes}


def _plain(metadata: ArrayV3Metadata) -> Any:
    documents = metadata.to_buffer_dict(default_buffer_prototype())
    return json.loads(documents["zarr.json"].to_bytes())


def _write_chunks(
    session: AnySession, path: str, array: VirtualArray, first: tuple[int, ...], checksum: Checksums, validate: bool
) -> None:
    if array.coords is not None:
        node = session.hierarchy.node(path)
        assert node is not None
        write_virtual_references(
            session.hierarchy,
            session.context.containers,
            node,
            array.coords + np.array(first, dtype=np.int64),
            array.locations,
            array.offsets,
            array.lengths,
            validate,
            checksum,
        )
    elif len(array.locations):
        session.store.set_virtual_refs_arr(
            path,
            array.grid,
            array.locations,
            array.offsets,
            array.lengths,
            validate_containers=validate,
            arr_offset=first if any(first) else None,
            checksum=checksum,
        )
    if array.inlined:
        run(_write_inlined(session, path, array.inlined, first))


async def _write_inlined(
    session: AnySession, path: str, chunks: Mapping[tuple[int, ...], bytes], first: tuple[int, ...]
) -> None:
    buffer = default_buffer_prototype().buffer

    async def write(item: tuple[tuple[int, ...], bytes]) -> None:
        place = "/".join(["c", *(str(at + low) for at, low in zip(item[0], first, strict=True))])
        await session.store.set(join(path, place), buffer.from_bytes(item[1]))

    await bounded(write, chunks.items(), _MOST_AT_ONCE)
