"""Source objects of virtual chunks: read, and refused where they have changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arraystore.errors import ObjectNotFoundError, SourceChangedError, StorageError, VirtualReferenceError
from arraystore.storage.object_state import describe_expected, describe_info, is_unchanged
from arraystore.storage.protocol import ByteRange, BytesLike, ObjectInfo, Storage


@dataclass(frozen=True)
class VirtualSource:
    """Source object of virtual chunks, with the state that it must have."""

    url: str
    storage: Storage
    key: str
    etag: str | None
    """Entity tag that it must have; None for any."""
    modified: int | None
    """Microseconds since 1970 after which it must not have been modified; None for no limit."""

    def read_sync(self, start: int, stop: int) -> BytesLike:
        """Return bytes of the object; raises `SourceChangedError` if it has changed or is gone."""
        try:
            data, info = self.storage.get_source_range_sync(self.key, start, stop)
        except VirtualReferenceError:
            raise
        except ObjectNotFoundError:
            raise self._missing() from None
        except StorageError as error:
            raise self._reason(error, self._look_sync() if self._checked else None) from error.__cause__
        self._check(info)
        return data

    async def read(self, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return byte ranges of the object; raises `SourceChangedError` if it has changed or is gone."""
        try:
            data, info = await self.storage.get_source_ranges(self.key, ranges)
        except VirtualReferenceError:
            raise
        except ObjectNotFoundError:
            raise self._missing() from None
        except StorageError as error:
            raise self._reason(error, await self._look() if self._checked else None) from error.__cause__
        self._check(info)
        return data

    @property
    def _checked(self) -> bool:
        return self.etag is not None or self.modified is not None

    def _look_sync(self) -> ObjectInfo | None:
        try:
            return self.storage.get_source_range_sync(self.key, 0, 0)[1]
        except (StorageError, ObjectNotFoundError):
            return None

    async def _look(self) -> ObjectInfo | None:
        try:
            return (await self.storage.get_source_ranges(self.key, []))[1]
        except (StorageError, ObjectNotFoundError):
            return None

    def _reason(self, error: StorageError, info: ObjectInfo | None) -> StorageError:
        """Return the reason of a failed read: a source that has become shorter has changed."""
        if info is None or is_unchanged(info, self.etag, self.modified):
            return error
        return self._changed(describe_info(info))

    def _check(self, info: ObjectInfo) -> None:
        if not is_unchanged(info, self.etag, self.modified):
            raise self._changed(describe_info(info))

    def _missing(self) -> SourceChangedError:
        return self._changed("no such object")

    def _changed(self, actual: str) -> SourceChangedError:
        return SourceChangedError(self.url, describe_expected(self.etag, self.modified), actual)
