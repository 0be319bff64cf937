"""Icechunk's exceptions: they are those of arraystore, so that whatever raises them, either name catches them."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from arraystore.compat.icechunk.conflicts import Conflict, as_listed
from arraystore.errors import (
    AlreadyExistsError,
    ArrayStoreError,
    ConflictError,
    FormatError,
    InvalidInputError,
    NodeNotFoundError,
    NotFoundError,
    ReadOnlyError,
    RebaseFailedError,
    RefNotFoundError,
    RepositoryNotFoundError,
    SessionStateError,
    SnapshotNotFoundError,
    SourceChangedError,
    StorageError,
    VirtualReferenceError,
)

__all__ = [
    "AlreadyExistsError",
    "CommitNotAllowedError",
    "ConflictError",
    "ErrorKind",
    "FormatError",
    "IcechunkError",
    "InternalError",
    "InvalidInputError",
    "NodeNotFoundError",
    "NotFoundError",
    "ReadOnlyError",
    "RebaseFailedError",
    "RefNotFoundError",
    "RepositoryNotFoundError",
    "SessionStateError",
    "SnapshotNotFoundError",
    "StorageError",
    "refine",
]

IcechunkError = ArrayStoreError


class InternalError(IcechunkError):
    """Never raised here: whatever is not expected is an error of Python, with its traceback."""


class ErrorKind(StrEnum):
    """Codes of `IcechunkError.kind`."""

    COMMIT_CONFLICT = "commit-conflict"
    BRANCH_UPDATE_CONFLICT = "branch-update-conflict"
    REBASE_FAILED = "rebase-failed"
    CONFIG_UPDATED = "config-updated"
    REPO_INFO_UPDATED = "repo-info-updated"
    UPDATE_ATTEMPTS_EXHAUSTED = "update-attempts-exhausted"
    GC_DELETES_FAILING = "gc-deletes-failing"
    NODE_NOT_FOUND = "node-not-found"
    ANCESTOR_NODE_NOT_FOUND = "ancestor-node-not-found"
    CHUNK_NOT_FOUND = "chunk-not-found"
    KEY_NOT_FOUND = "key-not-found"
    SNAPSHOT_NOT_FOUND = "snapshot-not-found"
    NO_SNAPSHOT_AT_TIME = "no-snapshot-at-time"
    REF_NOT_FOUND = "ref-not-found"
    BRANCH_NOT_FOUND = "branch-not-found"
    TAG_NOT_FOUND = "tag-not-found"
    REPOSITORY_NOT_FOUND = "repository-not-found"
    MANIFEST_INFO_NOT_FOUND = "manifest-info-not-found"
    NODE_ALREADY_EXISTS = "node-already-exists"
    BRANCH_ALREADY_EXISTS = "branch-already-exists"
    TAG_ALREADY_EXISTS = "tag-already-exists"
    TAG_PREVIOUSLY_DELETED = "tag-previously-deleted"
    MOVE_WONT_OVERWRITE = "move-wont-overwrite"
    READ_ONLY_SESSION = "read-only-session"
    READ_ONLY_STORE = "read-only-store"
    READ_ONLY_STORAGE = "read-only-storage"
    READ_ONLY_REPOSITORY = "read-only-repository"
    INVALID_KEY = "invalid-key"
    INVALID_CHUNK_INDEX = "invalid-chunk-index"
    ZERO_LENGTH_CHUNK = "zero-length-chunk"
    INVALID_MANIFEST_SPLIT_INDEX = "invalid-manifest-split-index"
    INVALID_REF_TYPE = "invalid-ref-type"
    INVALID_REF_NAME = "invalid-ref-name"
    INVALID_SNAPSHOT_ID = "invalid-snapshot-id"
    INVALID_PATH = "invalid-path"
    BAD_KEY_PREFIX = "bad-key-prefix"
    BAD_METADATA = "bad-metadata"
    BAD_PREFIX = "bad-prefix"
    NOT_AN_ARRAY = "not-an-array"
    NOT_A_GROUP = "not-a-group"
    INVALID_BYTE_RANGE = "invalid-byte-range"
    INVALID_COMMIT_CONFIGURATION = "invalid-commit-configuration"
    INVALID_ARRAY_METADATA = "invalid-array-metadata"
    INVALID_FEATURE_FLAG = "invalid-feature-flag"
    INVALID_VIRTUAL_REF = "invalid-virtual-ref"
    INVALID_CREDENTIALS = "invalid-credentials"
    NO_CONTAINER_FOR_VIRTUAL_CHUNK = "no-container-for-virtual-chunk"
    UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER = "unauthorized-virtual-chunk-container"
    EMPTY_PREFIX_CREATION = "empty-prefix-creation"
    PARENT_DIRECTORY_NOT_CLEAN = "parent-directory-not-clean"
    BAD_SNAPSHOT_CHAIN_FOR_DIFF = "bad-snapshot-chain-for-diff"
    COMMIT_NOT_ALLOWED = "commit-not-allowed"
    MERGE_NOT_ALLOWED = "merge-not-allowed"
    CANNOT_FORK_READ_ONLY_SESSION = "cannot-fork-read-only-session"
    REARRANGE_SESSION_ONLY = "rearrange-session-only"
    NON_REARRANGE_SESSION = "non-rearrange-session"
    MOVE_INTO_SELF_OR_DESCENDANT = "move-into-self-or-descendant"
    MOVE_DESTINATION_PARENT_MISSING = "move-destination-parent-missing"
    MOVE_DESTINATION_PARENT_NOT_GROUP = "move-destination-parent-not-group"
    NO_CHANGES_TO_COMMIT = "no-changes-to-commit"
    NO_AMEND_FOR_INITIAL_COMMIT = "no-amend-for-initial-commit"
    NOT_ON_BRANCH = "not-on-branch"
    NO_SNAPSHOT = "no-snapshot"
    CANNOT_DELETE_MAIN = "cannot-delete-main"
    UNCOMMITTED_CHANGES = "uncommitted-changes"
    MERGE_FAILED = "merge-failed"
    NOT_ALLOWED = "not-allowed"
    UNIMPLEMENTED = "unimplemented"
    REBASE_TX_LOG_PRUNED = "rebase-tx-log-pruned"
    FEATURE_FLAG_DISABLED = "feature-flag-disabled"
    TAG_ERROR = "tag-error"
    INVALID_REPOSITORY_MIGRATION = "invalid-repository-migration"
    OBJECT_NOT_FOUND = "object-not-found"
    OBJECT_STORE = "object-store"
    IO = "io"
    STORAGE_CONFIG = "storage-config"
    CANNOT_PARSE_URL = "cannot-parse-url"
    BAD_REDIRECT = "bad-redirect"
    SEMAPHORE_ACQUIRE = "semaphore-acquire"
    THROTTLED = "throttled"
    STORAGE_OTHER = "storage-other"
    VIRTUAL_CHUNK_FETCH = "virtual-chunk-fetch"
    VIRTUAL_CHUNK_MODIFIED = "virtual-chunk-modified"
    INVALID_OBJECT_SIZE = "invalid-object-size"
    SERIALIZATION = "serialization"
    DESERIALIZATION = "deserialization"
    CONFIG_DESERIALIZATION = "config-deserialization"
    INVALID_FILE_FORMAT = "invalid-file-format"
    UNSUPPORTED_SPEC_VERSION = "unsupported-spec-version"
    UNSUPPORTED_OPERATION_FOR_VERSION = "unsupported-operation-for-version"
    SNAPSHOT_TIMESTAMP = "snapshot-timestamp"
    DUPLICATE_SNAPSHOT_ID = "duplicate-snapshot-id"
    CONCURRENCY = "concurrency"
    FLUSH = "flush"
    PARTIAL_VALUES_PANIC = "partial-values-panic"
    CONFLICTING_PATH_NOT_FOUND = "conflicting-path-not-found"
    INCONSISTENT_MANIFESTS = "inconsistent-manifests"
    POISON_LOCK = "poison-lock"
    PICKLE = "pickle"
    UNKNOWN = "unknown"


class CommitNotAllowedError(SessionStateError, ReadOnlyError):
    """A read-only session or a fork does not commit."""

    def __init__(self, message: str, kind: str = ErrorKind.COMMIT_NOT_ALLOWED) -> None:
        super().__init__(message, kind)


class RefusedByStateError(SessionStateError, InvalidInputError):
    """An argument that Icechunk takes for a state in which the operation is not allowed."""


class MissingArrayError(NodeNotFoundError, InvalidInputError):
    """A path at which there is no array."""


class UnknownSnapshotError(SnapshotNotFoundError, InvalidInputError):
    """An id that is one of Icechunk's, and that no snapshot of arraystore can have."""


class RepositoryExistsError(InvalidInputError, AlreadyExistsError):
    """There is a repository already: the place is not clean."""


class TargetExistsError(AlreadyExistsError, InvalidInputError):
    """There is a node where another one is moved to."""


class _Phrase(NamedTuple):
    """Message of Icechunk where an error of arraystore has this class and matches this pattern."""

    error: type[Exception]
    pattern: str
    kind: ErrorKind
    phrase: str = ""
    instead: type[ArrayStoreError] | None = None
    """Class to raise where Icechunk raises another one: a subclass of both."""


_PHRASES = (
    _Phrase(RepositoryNotFoundError, "", ErrorKind.REPOSITORY_NOT_FOUND, "the repository doesn't exist"),
    _Phrase(RefNotFoundError, "branch .*was deleted; nothing was committed", ErrorKind.BRANCH_NOT_FOUND),
    _Phrase(RefNotFoundError, "", ErrorKind.REF_NOT_FOUND, "ref not found"),
    _Phrase(SnapshotNotFoundError, "or before", ErrorKind.NO_SNAPSHOT_AT_TIME),
    _Phrase(SnapshotNotFoundError, "", ErrorKind.SNAPSHOT_NOT_FOUND),
    _Phrase(NodeNotFoundError, "", ErrorKind.NODE_NOT_FOUND, "node not found"),
    _Phrase(
        InvalidInputError,
        "the target exists already|root group cannot be replaced",
        ErrorKind.MOVE_WONT_OVERWRITE,
        "move cannot overwrite existing node",
        TargetExistsError,
    ),
    _Phrase(AlreadyExistsError, "tag .*deleted", ErrorKind.TAG_PREVIOUSLY_DELETED),
    _Phrase(AlreadyExistsError, "tag", ErrorKind.TAG_ALREADY_EXISTS, "tag already exists"),
    _Phrase(AlreadyExistsError, "branch", ErrorKind.BRANCH_ALREADY_EXISTS, "branch already exists"),
    _Phrase(
        AlreadyExistsError,
        "there is a repository at",
        ErrorKind.PARENT_DIRECTORY_NOT_CLEAN,
        "repositories can only be created in clean prefixes",
        RepositoryExistsError,
    ),
    _Phrase(CommitNotAllowedError, "", ErrorKind.COMMIT_NOT_ALLOWED),
    _Phrase(ReadOnlyError, "repository.*read-only", ErrorKind.READ_ONLY_REPOSITORY, "repository status is read-only"),
    _Phrase(ReadOnlyError, "store", ErrorKind.READ_ONLY_STORE),
    _Phrase(ReadOnlyError, "", ErrorKind.READ_ONLY_SESSION),
    _Phrase(
        SourceChangedError, "found no such object", ErrorKind.VIRTUAL_CHUNK_FETCH, "error fetching virtual reference"
    ),
    _Phrase(SourceChangedError, "", ErrorKind.VIRTUAL_CHUNK_MODIFIED, "the checksum of the chunk has changed"),
    _Phrase(VirtualReferenceError, "in none of the containers", ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK),
    _Phrase(VirtualReferenceError, "but not authorised", ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER),
    _Phrase(StorageError, "out of range, the object has .*the reference", ErrorKind.INVALID_OBJECT_SIZE),
    _Phrase(InvalidInputError, "outside of the grid", ErrorKind.INVALID_CHUNK_INDEX),
    _Phrase(
        InvalidInputError,
        "there is no array|must be that of a chunk of an array",
        ErrorKind.NODE_NOT_FOUND,
        "node not found",
        MissingArrayError,
    ),
    _Phrase(InvalidInputError, "there is no flag", ErrorKind.INVALID_FEATURE_FLAG),
    _Phrase(InvalidInputError, "'main' cannot be deleted", ErrorKind.CANNOT_DELETE_MAIN, instead=RefusedByStateError),
    _Phrase(
        InvalidInputError,
        "is switched off in this repository",
        ErrorKind.FEATURE_FLAG_DISABLED,
        "disabled by a feature flag",
        RefusedByStateError,
    ),
    _Phrase(
        InvalidInputError,
        "the first snapshot of a repository cannot be amended",
        ErrorKind.NO_AMEND_FOR_INITIAL_COMMIT,
        instead=RefusedByStateError,
    ),
    _Phrase(InvalidInputError, "is not empty: it has", ErrorKind.PARENT_DIRECTORY_NOT_CLEAN),
    _Phrase(
        InvalidInputError,
        r"is not a valid id: it must be < 2\*\*96",
        ErrorKind.SNAPSHOT_NOT_FOUND,
        "snapshot id not found",
        UnknownSnapshotError,
    ),
    _Phrase(InvalidInputError, "is not a valid( snapshot)? id", ErrorKind.INVALID_SNAPSHOT_ID),
    _Phrase(
        InvalidInputError,
        "moved into itself|root group cannot be moved",
        ErrorKind.MOVE_INTO_SELF_OR_DESCENDANT,
        "cannot move a node into itself or its own descendant",
        RefusedByStateError,
    ),
    _Phrase(
        InvalidInputError,
        "moved to .*there is no group",
        ErrorKind.MOVE_DESTINATION_PARENT_MISSING,
        "the destination's parent group does not exist",
    ),
    _Phrase(InvalidInputError, "moved to .*is an array, not a group", ErrorKind.MOVE_DESTINATION_PARENT_NOT_GROUP),
    _Phrase(
        SessionStateError,
        "(nothing|no changes)",
        ErrorKind.NO_CHANGES_TO_COMMIT,
        "cannot commit, no changes made to the session",
    ),
)


class MetadataTypeError(InvalidInputError, TypeError):
    """Metadata of a commit that cannot be stored."""


def refine(error: ArrayStoreError) -> ArrayStoreError | None:
    """Give an error the kind and the words that Icechunk's users look for, in front of its own.

    Returns the error to raise in its place where Icechunk raises one of another class, else None.
    """
    for phrase in _PHRASES:
        if isinstance(error, phrase.error) and re.search(phrase.pattern, error.message, re.DOTALL):
            say(error, phrase.kind, phrase.phrase)
            if phrase.instead is not None and not isinstance(error, phrase.instead):
                return phrase.instead(error.message, phrase.kind)
            break
    if isinstance(error, RebaseFailedError):
        error.conflicts[:] = as_listed(map(Conflict.of, error.conflicts))
    if isinstance(error, InvalidInputError) and error.message.startswith("commit metadata must be"):
        return MetadataTypeError(error.message, ErrorKind.INVALID_COMMIT_CONFIGURATION)
    return None


def say(error: ArrayStoreError, kind: ErrorKind, phrase: str = "") -> None:
    """Set the kind of an error and put a phrase in front of its message, once."""
    error.kind = kind
    if phrase and phrase not in error.message:
        error.args = (f"{phrase}: {error.message}", *error.args[1:])
