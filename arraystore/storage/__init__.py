"""Where objects live: the storage protocol, its backends, and wrappers for measuring and testing."""

from __future__ import annotations

from arraystore.storage.constructors import (
    azure_storage,
    gcs_storage,
    in_memory_storage,
    local_filesystem_storage,
    r2_storage,
    s3_storage,
)
from arraystore.storage.credentials import GcsBearerCredential, S3StaticCredentials
from arraystore.storage.local import LocalStorage
from arraystore.storage.memory import MemoryStorage
from arraystore.storage.objectstore import ObstoreStorage
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage
from arraystore.storage.settings import (
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
)

__all__ = [
    "ByteRange",
    "BytesLike",
    "DeleteFailure",
    "GcsBearerCredential",
    "LocalStorage",
    "MemoryStorage",
    "ObjectInfo",
    "ObstoreStorage",
    "S3StaticCredentials",
    "Storage",
    "StorageConcurrencySettings",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
    "azure_storage",
    "gcs_storage",
    "in_memory_storage",
    "local_filesystem_storage",
    "r2_storage",
    "s3_storage",
]
