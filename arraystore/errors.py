"""Every error that arraystore raises on purpose.

The names and the tree are those that users of versioned array stores know.  Each message names the object,
the cause and the remedy.  Errors pickle, so that they survive the way back from a worker process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arraystore._conflicts import Conflict, conflict_table

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
    "ReadOnlyError",
    "RebaseFailedError",
    "RefNotFoundError",
    "RepositoryGoneError",
    "RepositoryNotFoundError",
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


class ArrayStoreError(Exception):
    """Base class of all errors of this package."""

    @property
    def message(self) -> str:
        """The text of the error."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return self.message


class StorageError(ArrayStoreError):
    """A request to the storage failed for good: retries, if it allows any, are used up."""


class UnsupportedStorageError(StorageError):
    """The storage lacks something that safety needs, an atomic put-if-absent for instance."""


class NotFoundError(ArrayStoreError, KeyError):
    """Something that was asked for by name does not exist."""


class ObjectNotFoundError(NotFoundError, FileNotFoundError):
    """There is no object of this key in the storage."""

    def __init__(self, key: str, where: str = "") -> None:
        super().__init__(f"no object {key!r}" + (f" in {where}" if where else ""))
        self.key = key
        self.where = where

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.key, self.where))


class RepositoryNotFoundError(NotFoundError):
    """There is no repository at this place."""


class RepositoryGoneError(RepositoryNotFoundError):
    """The repository of this session was deleted, or another one was created in its place; nothing was committed."""


class RefNotFoundError(NotFoundError):
    """There is no such branch or tag."""


class SnapshotNotFoundError(NotFoundError):
    """There is no such snapshot in the history."""


class SnapshotExpiredError(SnapshotNotFoundError):
    """The snapshot was there, and has expired: what only it needed may be deleted already."""


class NodeNotFoundError(NotFoundError):
    """There is no such array or group in the snapshot."""


class AlreadyExistsError(ArrayStoreError):
    """Something of this name exists already."""


class InvalidInputError(ArrayStoreError, ValueError):
    """An argument cannot be used; nothing was changed."""


class InvalidKeyError(InvalidInputError):
    """A store key that no valid hierarchy can hold; nothing was changed."""


class ReadOnlyError(ArrayStoreError, ValueError):
    """A write through something that may only be read."""


class SessionStateError(ArrayStoreError):
    """The session cannot do this in the state that it is in."""


class SessionExpiredError(SessionStateError):
    """The session is older than what a garbage collection has to leave alone; nothing was committed.

    What it has written since then may be collected at any moment, so it must never be referred to.  Start again with
    a new session: nothing that was committed is lost.
    """


class StreamRestartedError(SessionStateError):
    """A stream begins anew under the id of one whose batches have been written; nothing was committed.

    Its batches are numbered from the beginning, so that they look as if they had been written before.
    """


class VirtualReferenceError(InvalidInputError, StorageError):
    """A virtual reference that must not be followed: it leaves its container, or is in none.

    Raised when such a reference is written, where nothing was changed, and when one that is there already is read.
    """


class SourceChangedError(StorageError):
    """The object that a virtual chunk refers to is not what it was when the reference was written.

    None of its bytes was returned.  Restore the object, or write the references anew and commit them.

    Parameters
    ----------
    url
        Of the object.
    expected, found
        State of the object that the reference is for, and that of the object now.
    path
        Path of the array, None where it is not known.
    chunk
        Grid coordinates of the chunk, None where they are not known.
    """

    def __init__(
        self, url: str, expected: str, found: str, path: str | None = None, chunk: tuple[int, ...] | None = None
    ) -> None:
        whose = "" if path is None else f", which chunk {chunk} of {'/' + path!r} refers to,"
        super().__init__(
            f"the source {url}{whose} has changed since the reference was written: expected {expected}, found {found}. "
            "Restore the source, or write the references to it anew with set_virtual_refs and commit"
        )
        self.url = url
        self.expected = expected
        self.found = found
        self.path = path
        self.chunk = chunk

    def of_chunk(self, path: str, chunk: tuple[int, ...]) -> SourceChangedError:
        """Return the same error, with the array and the chunk."""
        return SourceChangedError(self.url, self.expected, self.found, path, chunk)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.url, self.expected, self.found, self.path, self.chunk))


class FormatError(ArrayStoreError):
    """The bytes of an object are not what the format asks for.

    Parameters
    ----------
    object_name
        Key of the object in the storage, or a description where it has none.
    reason
        What is wrong with it.
    """

    def __init__(self, object_name: str, reason: str) -> None:
        super().__init__(f"{object_name}: {reason}")
        self.object_name = object_name
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.object_name, self.reason))


class LogForkError(FormatError):
    """A record does not go on from the record before it: it was written on top of another one.

    Nothing of such a log is read from there on.  ``arraystore verify`` names the records.
    """


class LogHoleError(FormatError):
    """A record is missing below newer ones: ``arraystore repair`` rebuilds it, or says what has to be restored."""


class ChunkDamagedError(FormatError):
    """Bytes of a chunk are not those that were written; none of them was returned.

    Restore the object from a backup or from an older version in the bucket.  If there is none, write the chunk again,
    or reset the branch to a snapshot that does not need it.  ``arraystore verify --level chunks`` finds what else is
    damaged.

    Parameters
    ----------
    object_name
        Key of the object.
    offset, length
        Where the chunk is in it, in bytes.
    path
        Path of the array, None where it is not known.
    chunk
        Grid coordinates of the chunk, None where they are not known.
    """

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
            "chunks again; `arraystore verify --level chunks` finds what else is damaged",
        )
        self.offset = offset
        self.length = length
        self.path = path
        self.chunk = chunk

    def of_chunk(self, path: str, chunk: tuple[int, ...]) -> ChunkDamagedError:
        """Return the same error, with the array and the chunk."""
        return ChunkDamagedError(self.object_name, self.offset, self.length, path, chunk)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.object_name, self.offset, self.length, self.path, self.chunk))


class ConflictError(ArrayStoreError):
    """The branch has moved since the session was opened; nothing was committed.

    Parameters
    ----------
    expected_parent
        Snapshot that the session is based on.
    actual_parent
        Snapshot that the branch is at now.
    """

    def __init__(self, expected_parent: str | None, actual_parent: str | None, branch: str = "") -> None:
        of_branch = f" of branch {branch!r}" if branch else ""
        super().__init__(
            f"the tip{of_branch} is snapshot {actual_parent}, but this session is based on {expected_parent}: "
            "somebody committed in between. Nothing was committed. Commit with rebase_with=ConflictDetector() to put "
            "these changes on top of theirs where they do not collide, or write them again in a new session."
        )
        self.expected_parent = expected_parent
        self.actual_parent = actual_parent
        self.branch = branch

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.expected_parent, self.actual_parent, self.branch))


class RebaseFailedError(ConflictError):
    """What the session changed collides with what was committed since; nothing was committed, nothing lost.

    The session keeps its changes and its base.  Solve what the conflicts name in a new session, or call `rebase`
    with a solver that may choose.

    Parameters
    ----------
    snapshot
        Newest snapshot of the branch, on which the changes were to go.
    conflicts
        Every `Conflict` that is left.
    expected_parent
        Snapshot that the session is based on.
    branch
        Of the session.
    """

    def __init__(
        self, snapshot: str, conflicts: Sequence[Conflict], expected_parent: str | None = None, branch: str = ""
    ) -> None:
        super().__init__(expected_parent, snapshot, branch)
        count = f"{len(conflicts)} conflict{'s' if len(conflicts) != 1 else ''}"
        on = f"on snapshot {snapshot}" + (f", the tip of branch {branch!r}" if branch else "")
        self.args = (f"the changes cannot be put {on}: {count}. Nothing was committed.\n{conflict_table(conflicts)}",)
        self.snapshot = snapshot
        self.conflicts = list(conflicts)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.snapshot, self.conflicts, self.expected_parent, self.branch))


class MergeConflictError(ArrayStoreError):
    """Forks of one session changed the same thing; nothing was merged.

    Parameters
    ----------
    message
        What collided.
    path
        Path of the array or group.
    chunks
        Grid coordinates of the chunks that more than one wrote, at most a hundred of them.
    """

    def __init__(self, message: str, path: str = "", chunks: tuple[tuple[int, ...], ...] = ()) -> None:
        super().__init__(message)
        self.path = path
        self.chunks = chunks

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message, self.path, self.chunks))


class UnmergedForksWarning(UserWarning):
    """A session is committed while forks of it have changes that it does not have."""
