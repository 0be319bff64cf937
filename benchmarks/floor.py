"""A store that does nothing but keep buffers in a dict, to tell zarr's own time from a store's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype

__all__ = ["DictStore"]


def _part(value: Buffer, byte_range: ByteRequest | None) -> Buffer:
    match byte_range:
        case None:
            return value
        case RangeByteRequest(start, end):
            return value[start:end]
        case OffsetByteRequest(offset):
            return value[offset:]
        case SuffixByteRequest(suffix):
            return value[-suffix:]


class DictStore(Store):
    """The least that a store can do, with the synchronous methods that zarr's fused pipeline looks for."""

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, values: dict[str, Buffer] | None = None, *, read_only: bool = False) -> None:
        super().__init__(read_only=read_only)
        self._is_open = True
        self._values: dict[str, Buffer] = {} if values is None else values

    def with_read_only(self, read_only: bool = False) -> DictStore:
        """The same values through another store object."""
        return DictStore(self._values, read_only=read_only)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = Store.__hash__

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Look up a value, on the caller's thread."""
        value = self._values.get(key)
        return None if value is None else _part(value, byte_range)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Keep a value as it is; a real store has to copy it, since its bytes may change after the call."""
        self._values[key] = value

    def delete_sync(self, key: str) -> None:
        """Forget a value."""
        self._values.pop(key, None)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        return self.get_sync(key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [self.get_sync(key, byte_range=byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return key in self._values

    async def set(self, key: str, value: Buffer) -> None:
        self.set_sync(key, value)

    async def delete(self, key: str) -> None:
        self.delete_sync(key)

    async def list(self) -> AsyncIterator[str]:
        for key in sorted(self._values):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for key in sorted(self._values):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        base = prefix.rstrip("/") + "/" if prefix else ""
        for name in sorted({key[len(base) :].split("/")[0] for key in self._values if key.startswith(base)}):
            yield name
