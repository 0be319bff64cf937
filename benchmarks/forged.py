"""Repositories of millions of references that take seconds to make: their packs are holes in files, or only listed."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import zarr

import arraystore
from arraystore._chunks.pack_writer import pack_key
from arraystore._format.ids import ID_BYTES
from arraystore._format.pack import padded_size
from arraystore.storage import Storage
from arraystore.storage.protocol import ObjectInfo
from arraystore.storage.wrapper import WrapperStorage
from benchmarks.contenders import OURS
from benchmarks.places import Place

__all__ = ["CHUNK", "PACKED", "PER_PACK", "ListedPacks", "forge"]

CHUNK = 4096
PACKED: int = padded_size(CHUNK)
"""Bytes of a pack that a chunk takes, with its checksum."""

PER_PACK = 2048
"""Chunks of 4 KiB in a pack of 8 MiB."""

_PAGE = 1000
_PER_MILLISECOND = 100
_YESTERDAY = time.time_ns() // 1_000_000 - 86_400_000
"""Milliseconds since 1970.  Ids that are made as fast as these are ahead of the clock, where no collection looks."""

_PREFIX = "chunks/"


class ListedPacks(WrapperStorage):
    """A storage that lists packs besides which it does not have.

    Parameters
    ----------
    inner
        Has everything else.
    ids
        Of the packs, one after the other, ascending.
    size
        Bytes of each.
    """

    def __init__(self, inner: Storage, ids: bytes, size: int) -> None:
        super().__init__(inner)
        self._ids = ids
        self._size = size

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects in order of their keys; all that begins with ``chunks/`` is made up."""
        if prefix != _PREFIX:
            async for page in super().list(prefix, start_after):
                yield page
            return
        for page in _pages(self._ids, self._size):
            listed = [info for info in page if info.key > start_after]
            if listed:
                yield listed


def _pages(ids: bytes, size: int) -> Iterator[list[ObjectInfo]]:
    step = _PAGE * ID_BYTES
    for start in range(0, len(ids), step):
        part = ids[start : start + step]
        yield [ObjectInfo(pack_key(part[at : at + ID_BYTES]), size) for at in range(0, len(part), ID_BYTES)]


def forge(place: Place, arrays: int, references: int, per_pack: int = PER_PACK, *, files: bool = True) -> bytes:
    """Make a repository of ours with references to chunks of 4 KiB, one commit an array.

    Parameters
    ----------
    place
        A local one.
    arrays, references
        How many arrays, and how many references each of them has.
    per_pack
        How many chunks each pack holds.
    files
        Whether the packs are there, as files without content; if not, only `ListedPacks` shows them.

    Returns
    -------
    bytes
        Ids of the packs, one after the other.
    """
    repository: arraystore.Repository = OURS.create(place)
    ids: list[bytes] = []
    for number in range(arrays):
        ids += _add_array(repository, f"a{number}", references, per_pack, len(ids))
    repository.wait_for_maintenance()
    if files:
        _write_packs(place.directory, ids, per_pack * PACKED)
    return b"".join(ids)


def _new_id(number: int) -> bytes:
    """Make the id of a pack of some time yesterday; the larger the number, the larger the id."""
    moment = _YESTERDAY + number // _PER_MILLISECOND
    return moment.to_bytes(6, "big") + (number % _PER_MILLISECOND).to_bytes(2, "big") + os.urandom(4)


def _add_array(repository: arraystore.Repository, name: str, references: int, per_pack: int, made: int) -> list[bytes]:
    session = repository.writable_session("main")
    zarr.create_array(
        session.store, name=name, shape=(references * CHUNK,), chunks=(CHUNK,), dtype="uint8", compressors=None
    )
    changes = session.hierarchy.changes
    node = session.hierarchy.node(name)
    if changes is None or node is None:
        raise AssertionError(f"a session that is open for writing has no array {name}")
    ids = [_new_id(made + number) for number in range(-(-references // per_pack))]
    first = changes.packs.adopt(ids)
    cells = np.arange(references, dtype=np.int64)
    changes.array(node).table.put_many(
        cells[:, np.newaxis],
        first + cells // per_pack,
        cells % per_pack * PACKED,
        np.full(references, CHUNK, dtype=np.int64),
    )
    session.commit(f"{references:,} references")
    return ids


def _write_packs(directory: Path, ids: list[bytes], size: int) -> None:
    for identifier in ids:
        path = directory / pack_key(identifier)
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)
