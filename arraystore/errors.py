"""Exceptions and warnings of arraystore.

Names and hierarchy are those that users of versioned array stores know.  Messages name the object,
the cause and the remedy.  All exceptions are picklable, so that worker processes can return them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arraystore._runtime import lazy_module

if TYPE_CHECKING:
    from arraystore import _conflicts
    from arraystore._conflicts import Conflict
else:
    _conflicts = lazy_module("arraystore._conflicts")


__all__ = [
    "AlreadyExistsError",
    "ArrayStoreError",
    "ChunkDamagedError",
    "ConflictError",
    "FormatError",
    "InvalidInputError",
    "InvalidKeyError",
    "LogForkError",
    "LogHoleError",
    "MergeConflictError",
    "NodeNotFoundError",
    "NotFoundError",
    "ObjectNotFoundError",
    "PermissionDeniedError",
    "ReadOnlyError",
    "RebaseFailedError",
    "RefNotFoundError",
    "RepositoryGoneError",
    "RepositoryNotFoundError",
    "SelectionError",
    "SessionExpiredError",
    "SessionStateError",
    "SnapshotExpiredError",
    "SnapshotNotFoundError",
    "SourceChangedError",
    "StorageError",
    "StreamRestartedError",
    "UnmergedForksWarning",
    "UnsupportedStorageError",
    "VirtualReferenceError",
]


def __dir__() -> list[str]:
    return sorted(__all__)


class ArrayStoreError(Exception):
    """Base class of all errors of this package.

    Parameters
    ----------
    message
        Message of the error.
    kind
        Code of the failure, for programs; by default that of the class.
    """

    kind: str = "unknown"

    def __init__(self, message: str = "", kind: str | None = None) -> None:
        super().__init__(message)
        if kind is not None:
            self.kind = kind

    @property
    def message(self) -> str:
        """Message of the error."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return self.message


class StorageError(ArrayStoreError):
    """Storage request failed after all retries."""

    kind = "object-store"


class PermissionDeniedError(StorageError):
    """Credentials do not allow the request; nothing was changed by it."""

    kind = "permission-denied"


class UnsupportedStorageError(StorageError):
    """Storage lacks an operation that safety depends on, for example an atomic put-if-absent."""

    kind = "storage-config"


class NotFoundError(ArrayStoreError, KeyError):
    """Requested item does not exist."""

    kind = "not-found"


class ObjectNotFoundError(NotFoundError, FileNotFoundError):
    """Object does not exist in the storage."""

    kind = "object-not-found"

    def __init__(self, key: str, where: str = "") -> None:
        super().__init__(f"no object {key!r}" + (f" in {where}" if where else ""))
        self.key = key
        self.where = where

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.key, self.where))


class RepositoryNotFoundError(NotFoundError):
    """Repository does not exist at this location."""

    kind = "repository-not-found"


class RepositoryGoneError(RepositoryNotFoundError):
    """Repository of this session was deleted or replaced by another one; nothing was committed."""


class RefNotFoundError(NotFoundError):
    """Branch or tag does not exist."""

    kind = "ref-not-found"


class SnapshotNotFoundError(NotFoundError):
    """Snapshot does not exist in the history."""

    kind = "snapshot-not-found"


class SnapshotExpiredError(SnapshotNotFoundError):
    """Snapshot has expired; objects that only it referenced may be deleted."""

    kind = "snapshot-expired"


class NodeNotFoundError(NotFoundError):
    """Array or group does not exist in the snapshot."""

    kind = "node-not-found"


class AlreadyExistsError(ArrayStoreError):
    """Item of this name already exists."""

    kind = "already-exists"


class InvalidInputError(ArrayStoreError, ValueError):
    """Argument is not valid; nothing was changed."""

    kind = "invalid-input"


class InvalidKeyError(InvalidInputError):
    """Store key is not valid in a hierarchy; nothing was changed."""

    kind = "invalid-key"


class SelectionError(InvalidInputError, IndexError):
    """Selection is not valid for an array; nothing was changed."""


class ReadOnlyError(ArrayStoreError, ValueError):
    """Write through a read-only session or store."""

    kind = "read-only"


class SessionStateError(ArrayStoreError):
    """Operation is not allowed in the current state of the session."""

    kind = "not-allowed"


class SessionExpiredError(SessionStateError):
    """Session is stale: its objects are older than the watermark of a garbage collection; nothing was committed.

    Garbage collection may delete uncommitted objects of the session at any time, so they must not be referenced.
    Repeat the changes in a new session; committed data is not affected.
    """

    kind = "session-expired"


class StreamRestartedError(SessionStateError):
    """Stream restarts under the id of a stream with committed batches; nothing was committed.

    Its batches are numbered from 0 again, and would be taken for batches that are already committed.
    """


class VirtualReferenceError(InvalidInputError, StorageError):
    """Virtual reference is outside of all containers, or leaves its own, and must not be followed.

    Raised when such a reference is written, without changing anything, and when an existing one is read.
    """

    kind = "invalid-virtual-ref"


class SourceChangedError(StorageError):
    """Source object of a virtual chunk has changed since the reference was written; no bytes were returned.

    Restore the object, or write the references again and commit them.

    Parameters
    ----------
    url
        URL of the object.
    expected, found
        Expected and actual state of the object.
    path
        Path of the array, None if unknown.
    chunk
        Grid coordinates of the chunk, None if unknown.
    """

    kind = "virtual-chunk-modified"

    def __init__(
        self, url: str, expected: str, found: str, path: str | None = None, chunk: tuple[int, ...] | None = None
    ) -> None:
        whose = "" if path is None else f", which chunk {chunk} of {'/' + path!r} refers to,"
        super().__init__(
            f"the source {url}{whose} has changed since the reference was written: expected {expected}, found {found}. "
            "Restore the source, or write the references to it again with set_virtual_refs and commit"
        )
        self.url = url
        self.expected = expected
        self.found = found
        self.path = path
        self.chunk = chunk

    def of_chunk(self, path: str, chunk: tuple[int, ...]) -> SourceChangedError:
        """Return the same error with the array and the chunk."""
        return SourceChangedError(self.url, self.expected, self.found, path, chunk)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.url, self.expected, self.found, self.path, self.chunk), {"kind": self.kind})


class FormatError(ArrayStoreError):
    """Object violates the format.

    Parameters
    ----------
    object_name
        Key of the object in the storage, or a description if it has none.
    reason
        Violated rule.
    """

    kind = "deserialization"

    def __init__(self, object_name: str, reason: str) -> None:
        super().__init__(f"{object_name}: {reason}")
        self.object_name = object_name
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.object_name, self.reason))


class LogForkError(FormatError):
    """Log has a fork: a record does not follow the preceding one, but was written after a different one.

    The log is not read beyond such a record.  ``arraystore verify`` lists the records.
    """


class LogHoleError(FormatError):
    """Log has a hole, a missing record below newer ones; ``arraystore repair`` rebuilds it or says what to restore."""


class ChunkDamagedError(FormatError):
    """Bytes of a chunk do not match their checksum; none of them were returned.

    Restore the object from a backup or from an older version in the bucket.  If there is none, write the chunk again,
    or reset the branch to a snapshot that does not reference it.  ``arraystore verify --level chunks`` lists all
    damaged chunks.

    Parameters
    ----------
    object_name
        Key of the object.
    offset, length
        Byte range of the chunk in the object.
    path
        Path of the array, None if unknown.
    chunk
        Grid coordinates of the chunk, None if unknown.
    """

    kind = "chunk-damaged"

    def __init__(
        self,
        object_name: str,
        offset: int,
        length: int,
        path: str | None = None,
        chunk: tuple[int, ...] | None = None,
    ) -> None:
        whose = "" if path is None else f", chunk {chunk} of {'/' + path!r}"
        super().__init__(
            object_name,
            f"the {length} bytes from {offset} on{whose}, do not match their checksum: the object is damaged, or is "
            "not the one that was written. Restore it from a backup or an older version in the bucket, or write these "
            "chunks again; `arraystore verify --level chunks` lists all damaged chunks",
        )
        self.offset = offset
        self.length = length
        self.path = path
        self.chunk = chunk

    def of_chunk(self, path: str, chunk: tuple[int, ...]) -> ChunkDamagedError:
        """Return the same error with the array and the chunk."""
        return ChunkDamagedError(self.object_name, self.offset, self.length, path, chunk)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.object_name, self.offset, self.length, self.path, self.chunk))


class ConflictError(ArrayStoreError):
    """Branch has moved since the session was opened; nothing was committed.

    Parameters
    ----------
    expected_parent
        Base snapshot of the session.
    actual_parent
        Current tip of the branch.
    branch
        Branch of the session.
    kind
        Code of the failure; by default that of the class.
    """

    kind = "commit-conflict"

    def __init__(
        self, expected_parent: str | None, actual_parent: str | None, branch: str = "", kind: str | None = None
    ) -> None:
        of_branch = f" of branch {branch!r}" if branch else ""
        super().__init__(
            f"the tip{of_branch} is snapshot {actual_parent}, but this session is based on {expected_parent}: "
            "another session committed meanwhile. Nothing was committed. Commit with rebase_with=ConflictDetector() to "
            "rebase the changes if they do not conflict, or repeat them in a new session.",
            kind,
        )
        self.expected_parent = expected_parent
        self.actual_parent = actual_parent
        self.branch = branch

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.expected_parent, self.actual_parent, self.branch, vars(self).get("kind")))


class RebaseFailedError(ConflictError):
    """Changes of the session conflict with commits since its base; nothing was committed.

    The session keeps its changes and its base.  Resolve the conflicts in a new session, or call `rebase` with a
    solver.

    Parameters
    ----------
    snapshot
        Tip of the branch, onto which the changes were to be rebased.
    conflicts
        Unresolved `Conflict` objects.
    expected_parent
        Base snapshot of the session.
    branch
        Branch of the session.
    """

    kind = "rebase-failed"

    def __init__(
        self, snapshot: str, conflicts: Sequence[Conflict], expected_parent: str | None = None, branch: str = ""
    ) -> None:
        super().__init__(expected_parent, snapshot, branch)
        count = f"{len(conflicts)} conflict{'s' if len(conflicts) != 1 else ''}"
        onto = f"onto snapshot {snapshot}" + (f", the tip of branch {branch!r}" if branch else "")
        table = _conflicts.conflict_table(conflicts)
        self.args = (f"the changes cannot be rebased {onto}: {count}. Nothing was committed.\n{table}",)
        self.snapshot = snapshot
        self.conflicts = _conflicts.Conflicts(conflicts)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.snapshot, self.conflicts, self.expected_parent, self.branch))


class MergeConflictError(ArrayStoreError):
    """Forks of one session changed the same chunk or node; nothing was merged.

    Parameters
    ----------
    message
        Description of the conflict.
    path
        Path of the array or group.
    chunks
        Grid coordinates of the chunks that several forks wrote, at most a hundred of them.
    """

    kind = "merge-failed"

    def __init__(self, message: str, path: str = "", chunks: tuple[tuple[int, ...], ...] = ()) -> None:
        super().__init__(message)
        self.path = path
        self.chunks = chunks

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message, self.path, self.chunks))


class UnmergedForksWarning(UserWarning):
    """Session is committed while forks of it have unmerged changes."""
