"""What a repository says of itself: configuration, metadata, status, flags, and the log of what was done to it."""

from __future__ import annotations

import asyncio
from typing import Any

from arraystore._chunks.virtual_containers import VirtualContainers
from arraystore._commit.note import check_note
from arraystore._config import RepositoryConfig
from arraystore._format.envelope import pack_body
from arraystore._format.record import Body, Fence
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
from arraystore._repository.base import RepositoryBase
from arraystore._repository.creation import find_repository
from arraystore._runtime import run
from arraystore.errors import InvalidInputError, RepositoryNotFoundError
from arraystore.storage.protocol import Storage

__all__ = ["SettingsMixin"]


class SettingsMixin(RepositoryBase):
    """Settings that are kept in the repository."""

    async def _set(self, name: str, value: Any, *, checked: bool = True) -> RepositoryTable:
        """Keep a setting; unless told otherwise only where the repository may be changed."""
        entry = _setting(self._context.environment.now_us(), name, value)

        def decide(table: RepositoryTable) -> RepositoryEntry:
            if checked:
                check_allowed(table, name)
            return entry

        return await self._context.repository_log.append(decide)

    # -- configuration --------------------------------------------------------------------------------------

    @staticmethod
    def fetch_config(storage: Storage) -> RepositoryConfig | None:
        """Return the configuration that a repository keeps; None if there is no repository."""
        return run(SettingsMixin.fetch_config_async(storage))

    @staticmethod
    async def fetch_config_async(storage: Storage) -> RepositoryConfig | None:
        """Asynchronous twin of `fetch_config`."""
        try:
            context, info = await find_repository(storage, None, VirtualContainers(None))
        except RepositoryNotFoundError:
            return None
        kept = (await context.repository_log.table()).settings.get("config")
        return RepositoryConfig.from_dict(info.config if kept is None else kept)

    def save_config(self, config: RepositoryConfig | None = None) -> None:
        """Keep a configuration in the repository, for all who open it from now on.

        Parameters
        ----------
        config
            The configuration; by default the one that this object was opened with.
        """
        run(self.save_config_async(config))

    async def save_config_async(self, config: RepositoryConfig | None = None) -> None:
        """Asynchronous twin of `save_config`."""
        table = await self._set("config", (config or self.config).to_dict())
        log = self._context.log(FIRST_BRANCH)
        log.settings = max(log.settings, table.number)
        state = await self._context.newest_state(FIRST_BRANCH)
        await put_hint_of(log, state)  # so that who opens the repository knows that there is something to look up

    # -- metadata -------------------------------------------------------------------------------------------

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata of the repository: JSON values by name."""
        return run(self.get_metadata_async())

    async def get_metadata_async(self) -> dict[str, Any]:
        """Asynchronous twin of `get_metadata`."""
        return setting_of(await self._context.repository_log.table(), "metadata")

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of the repository."""
        return self.get_metadata()

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace the metadata of the repository.

        Raises
        ------
        InvalidInputError
            If it cannot be stored.
        ReadOnlyError
            If the repository is read-only.
        """
        run(self.set_metadata_async(metadata))

    async def set_metadata_async(self, metadata: dict[str, Any]) -> None:
        """Asynchronous twin of `set_metadata`."""
        _check_metadata(metadata)
        await self._set("metadata", metadata)

    def update_metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Set some of the metadata of the repository, and return all of it."""
        return run(self.update_metadata_async(metadata))

    async def update_metadata_async(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Asynchronous twin of `update_metadata`."""
        now = self._context.environment.now_us()
        _check_metadata(metadata)

        def decide(table: RepositoryTable) -> RepositoryEntry:
            check_allowed(table, "metadata")
            return _setting(now, "metadata", {**setting_of(table, "metadata"), **metadata})

        table = await self._context.repository_log.append(decide)
        return dict(table.settings["metadata"])

    # -- retention ------------------------------------------------------------------------------------------

    def get_retention(self) -> str | None:
        """Return the retention policy that `maintain` expires snapshots by; None if there is none."""
        return run(self.get_retention_async())

    async def get_retention_async(self) -> str | None:
        """Asynchronous twin of `get_retention`."""
        found = (await self._context.repository_log.table()).settings.get("retention")
        return None if found is None else str(found)

    def set_retention(self, policy: str | None) -> None:
        """Keep a retention policy in the repository.

        Parameters
        ----------
        policy
            ``"all for 2 days, daily for 30 days, weekly for a year"``, for instance; None for none.

        Raises
        ------
        InvalidInputError
            If it is no policy.
        """
        run(self.set_retention_async(policy))

    async def set_retention_async(self, policy: str | None) -> None:
        """Asynchronous twin of `set_retention`."""
        if policy is not None:
            parse_policy(policy)
        await self._set("retention", policy)

    # -- status ---------------------------------------------------------------------------------------------

    def get_status(self) -> RepoStatus:
        """Return whether the repository may be changed."""
        return run(self.get_status_async())

    async def get_status_async(self) -> RepoStatus:
        """Asynchronous twin of `get_status`."""
        return status_of_table(await self._context.repository_log.table())

    @property
    def status(self) -> RepoStatus:
        """Whether the repository may be changed."""
        return self.get_status()

    def set_status(self, status: RepoStatus) -> None:
        """Say whether the repository may be changed.

        Read-only holds for every commit from the moment that this returns, those of sessions that are open included.
        """
        run(self.set_status_async(status))

    async def set_status_async(self, status: RepoStatus) -> None:
        """Asynchronous twin of `set_status`."""
        if not isinstance(status, RepoStatus):
            raise InvalidInputError(f"a status is a RepoStatus, not a {type(status).__name__}")
        reason = status.limited_availability_reason
        value = {
            "availability": str(status.availability.value),
            "set_at": self._context.environment.now_us(),
            "reason": reason,
        }
        table = await self._set("status", value, checked=False)
        while True:  # whoever says so last sees to it that every branch knows
            await self._tell_branches(table)
            newest = await self._context.repository_log.table()
            if newest.settings.get("status") == table.settings.get("status") and newest.branches == table.branches:
                return
            table = newest

    async def _tell_branches(self, table: RepositoryTable) -> None:
        read_only = status_of_table(table).availability == RepoAvailability.read_only
        now = self._context.environment.now_us()

        def decide(tip: Tip) -> Body | None:
            life = tip.state.life
            if life.deleted or life.read_only == read_only:
                return None
            return Fence(life.fence, now, read_only)

        async def tell(branch: str) -> None:
            log = self._context.log(branch)
            self._context.seen(await append_when(log, await settle(log, table), decide))

        await asyncio.gather(*(tell(name) for name, row in table.branches.items() if not row.deleted))

    # -- flags ----------------------------------------------------------------------------------------------

    def feature_flags(self) -> list[FeatureFlag]:
        """Return the operations that can be switched off, and whether they are."""
        return run(self.feature_flags_async())

    async def feature_flags_async(self) -> list[FeatureFlag]:
        """Asynchronous twin of `feature_flags`."""
        return flags_of(await self._context.repository_log.table())

    def enabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the operations that are allowed."""
        return [flag for flag in self.feature_flags() if flag.enabled]

    def disabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the operations that are switched off."""
        return [flag for flag in self.feature_flags() if not flag.enabled]

    def set_feature_flag(self, name: str, setting: bool | None) -> None:
        """Allow an operation, switch it off, or leave it at its default.

        Parameters
        ----------
        name
            Of the operation: one of those that `feature_flags` lists.
        setting
            Whether it is allowed; None for the default.
        """
        run(self.set_feature_flag_async(name, setting))

    async def set_feature_flag_async(self, name: str, setting: bool | None) -> None:
        """Asynchronous twin of `set_feature_flag`."""
        if name not in FLAGS:
            raise InvalidInputError(f"there is no flag {name!r}; there are {', '.join(FLAGS)}")
        if setting is not None and not isinstance(setting, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(f"flag {name!r} is True, False or None for its default, not {setting!r}")
        now = self._context.environment.now_us()

        def decide(table: RepositoryTable) -> RepositoryEntry:
            check_allowed(table, "flags")
            kept = {**setting_of(table, "flags"), name: setting}
            return _setting(now, "flags", kept)

        await self._context.repository_log.append(decide)


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, dict):
        raise InvalidInputError(f"metadata is a dict, not a {type(metadata).__name__}")
    check_note("", metadata)


def _setting(now: int, name: str, value: Any) -> RepositoryEntry:
    """Return the entry for a setting; raises `InvalidInputError` if it is too large to be repeated by records."""
    size = len(pack_body(value))
    if size > MAX_SETTING:
        raise InvalidInputError(f"the {name} of a repository takes at most {MAX_SETTING} bytes, not {size}")
    return RepositoryEntry(RepositoryOperation.SETTING, now, name, value=value)
