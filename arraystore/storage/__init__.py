"""Storage protocol, backends, and wrappers for measuring and testing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arraystore._runtime import lazy_names

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "arraystore.storage.cache_usage": "CacheUsage",
            "arraystore.storage.cached": "CachedStorage",
            "arraystore.storage.constructors": "azure_storage gcs_storage http_storage r2_storage s3_storage",
            "arraystore.storage.counting": "CountingStorage Counts",
            "arraystore.storage.credentials": "GcsBearerCredential S3StaticCredentials",
            "arraystore.storage.faults": "Fault FaultyStorage InjectedFaultError",
            "arraystore.storage.filesystem": "FsspecStorage",
            "arraystore.storage.latency": "Latency LatencyStorage",
            "arraystore.storage.local": "LocalStorage local_filesystem_storage",
            "arraystore.storage.memory": "MemoryStorage in_memory_storage",
            "arraystore.storage.objectstore": "ObstoreStorage",
            "arraystore.storage.protocol": "ByteRange BytesLike DeleteFailure ObjectInfo Storage",
            "arraystore.storage.read_only": "ReadOnlyStorage",
            "arraystore.storage.settings": (
                "StorageConcurrencySettings StorageHedgingSettings StorageRetriesSettings StorageSettings "
                "StorageTimeoutSettings"
            ),
            "arraystore.storage.urls": "fsspec_storage storage_from_url",
            "arraystore.storage.wrapper": "StorageRequest WrapperStorage",
        },
    )
else:  # the reference pages take what stands under a plain TYPE_CHECKING for no part of the module
    from arraystore.storage.cache_usage import CacheUsage
    from arraystore.storage.cached import CachedStorage
    from arraystore.storage.constructors import azure_storage, gcs_storage, http_storage, r2_storage, s3_storage
    from arraystore.storage.counting import CountingStorage, Counts
    from arraystore.storage.credentials import GcsBearerCredential, S3StaticCredentials
    from arraystore.storage.faults import Fault, FaultyStorage, InjectedFaultError
    from arraystore.storage.filesystem import FsspecStorage
    from arraystore.storage.latency import Latency, LatencyStorage
    from arraystore.storage.local import LocalStorage, local_filesystem_storage
    from arraystore.storage.memory import MemoryStorage, in_memory_storage
    from arraystore.storage.objectstore import ObstoreStorage
    from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage
    from arraystore.storage.read_only import ReadOnlyStorage
    from arraystore.storage.settings import (
        StorageConcurrencySettings,
        StorageHedgingSettings,
        StorageRetriesSettings,
        StorageSettings,
        StorageTimeoutSettings,
    )
    from arraystore.storage.urls import fsspec_storage, storage_from_url
    from arraystore.storage.wrapper import StorageRequest, WrapperStorage

__all__ = [
    "ByteRange",
    "BytesLike",
    "CacheUsage",
    "CachedStorage",
    "CountingStorage",
    "Counts",
    "DeleteFailure",
    "Fault",
    "FaultyStorage",
    "FsspecStorage",
    "GcsBearerCredential",
    "InjectedFaultError",
    "Latency",
    "LatencyStorage",
    "LocalStorage",
    "MemoryStorage",
    "ObjectInfo",
    "ObstoreStorage",
    "ReadOnlyStorage",
    "S3StaticCredentials",
    "Storage",
    "StorageConcurrencySettings",
    "StorageHedgingSettings",
    "StorageRequest",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
    "WrapperStorage",
    "azure_storage",
    "fsspec_storage",
    "gcs_storage",
    "http_storage",
    "in_memory_storage",
    "local_filesystem_storage",
    "r2_storage",
    "s3_storage",
    "storage_from_url",
]
