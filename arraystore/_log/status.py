"""Status and feature flags of a repository: settings, checked before changes."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from arraystore._format.repository_log import RepositoryTable
from arraystore._log.state import SnapshotState
from arraystore.errors import ArrayStoreError, FormatError, InvalidInputError, ReadOnlyError, RefNotFoundError

FLAGS = ("create_branch", "create_tag", "delete_branch", "delete_tag", "move_node")
"""Operations that can be switched off."""

_REOPEN = "`arraystore set-status URL online`, or set_status, makes it writable again"


class RepoAvailability(enum.StrEnum):
    """Availability: whether a repository may be changed."""

    online = "online"
    read_only = "read_only"


@dataclass(frozen=True)
class RepoStatus:
    """Status of a repository.

    Parameters
    ----------
    availability
        Whether it may be changed.
    set_at
        Since when, by the clock of whoever said so; None if nobody ever did.
    limited_availability_reason
        Why, for people.
    """

    availability: RepoAvailability
    set_at: datetime | None = None
    limited_availability_reason: str | None = None


@dataclass(frozen=True)
class FeatureFlag:
    """An operation that can be switched off.

    Parameters
    ----------
    name
        Of the operation.
    default_enabled
        What holds where nothing is said.
    setting
        What was said; None for nothing.
    """

    name: str
    default_enabled: bool = True
    setting: bool | None = None

    @property
    def enabled(self) -> bool:
        """Tell whether the operation is allowed."""
        return self.default_enabled if self.setting is None else self.setting


def setting_of(table: RepositoryTable, name: str) -> dict[str, Any]:
    """Return a setting that must be a map; raises `FormatError` if it is not."""
    kept = table.settings.get(name)
    if kept is None:
        return {}
    if not isinstance(kept, dict):
        raise FormatError(f"record {table.number} of the repository log", f"the setting {name!r} must be a map")
    return dict(kept)  # pyright: ignore[reportUnknownArgumentType] - maps in free-form data have text keys


def status_of_table(table: RepositoryTable) -> RepoStatus:
    """Return the status in a table."""
    kept = setting_of(table, "status")
    since, reason = kept.get("set_at"), kept.get("reason")
    try:
        availability = RepoAvailability(kept.get("availability", "online"))
        when = None if since is None else datetime.fromtimestamp(since / 1_000_000, UTC)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise FormatError(f"record {table.number} of the repository log", f"the status is not valid: {error}") from None
    return RepoStatus(availability, when, None if reason is None else str(reason))


def flags_of(table: RepositoryTable) -> list[FeatureFlag]:
    """Return all feature flags of a table."""
    kept = setting_of(table, "flags")
    return [FeatureFlag(name, True, kept.get(name)) for name in FLAGS]


def check_allowed(table: RepositoryTable, operation: str) -> None:
    """Check an operation; raises `ReadOnlyError` in a read-only repository, `InvalidInputError` for a disabled one."""
    status = status_of_table(table)
    if status.availability == RepoAvailability.read_only:
        reason = status.limited_availability_reason
        raise ReadOnlyError(f"the repository is read-only{f': {reason}' if reason else ''}; {_REOPEN}")
    if not all(flag.enabled for flag in flags_of(table) if flag.name == operation):
        raise InvalidInputError(
            f"{operation} is switched off in this repository; set_feature_flag({operation!r}, True) allows it"
        )


def branch_deleted_error(branch: str) -> RefNotFoundError:
    """Return the error of a commit to a deleted branch."""
    return RefNotFoundError(f"branch {branch!r} was deleted; nothing was committed")


def check_open(state: SnapshotState) -> ArrayStoreError | None:
    """Return the error of a branch that takes no commits; None if it does."""
    if state.life.deleted:
        return branch_deleted_error(state.branch)
    if state.life.read_only:
        return ReadOnlyError(
            f"the repository is read-only, so nothing can be committed to branch {state.branch!r}; "
            f"`arraystore status`, or get_status, gives the reason, and {_REOPEN}"
        )
    return None
