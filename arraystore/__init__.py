"""Versioned, transactional Zarr on object storage.

>>> import arraystore, zarr
>>> repo = arraystore.Repository.create(arraystore.in_memory_storage())
>>> session = repo.writable_session("main")
>>> array = zarr.create_array(session.store, name="a", shape=4, chunks=2, dtype="i4")
>>> array[:] = 1
>>> snapshot = session.commit("four ones")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if not TYPE_CHECKING:
    # Each name is imported when it is asked for: what needs little of the package starts at once.

    _MODULES = (
        *("compat", "copying", "dask", "distributed", "errors", "ingest", "simulation", "spark", "storage"),
        *("transforms", "ui", "virtual", "xarray"),
    )
    _PUBLIC_MODULES = ("distributed", "errors", "storage")  # those that need nothing but the package
    _NAMES = {
        "arraystore._chunks.cache_budget": "limit_caches",
        "arraystore._chunks.cache_usage": "CacheStats",
        "arraystore._chunks.virtual_checksums": "FROM_SOURCE FromSource",
        "arraystore._chunks.virtual_chunk_container": "VirtualChunkContainer",
        "arraystore._commit.solvers": "BasicConflictSolver ConflictDetector ConflictSolver Solution Versions",
        "arraystore._context.config": "RepositoryConfig",
        "arraystore._conflicts": "Conflict ConflictType VersionSelection",
        "arraystore._history.diff": "Diff",
        "arraystore._history.graph": "AncestryGraph",
        "arraystore._history.operations_log": "Update UpdateType",
        "arraystore._log.status": "FeatureFlag RepoAvailability RepoStatus",
        "arraystore._maintenance.collection.summary": "GCSummary",
        "arraystore._maintenance.compact": "CompactionSummary DamagedPack",
        "arraystore._maintenance.retention_policy": "KeepRule RetentionPolicy",
        "arraystore._maintenance.verification.findings": "Finding Severity VerifyReport",
        "arraystore._maintenance.verification.repair": "RepairReport",
        "arraystore._maintenance.verification.statistics": "RepositoryStatistics",
        "arraystore._repository.ancestry": "Ancestry AsyncAncestry",
        "arraystore._repository.maintenance": "MaintenanceReport UpkeepOptions",
        "arraystore._repository.repository": "Repository",
        "arraystore._repository.snapshots": "SnapshotInfo",
        "arraystore._repository.verification": "ChunkStorageStats",
        "arraystore._session.fork": "ForkSession",
        "arraystore._session.pipeline.installing": "use_pipeline",
        "arraystore._session.rearrange": "DELETE",
        "arraystore._session.session": "Session",
        "arraystore._session.store": "ArrayStore",
        "arraystore._session.virtual_references": "VirtualChunkSpec",
        "arraystore.distributed": "extract_session merge_sessions",
        "arraystore.errors": (
            "AlreadyExistsError ArrayStoreError ChunkDamagedError ConflictError FormatError InvalidInputError "
            "InvalidKeyError MergeConflictError NodeNotFoundError NotFoundError ObjectNotFoundError "
            "PermissionDeniedError ReadOnlyError RebaseFailedError RefNotFoundError RepositoryNotFoundError "
            "SelectionError SessionExpiredError SessionStateError SnapshotExpiredError SnapshotNotFoundError "
            "SourceChangedError StorageError StreamRestartedError UnmergedForksWarning UnsupportedStorageError "
            "VirtualReferenceError"
        ),
        "arraystore.storage": (
            "ByteRange BytesLike CacheUsage CachedStorage CountingStorage Counts DeleteFailure Fault FaultyStorage "
            "FsspecStorage GcsBearerCredential InjectedFaultError Latency LatencyStorage LocalStorage "
            "MemoryStorage ObjectInfo ObstoreStorage S3StaticCredentials Storage StorageConcurrencySettings "
            "StorageHedgingSettings StorageRequest StorageRetriesSettings StorageSettings StorageTimeoutSettings "
            "WrapperStorage azure_storage fsspec_storage gcs_storage http_storage in_memory_storage "
            "local_filesystem_storage r2_storage s3_storage storage_from_url"
        ),
    }

    def __getattr__(name: str) -> Any:
        if name in _PUBLIC_MODULES:
            return import_module(f"{__name__}.{name}")
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from arraystore._runtime import lazy_names

        return lazy_names(__name__, _NAMES)[0](name)

    def __dir__() -> list[str]:
        return sorted({*__all__, *_MODULES, "__version__"})

else:  # the reference pages take what stands under a plain TYPE_CHECKING for no part of the module
    from arraystore._chunks.cache_budget import limit_caches
    from arraystore._chunks.cache_usage import CacheStats
    from arraystore._chunks.virtual_checksums import FROM_SOURCE, FromSource
    from arraystore._chunks.virtual_chunk_container import VirtualChunkContainer
    from arraystore._commit.solvers import BasicConflictSolver, ConflictDetector, ConflictSolver, Solution, Versions
    from arraystore._conflicts import Conflict, ConflictType, VersionSelection
    from arraystore._context.config import RepositoryConfig
    from arraystore._history.diff import Diff
    from arraystore._history.graph import AncestryGraph
    from arraystore._history.operations_log import Update, UpdateType
    from arraystore._log.status import FeatureFlag, RepoAvailability, RepoStatus
    from arraystore._maintenance.collection.summary import GCSummary
    from arraystore._maintenance.compact import CompactionSummary, DamagedPack
    from arraystore._maintenance.retention_policy import KeepRule, RetentionPolicy
    from arraystore._maintenance.verification.findings import Finding, Severity, VerifyReport
    from arraystore._maintenance.verification.repair import RepairReport
    from arraystore._maintenance.verification.statistics import RepositoryStatistics
    from arraystore._repository.ancestry import Ancestry, AsyncAncestry
    from arraystore._repository.maintenance import MaintenanceReport, UpkeepOptions
    from arraystore._repository.repository import Repository
    from arraystore._repository.snapshots import SnapshotInfo
    from arraystore._repository.verification import ChunkStorageStats
    from arraystore._session.fork import ForkSession
    from arraystore._session.pipeline.installing import use_pipeline
    from arraystore._session.rearrange import DELETE
    from arraystore._session.session import Session
    from arraystore._session.store import ArrayStore
    from arraystore._session.virtual_references import VirtualChunkSpec
    from arraystore.distributed import extract_session, merge_sessions
    from arraystore.errors import (
        AlreadyExistsError,
        ArrayStoreError,
        ChunkDamagedError,
        ConflictError,
        FormatError,
        InvalidInputError,
        InvalidKeyError,
        MergeConflictError,
        NodeNotFoundError,
        NotFoundError,
        ObjectNotFoundError,
        PermissionDeniedError,
        ReadOnlyError,
        RebaseFailedError,
        RefNotFoundError,
        RepositoryNotFoundError,
        SelectionError,
        SessionExpiredError,
        SessionStateError,
        SnapshotExpiredError,
        SnapshotNotFoundError,
        SourceChangedError,
        StorageError,
        StreamRestartedError,
        UnmergedForksWarning,
        UnsupportedStorageError,
        VirtualReferenceError,
    )
    from arraystore.storage import (
        ByteRange,
        BytesLike,
        CachedStorage,
        CacheUsage,
        CountingStorage,
        Counts,
        DeleteFailure,
        Fault,
        FaultyStorage,
        FsspecStorage,
        GcsBearerCredential,
        InjectedFaultError,
        Latency,
        LatencyStorage,
        LocalStorage,
        MemoryStorage,
        ObjectInfo,
        ObstoreStorage,
        S3StaticCredentials,
        Storage,
        StorageConcurrencySettings,
        StorageHedgingSettings,
        StorageRequest,
        StorageRetriesSettings,
        StorageSettings,
        StorageTimeoutSettings,
        WrapperStorage,
        azure_storage,
        fsspec_storage,
        gcs_storage,
        http_storage,
        in_memory_storage,
        local_filesystem_storage,
        r2_storage,
        s3_storage,
        storage_from_url,
    )

__all__ = [
    "DELETE",
    "FROM_SOURCE",
    "AlreadyExistsError",
    "Ancestry",
    "AncestryGraph",
    "ArrayStore",
    "ArrayStoreError",
    "AsyncAncestry",
    "BasicConflictSolver",
    "ByteRange",
    "BytesLike",
    "CacheStats",
    "CacheUsage",
    "CachedStorage",
    "ChunkDamagedError",
    "ChunkStorageStats",
    "CompactionSummary",
    "Conflict",
    "ConflictDetector",
    "ConflictError",
    "ConflictSolver",
    "ConflictType",
    "CountingStorage",
    "Counts",
    "DamagedPack",
    "DeleteFailure",
    "Diff",
    "Fault",
    "FaultyStorage",
    "FeatureFlag",
    "Finding",
    "ForkSession",
    "FormatError",
    "FromSource",
    "FsspecStorage",
    "GCSummary",
    "GcsBearerCredential",
    "InjectedFaultError",
    "InvalidInputError",
    "InvalidKeyError",
    "KeepRule",
    "Latency",
    "LatencyStorage",
    "LocalStorage",
    "MaintenanceReport",
    "MemoryStorage",
    "MergeConflictError",
    "NodeNotFoundError",
    "NotFoundError",
    "ObjectInfo",
    "ObjectNotFoundError",
    "ObstoreStorage",
    "PermissionDeniedError",
    "ReadOnlyError",
    "RebaseFailedError",
    "RefNotFoundError",
    "RepairReport",
    "RepoAvailability",
    "RepoStatus",
    "Repository",
    "RepositoryConfig",
    "RepositoryNotFoundError",
    "RepositoryStatistics",
    "RetentionPolicy",
    "S3StaticCredentials",
    "SelectionError",
    "Session",
    "SessionExpiredError",
    "SessionStateError",
    "Severity",
    "SnapshotExpiredError",
    "SnapshotInfo",
    "SnapshotNotFoundError",
    "Solution",
    "SourceChangedError",
    "Storage",
    "StorageConcurrencySettings",
    "StorageError",
    "StorageHedgingSettings",
    "StorageRequest",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
    "StreamRestartedError",
    "UnmergedForksWarning",
    "UnsupportedStorageError",
    "Update",
    "UpdateType",
    "UpkeepOptions",
    "VerifyReport",
    "VersionSelection",
    "Versions",
    "VirtualChunkContainer",
    "VirtualChunkSpec",
    "VirtualReferenceError",
    "WrapperStorage",
    "azure_storage",
    "extract_session",
    "fsspec_storage",
    "gcs_storage",
    "http_storage",
    "in_memory_storage",
    "limit_caches",
    "local_filesystem_storage",
    "merge_sessions",
    "r2_storage",
    "s3_storage",
    "storage_from_url",
    "use_pipeline",
]
