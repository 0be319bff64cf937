"""Views of unfinished clones: the source's logs up to the cut, over the objects that the target has so far."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from arraystore._format.record import read_record_key
from arraystore._format.refs import REPOSITORY_KEY, branches_prefix, name_from_key
from arraystore._format.repository_log import repository_log_prefix
from arraystore.copying.consistent_cut import HINTS_PREFIX, ConsistentCut
from arraystore.errors import ObjectNotFoundError, ReadOnlyError
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage
from arraystore.storage.wrapper import WrapperStorage

__all__ = ["CloneView"]

_REFS = "refs/"


class CloneView(WrapperStorage):
    """Read-only storage that shows a clone before it can be opened."""

    def __init__(self, target: Storage, source: Storage, repository: bytes, cut: ConsistentCut) -> None:
        super().__init__(target)
        self._source = source
        self._cut = cut
        self._branches = branches_prefix(repository)
        self._log = repository_log_prefix(repository)
        self.cheap_probes = source.cheap_probes

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        hint = self._cut.hints.get(key)
        return await self._holder(key).get(key) if hint is None else hint

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object."""
        return await self._holder(key).get_ranges(key, ranges)

    async def head(self, key: str) -> ObjectInfo:
        """Return size and version of an object."""
        return await self._holder(key).head(key)

    async def put(self, key: str, data: BytesLike) -> None:
        """Refuse to write."""
        raise self._refusal(key)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Refuse to write."""
        raise self._refusal(key)

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Refuse to delete."""
        raise self._refusal(", ".join(keys))

    def _holder(self, key: str) -> Storage:
        """Return the storage that holds an object; raise if the clone does not have it."""
        if key == REPOSITORY_KEY or (key.startswith(_REFS) and self._is_within(key)):
            return self._source
        if key.startswith((_REFS, HINTS_PREFIX)):
            raise ObjectNotFoundError(key, self.location)
        return self._inner

    def _is_within(self, key: str) -> bool:
        ends = self._cut.ends
        if key.startswith(self._log):
            return (read_record_key(self._log, key) or 0) <= ends.repository
        name, slash, _ = key.removeprefix(self._branches).partition("/")
        number = read_record_key(self._branches + name + slash, key)
        return number is not None and number <= ends.branches.get(name_from_key(name), (0, -1))[1]

    def _refusal(self, key: str) -> ReadOnlyError:
        return ReadOnlyError(f"{self.location}: {key!r} is not to be written while a copy is checked")

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects in order of their keys."""
        async for page in (self._source if prefix.startswith(_REFS) else self._inner).list(prefix, start_after):
            yield [info for info in page if not info.key.startswith(_REFS) or self._is_within(info.key)]
