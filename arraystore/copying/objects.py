"""Copying objects unchanged from one storage to another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

from arraystore._format.envelope import Kind, decode_object
from arraystore._runtime.concurrency import ByteBudget, MiB, for_each
from arraystore.copying.report import CopyCounter
from arraystore.errors import FormatError, ObjectNotFoundError
from arraystore.storage.protocol import BytesLike, ObjectInfo, Storage, holds

__all__ = ["ObjectCopier", "check_envelope"]

_LARGE = 64 * MiB
"""Objects above this many bytes are read in parts, in parallel, and written in one piece."""

_PART = 16 * MiB
_ROOM = 256 * MiB
"""Bytes of objects in memory at a time; a larger object is copied alone."""

_AT_A_TIME = 16
_KIND_AT = 5
_UNDER_IDS = (
    Kind.CHECKPOINT, Kind.MANIFEST, Kind.TRANSACTION, Kind.SURVIVORS, Kind.COLLECTION, Kind.STATISTICS
)  # fmt: skip
"""Kinds of objects whose checksum covers the id in their key."""


def check_envelope(key: str, data: BytesLike) -> None:
    """Check the envelope and the checksum of an object of metadata; raise `FormatError`."""
    try:
        kind = Kind(data[_KIND_AT]) if len(data) > _KIND_AT else Kind.REPOSITORY
    except ValueError:
        raise FormatError(key, f"unknown kind of object {data[_KIND_AT]}") from None
    decode_object(key, kind, data, key if kind in _UNDER_IDS else "")


class ObjectCopier:
    """Copies objects concurrently."""

    def __init__(self, source: Storage, target: Storage, counter: CopyCounter) -> None:
        self._source = source
        self._target = target
        self._counter = counter
        self._room = ByteBudget(_ROOM)

    async def copy_prefix(
        self,
        prefix: str,
        wanted: Callable[[str], bool] | None = None,
        *,
        checked: bool = True,
        at_a_time: int = _AT_A_TIME,
        absent: Callable[[str, BytesLike], None] | None = None,
    ) -> None:
        """Copy all objects that start with a prefix, but those that the target has in the same size."""
        await self.copy(self.missing(prefix, wanted), checked=checked, at_a_time=at_a_time, absent=absent)

    async def copy(
        self,
        objects: Iterable[ObjectInfo] | AsyncIterator[ObjectInfo],
        *,
        checked: bool,
        at_a_time: int = _AT_A_TIME,
        absent: Callable[[str, BytesLike], None] | None = None,
    ) -> None:
        """Copy objects."""

        async def copy(info: ObjectInfo) -> None:
            async with self._room.take(info.size):
                data = await self._read(info, checked=checked)
                if data is None:
                    return
                if absent is None:
                    await self._target.put(info.key, data)
                elif not (
                    await self._target.put_if_absent(info.key, data) or await holds(self._target, info.key, data)
                ):
                    absent(info.key, data)
                self._counter.copied(info.size)

        await for_each(objects, copy, at_a_time)

    async def missing(self, prefix: str, wanted: Callable[[str], bool] | None = None) -> AsyncIterator[ObjectInfo]:
        """List objects that the target lacks, by walking both sorted listings side by side."""
        there = _flat(self._target, prefix)
        at = await anext(there, None)
        async for info in _flat(self._source, prefix):
            while at is not None and at.key < info.key:
                at = await anext(there, None)
            if wanted is not None and not wanted(info.key):
                continue
            if at == info:
                self._counter.skip()
            else:
                yield info

    async def _read(self, info: ObjectInfo, *, checked: bool) -> BytesLike | None:
        """Read an object; return None if it is left out."""
        try:
            data = await (self._source.get(info.key) if info.size <= _LARGE else self._read_parts(info))
        except ObjectNotFoundError:
            self._counter.leave_out(info.key, "deleted at the source during the copy")
            return None
        if len(data) != info.size:
            self._counter.leave_out(info.key, f"has {len(data)} bytes, and is listed with {info.size}")
            return None
        if checked:
            try:
                check_envelope(info.key, data)
            except FormatError as error:
                self._counter.leave_out(info.key, f"damaged at the source: {error.reason}")
                return None
        return data

    async def _read_parts(self, info: ObjectInfo) -> BytesLike:
        whole = bytearray(info.size)

        async def read(start: int) -> None:
            stop = min(start + _PART, info.size)
            whole[start:stop] = (await self._source.get_ranges(info.key, [(start, stop)]))[0]

        await for_each(range(0, info.size, _PART), read, 4)
        return whole


async def _flat(storage: Storage, prefix: str) -> AsyncIterator[ObjectInfo]:
    async for page in storage.list(prefix):
        for info in page:
            yield info
