"""Where objects live: the storage protocol, its backends, and wrappers for measuring and testing."""

from __future__ import annotations

from arraystore.storage.local import LocalStorage
from arraystore.storage.memory import MemoryStorage
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage

__all__ = ["ByteRange", "BytesLike", "DeleteFailure", "LocalStorage", "MemoryStorage", "ObjectInfo", "Storage"]
