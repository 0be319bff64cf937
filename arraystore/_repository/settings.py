"""Settings in the repository log: configuration, metadata, retention, status and feature flags."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from arraystore._commit.note import check_note
from arraystore._context.config import RepositoryConfig
from arraystore._context.context import Context
from arraystore._format.envelope import pack_body
from arraystore._format.lifecycle import Fence
from arraystore._format.record import Body
from arraystore._format.repository_log import (
    FIRST_BRANCH,
    MAX_SETTING,
    RepositoryEntry,
    RepositoryOperation,
    RepositoryTable,
)
from arraystore._log.branch_entries import append_when, settle
from arraystore._log.loading import Tip
from arraystore._log.status import (
    FLAGS,
    FeatureFlag,
    RepoAvailability,
    RepoStatus,
    check_allowed,
    flags_of,
    setting_of,
    status_of_table,
)
from arraystore._maintenance.checkpoints import put_hint_of
from arraystore._maintenance.retention_policy import parse_policy
from arraystore._repository.creation import check_config, find_repository
from arraystore.errors import InvalidInputError, RepositoryNotFoundError
from arraystore.storage.protocol import Storage


async def set_setting(context: Context, name: str, value: Any, *, checked: bool = True) -> RepositoryTable:
    """Save a setting; with `checked` only where the repository may be changed."""
    entry = _entry(context.environment.now_us(), name, value)

    def decide(table: RepositoryTable) -> RepositoryEntry:
        if checked:
            check_allowed(table, name)
        return entry

    return await context.repository_log.append(decide)


async def _update(context: Context, name: str, changed: Mapping[str, Any]) -> RepositoryTable:
    """Save some values of a setting that is a map."""
    now = context.environment.now_us()

    def decide(table: RepositoryTable) -> RepositoryEntry:
        check_allowed(table, name)
        return _entry(now, name, {**setting_of(table, name), **changed})

    return await context.repository_log.append(decide)


def _entry(now: int, name: str, value: Any) -> RepositoryEntry:
    """Return the entry for a setting; raises `InvalidInputError` if it is too large for records to repeat."""
    size = len(pack_body(value))
    if size > MAX_SETTING:
        raise InvalidInputError(f"the {name} of a repository must have at most {MAX_SETTING} bytes, not {size}")
    return RepositoryEntry(RepositoryOperation.SETTING, now, name, value=value)


# -- configuration ------------------------------------------------------------------------------------------


async def fetch_config(storage: Storage) -> RepositoryConfig | None:
    """Return the configuration saved in a repository; None if there is no repository."""
    try:
        context, info = await find_repository(storage, None, None)
    except RepositoryNotFoundError:
        return None
    kept = (await context.repository_log.table()).settings.get("config")
    return RepositoryConfig.from_dict(info.config if kept is None else kept)


async def save_config(context: Context, config: RepositoryConfig) -> None:
    """Save a configuration in the repository."""
    check_config(config)
    table = await set_setting(context, "config", config.to_dict())
    log = context.log(FIRST_BRANCH)
    log.settings = max(log.settings, table.number)
    state = await context.newest_state(FIRST_BRANCH)
    await put_hint_of(log, state)  # so that opening the repository reads the repository log


# -- metadata -----------------------------------------------------------------------------------------------


async def get_metadata(context: Context) -> dict[str, Any]:
    """Return the metadata of the repository."""
    return setting_of(await context.repository_log.table(), "metadata")


async def set_metadata(context: Context, metadata: dict[str, Any]) -> None:
    """Replace the metadata of the repository."""
    _check_metadata(metadata)
    await set_setting(context, "metadata", metadata)


async def update_metadata(context: Context, metadata: dict[str, Any]) -> dict[str, Any]:
    """Set some of the metadata of the repository, and return all of it."""
    _check_metadata(metadata)
    return dict((await _update(context, "metadata", metadata)).settings["metadata"])


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, dict):
        raise InvalidInputError(f"metadata must be a dict, not a {type(metadata).__name__}")
    check_note("", metadata)


# -- retention ----------------------------------------------------------------------------------------------


async def get_retention(context: Context) -> str | None:
    """Return the retention policy of the repository; None if there is none."""
    policy = (await context.repository_log.table()).settings.get("retention")
    return None if policy is None else str(policy)


async def set_retention(context: Context, policy: str | None) -> None:
    """Save a retention policy in the repository."""
    if policy is not None:
        parse_policy(policy)
    await set_setting(context, "retention", policy)


# -- status -------------------------------------------------------------------------------------------------


async def get_status(context: Context) -> RepoStatus:
    """Return the status of the repository."""
    return status_of_table(await context.repository_log.table())


async def set_status(context: Context, status: RepoStatus) -> None:
    """Set the status in the repository log, then in the log of every branch."""
    if not isinstance(status, RepoStatus):  # pyright: ignore[reportUnnecessaryIsInstance] - of a caller without types
        raise InvalidInputError(f"status must be a RepoStatus, not a {type(status).__name__}")
    value = {
        "availability": str(status.availability.value),
        "set_at": context.environment.now_us(),
        "reason": status.limited_availability_reason,
    }
    table = await set_setting(context, "status", value, checked=False)
    while True:  # the last writer appends it to every branch
        await _set_in_branches(context, table)
        newest = await context.repository_log.table()
        if newest.settings.get("status") == table.settings.get("status") and newest.branches == table.branches:
            return
        table = newest


async def _set_in_branches(context: Context, table: RepositoryTable) -> None:
    """Append the availability to the log of each branch, unless it has it already."""
    read_only = status_of_table(table).availability == RepoAvailability.read_only
    now = context.environment.now_us()

    def decide(tip: Tip) -> Body | None:
        life = tip.state.life
        if life.deleted or life.read_only == read_only:
            return None
        return Fence(life.fence, now, read_only)

    async def append(branch: str) -> None:
        log = context.log(branch)
        context.seen(await append_when(log, await settle(log, table), decide))

    await asyncio.gather(*(append(name) for name, row in table.branches.items() if not row.deleted))


# -- feature flags ------------------------------------------------------------------------------------------


async def feature_flags(context: Context) -> list[FeatureFlag]:
    """Return the operations that can be switched off, with their settings."""
    return flags_of(await context.repository_log.table())


async def set_feature_flag(context: Context, name: str, setting: bool | None) -> None:
    """Allow an operation, switch it off, or leave it at its default."""
    if name not in FLAGS:
        raise InvalidInputError(f"there is no flag {name!r}; there are {', '.join(FLAGS)}")
    if setting is not None and not isinstance(setting, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"flag {name!r} must be True, False, or None for its default, not {setting!r}")
    await _update(context, "flags", {name: setting})
