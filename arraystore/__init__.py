"""Versioned, transactional Zarr on object storage.

>>> import arraystore, zarr
>>> repo = arraystore.Repository.create(arraystore.in_memory_storage())
>>> session = repo.writable_session("main")
>>> array = zarr.create_array(session.store, name="a", shape=4, chunks=2, dtype="i4")
>>> array[:] = 1
>>> snapshot = session.commit("four ones")
"""

from arraystore.config import RepositoryConfig
from arraystore.diff import Diff
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
    RefNotFoundError,
    RepositoryNotFoundError,
    SessionStateError,
    SnapshotNotFoundError,
    StorageError,
    UnsupportedStorageError,
)
from arraystore.repository import Repository, SnapshotInfo
from arraystore.session import ForkSession, Session
from arraystore.storage import *  # noqa: F403
from arraystore.storage import __all__ as _storage_all
from arraystore.store import ArrayStore
from arraystore.virtual_refs import VirtualChunkSpec

__version__ = "0.1.0"

__all__ = [
    "AlreadyExistsError",
    "ArrayStore",
    "ArrayStoreError",
    "ConflictError",
    "Diff",
    "ForkSession",
    "FormatError",
    "InvalidInputError",
    "InvalidKeyError",
    "MergeConflictError",
    "NodeNotFoundError",
    "NotFoundError",
    "ObjectNotFoundError",
    "ReadOnlyError",
    "RefNotFoundError",
    "Repository",
    "RepositoryConfig",
    "RepositoryNotFoundError",
    "Session",
    "SessionStateError",
    "SnapshotInfo",
    "SnapshotNotFoundError",
    "StorageError",
    "UnsupportedStorageError",
    "VirtualChunkSpec",
]
__all__ += _storage_all
