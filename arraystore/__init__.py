"""Versioned, transactional Zarr on object storage.

>>> import arraystore, zarr
>>> repo = arraystore.Repository.create(arraystore.in_memory_storage())
>>> session = repo.writable_session("main")
>>> array = zarr.create_array(session.store, name="a", shape=4, chunks=2, dtype="i4")
>>> array[:] = 1
>>> snapshot = session.commit("four ones")
"""

from arraystore.commit.solvers import BasicConflictSolver, ConflictDetector, ConflictSolver, Solution, Versions
from arraystore.config import RepositoryConfig
from arraystore.conflicts import Conflict, ConflictType, VersionSelection
from arraystore.diff import Diff
from arraystore.distributed import extract_session, merge_sessions
from arraystore.errors import (
    AlreadyExistsError,
    ArrayStoreError,
    ConflictError,
    FormatError,
    InvalidInputError,
    InvalidKeyError,
    MergeConflictError,
    NodeNotFoundError,
    NotFoundError,
    ObjectNotFoundError,
    ReadOnlyError,
    RebaseFailedError,
    RefNotFoundError,
    RepositoryNotFoundError,
    SessionStateError,
    SnapshotNotFoundError,
    StorageError,
    UnmergedForksWarning,
    UnsupportedStorageError,
)
from arraystore.fork_session import ForkSession
from arraystore.repository import Repository, SnapshotInfo
from arraystore.session import Session
from arraystore.storage import (
    ByteRange,
    BytesLike,
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
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
    WrapperStorage,
    azure_storage,
    fsspec_storage,
    gcs_storage,
    in_memory_storage,
    local_filesystem_storage,
    r2_storage,
    s3_storage,
    storage_from_url,
)
from arraystore.store import ArrayStore
from arraystore.virtual_refs import VirtualChunkSpec

__version__ = "0.1.0"

__all__ = [
    "AlreadyExistsError",
    "ArrayStore",
    "ArrayStoreError",
    "BasicConflictSolver",
    "ByteRange",
    "BytesLike",
    "Conflict",
    "ConflictDetector",
    "ConflictError",
    "ConflictSolver",
    "ConflictType",
    "CountingStorage",
    "Counts",
    "DeleteFailure",
    "Diff",
    "Fault",
    "FaultyStorage",
    "ForkSession",
    "FormatError",
    "FsspecStorage",
    "GcsBearerCredential",
    "InjectedFaultError",
    "InvalidInputError",
    "InvalidKeyError",
    "Latency",
    "LatencyStorage",
    "LocalStorage",
    "MemoryStorage",
    "MergeConflictError",
    "NodeNotFoundError",
    "NotFoundError",
    "ObjectInfo",
    "ObjectNotFoundError",
    "ObstoreStorage",
    "ReadOnlyError",
    "RebaseFailedError",
    "RefNotFoundError",
    "Repository",
    "RepositoryConfig",
    "RepositoryNotFoundError",
    "S3StaticCredentials",
    "Session",
    "SessionStateError",
    "SnapshotInfo",
    "SnapshotNotFoundError",
    "Solution",
    "Storage",
    "StorageConcurrencySettings",
    "StorageError",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
    "UnmergedForksWarning",
    "UnsupportedStorageError",
    "VersionSelection",
    "Versions",
    "VirtualChunkSpec",
    "WrapperStorage",
    "azure_storage",
    "extract_session",
    "fsspec_storage",
    "gcs_storage",
    "in_memory_storage",
    "local_filesystem_storage",
    "merge_sessions",
    "r2_storage",
    "s3_storage",
    "storage_from_url",
]
