"""Operations on a repository, and what a garbage collection deleted."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar

from arraystore._format.repository_log import FIRST_BRANCH
from arraystore._history import operations_log as core
from arraystore._log.status import FLAGS, RepoAvailability
from arraystore._log.status import RepoStatus as CoreStatus
from arraystore._maintenance.collection import summary
from arraystore.compat.icechunk._display import Shown, source
from arraystore.compat.icechunk.snapshots import FIRST_SNAPSHOT

FLAG_IDS = {"create_branch": 1, "delete_branch": 2, "move_node": 3, "create_tag": 4, "delete_tag": 5}
"""Numbers of the flags; Icechunk has the last three."""

__all__ = ["GCSummary", "RepoAvailability", "RepoStatus", "Update", "UpdateType"]


@dataclass(frozen=True, repr=False)
class RepoStatus(Shown, CoreStatus):
    """Availability: whether a repository may be changed."""

    _title: ClassVar[str] = "icechunk.repository.RepoStatus"

    def _rows(self) -> Mapping[str, Any]:
        names = {RepoAvailability.online: "Online", RepoAvailability.read_only: "ReadOnly"}
        return {**vars(self), "availability": names[self.availability]}


@dataclass(frozen=True, repr=False)
class GCSummary(Shown):
    """Result of a garbage collection."""

    _title: ClassVar[str] = "icechunk.ops.GCSummary"

    bytes_deleted: int
    chunks_deleted: int
    manifests_deleted: int
    snapshots_deleted: int
    attributes_deleted: int
    transaction_logs_deleted: int
    objects_failed_to_delete: int = 0
    throttled_batches: int = 0
    delete_errors: list[str] = field(default_factory=list)
    skipped_phases: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, found: summary.GCSummary) -> GCSummary:
        """Return a summary of arraystore as one of Icechunk."""
        return cls(
            found.bytes_deleted,
            found.chunks_deleted,
            found.manifests_deleted,
            found.snapshots_deleted,
            found.attributes_deleted,
            found.transaction_logs_deleted,
            len(found.failures),
            0,
            [str(failure) for failure in found.failures],
        )


@dataclass(frozen=True, repr=False)
class UpdateType:
    """Operation on a repository; its kinds, which are classes of their own, say which fields they have."""

    BranchCreated: ClassVar[type[_Named]]
    BranchDeleted: ClassVar[type[_NamedBefore]]
    BranchReset: ClassVar[type[_NamedBefore]]
    CommitAmended: ClassVar[type[_Amended]]
    ConfigChanged: ClassVar[type[UpdateType]]
    ExpirationRan: ClassVar[type[UpdateType]]
    FeatureFlagChanged: ClassVar[type[_Flag]]
    GCRan: ClassVar[type[UpdateType]]
    MetadataChanged: ClassVar[type[UpdateType]]
    NewCommit: ClassVar[type[_Committed]]
    NewDetachedSnapshot: ClassVar[type[_Detached]]
    RepoInitialized: ClassVar[type[UpdateType]]
    RepoMigrated: ClassVar[type[_Migrated]]
    RepoStatusChanged: ClassVar[type[_Status]]
    TagCreated: ClassVar[type[_Named]]
    TagDeleted: ClassVar[type[_NamedBefore]]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={source(value)}" for name, value in vars(self).items())
        return f"icechunk.ops.{type(self).__qualname__}({values})"


@dataclass(frozen=True, repr=False)
class _Named(UpdateType):
    name: str


@dataclass(frozen=True, repr=False)
class _NamedBefore(UpdateType):
    name: str
    previous_snap_id: str


@dataclass(frozen=True, repr=False)
class _Committed(UpdateType):
    branch: str
    new_snap_id: str


@dataclass(frozen=True, repr=False)
class _Amended(UpdateType):
    branch: str
    previous_snap_id: str
    new_snap_id: str


@dataclass(frozen=True, repr=False)
class _Detached(UpdateType):
    new_snap_id: str


@dataclass(frozen=True, repr=False)
class _Migrated(UpdateType):
    from_version: int
    to_version: int


@dataclass(frozen=True, repr=False)
class _Status(UpdateType):
    status: RepoStatus


@dataclass(frozen=True, repr=False)
class _Flag(UpdateType):
    id: int
    new_value: bool | None


_KINDS: dict[str, type[UpdateType]] = {
    "BranchCreated": _Named,
    "BranchDeleted": _NamedBefore,
    "BranchReset": _NamedBefore,
    "CommitAmended": _Amended,
    "ConfigChanged": UpdateType,
    "ExpirationRan": UpdateType,
    "FeatureFlagChanged": _Flag,
    "GCRan": UpdateType,
    "MetadataChanged": UpdateType,
    "NewCommit": _Committed,
    "NewDetachedSnapshot": _Detached,
    "RepoInitialized": UpdateType,
    "RepoMigrated": _Migrated,
    "RepoStatusChanged": _Status,
    "TagCreated": _Named,
    "TagDeleted": _NamedBefore,
}
for _name, _shape in _KINDS.items():
    setattr(UpdateType, _name, type(_name, (_shape,), {"__qualname__": f"UpdateType.{_name}"}))


@dataclass(frozen=True, repr=False)
class Update(Shown):
    """One thing that was done."""

    _title: ClassVar[str] = "icechunk.ops.Update"

    kind: Any
    updated_at: datetime
    backup_path: str | None = None

    @classmethod
    def of(cls, update: core.Update, first: str) -> Update | None:
        """Return an operation of arraystore as one of Icechunk; None for one that Icechunk does not have.

        The id of the first snapshot is replaced by Icechunk's.
        """
        shape = _KINDS.get(update.kind.value)
        if shape is None or update.updated_at is None:
            return None
        details, kind = update.details, getattr(UpdateType, update.kind.value)
        snapshot = str(details.get("snapshot", ""))
        name = str(details.get("name", update.branch or ""))
        values: tuple[Any, ...] = ()
        if shape is _Named:
            values = (name,)
        elif shape is _NamedBefore:
            before = str(details.get("before", ""))
            values = (name, FIRST_SNAPSHOT if before == first else before)
        elif shape is _Committed:
            values = (update.branch, snapshot)
        elif shape is _Amended:
            values = (update.branch, str(details.get("amends", "")), snapshot)
        elif shape is _Status:
            values = (_status_of(details.get("value") or {}, update.updated_at),)
        elif shape is _Flag:
            changed = details.get("value") or {}
            values = next(((FLAG_IDS[flag], on) for flag, on in changed.items()), (0, None))
        return cls(kind(*values), update.updated_at)


@dataclass
class _Held:
    """An operation that waits to be yielded, and the branch or tag whose snapshot before it is not known yet."""

    update: core.Update
    waits_for: tuple[str, str] | None


async def named_before(updates: AsyncIterator[core.Update], first: str) -> AsyncIterator[core.Update]:
    """Yield operations, newest first; resets and deletions with the snapshot that their branch or tag named before."""
    held: deque[_Held] = deque()
    async for update in updates:
        named = _ref_of(update)
        snapshot = first if update.kind == core.UpdateType.RepoInitialized else update.details.get("snapshot")
        for entry in held if snapshot else ():
            if entry.waits_for is not None and entry.waits_for == named:
                details = {**entry.update.details, "before": snapshot}
                entry.update, entry.waits_for = replace(entry.update, details=details), None
        held.append(_Held(update, named if _KINDS.get(update.kind.value) is _NamedBefore else None))
        while held and held[0].waits_for is None:
            yield held.popleft().update
    for entry in held:  # of a time that the logs do not tell of any more
        yield entry.update


def _ref_of(update: core.Update) -> tuple[str, str]:
    """Return what an operation is about: a branch or a tag, and its name."""
    is_tag = update.kind in (core.UpdateType.TagCreated, core.UpdateType.TagDeleted)
    return ("tag", str(update.details.get("name"))) if is_tag else ("branch", update.branch or FIRST_BRANCH)


async def changed_flags(updates: AsyncIterator[core.Update]) -> AsyncIterator[core.Update]:
    """Yield operations, newest first, with the flags that each has changed, not all that are set."""
    held: list[core.Update] = []
    async for update in updates:
        if held and update.kind == core.UpdateType.FeatureFlagChanged:
            yield _difference(held.pop(0), update)
            for other in held:
                yield other
            held = []
        if held or update.kind == core.UpdateType.FeatureFlagChanged:
            held.append(update)
        else:
            yield update
    if held:
        yield _difference(held.pop(0), None)
        for other in held:
            yield other


def _difference(newer: core.Update, older: core.Update | None) -> core.Update:
    """Return a change of flags with those that differ from the change before it."""
    after = newer.details.get("value") or {}
    before = (older.details.get("value") or {}) if older is not None else {}
    names = [name for name in FLAGS if after.get(name) != before.get(name)]
    return replace(newer, details={**newer.details, "value": {name: after.get(name) for name in names}})


def _status_of(value: Mapping[str, Any], when: datetime) -> RepoStatus:
    return RepoStatus(RepoAvailability(value.get("availability", "online")), when, value.get("reason"))
