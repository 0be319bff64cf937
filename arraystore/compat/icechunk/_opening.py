"""Creating and opening repositories: what Icechunk's arguments and configuration mean to arraystore."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import arraystore
from arraystore import storage as core
from arraystore._repository.settings import set_setting
from arraystore.compat.icechunk._containers import open_containers
from arraystore.compat.icechunk._saved import from_saved, to_saved
from arraystore.compat.icechunk.config import Attribution, RepositoryConfig, agent_of
from arraystore.compat.icechunk.storage import Storage, StorageSettings
from arraystore.compat.icechunk.types import SpecVersion
from arraystore.errors import AlreadyExistsError, FormatError, InvalidInputError, RepositoryNotFoundError

SETTING = "icechunk"
"""Name of the setting with what arraystore's own configuration cannot say."""

Access = Mapping[str, Any] | None


@dataclass(frozen=True)
class Opened:
    """An open repository, and what it was opened with."""

    core: arraystore.Repository
    storage: Storage
    config: RepositoryConfig
    access: Access
    attribution: Attribution
    spec_version: SpecVersion


def core_storage(
    storage: Any, settings: StorageSettings | None = None, attribution: Attribution | None = None
) -> core.Storage:
    """Return the storage of arraystore, whose requests tell an attribution; one of its own is taken as it is."""
    if isinstance(storage, core.Storage):
        return storage
    if not isinstance(storage, Storage):
        raise InvalidInputError(f"storage must be a Storage, not a {type(storage).__name__}", "storage-config")
    return storage.core(settings, "" if attribution is None else agent_of(attribution))


def spec_version(version: Any) -> SpecVersion:
    """Return the version that was asked for."""
    if version is None:
        return SpecVersion.current()
    if not isinstance(version, int):
        raise ValueError(f"Couldn't parse a valid version from {version!r}")
    if version not in set(map(int, SpecVersion)):
        raise ValueError(f"Unsupported version {version}: choose from {[int(known) for known in SpecVersion]}")
    return SpecVersion(version)


async def create(
    storage: Storage,
    config: RepositoryConfig | None,
    access: Access,
    version: Any,
    check_clean_root: bool,
    attribution: Attribution | None,
) -> Opened:
    """Create a repository, and save what it was created with."""
    chosen, wanted = copied(config or RepositoryConfig()), spec_version(version)
    repository = await arraystore.Repository.create_async(
        core_storage(storage, chosen.storage, attribution),
        chosen.core(),
        authorize_virtual_chunk_access=open_containers(chosen, access),
        check_clean_root=check_clean_root,
    )
    opened = Opened(repository, storage, chosen, access, attribution or Attribution(), wanted)
    if chosen != RepositoryConfig() or wanted != SpecVersion.current():
        await _save(opened)
    return opened


async def open_(storage: Storage, config: RepositoryConfig | None, access: Access, by: Attribution | None) -> Opened:
    """Open a repository; what the configuration does not say is as it was saved."""
    where = core_storage(storage, None if config is None else config.storage, by)
    repository = await arraystore.Repository.open_async(where)
    saved, version = await _saved(repository)
    opened = Opened(repository, storage, saved, access, by or Attribution(), version)
    chosen = saved.merge(copied(config or RepositoryConfig()))
    if chosen == RepositoryConfig() and not access:
        return opened
    return await _with(opened, chosen, access)


async def open_or_create(
    storage: Storage,
    config: RepositoryConfig | None,
    access: Access,
    version: Any,
    check_clean_root: bool,
    attribution: Attribution | None,
) -> Opened:
    """Open a repository, or create it where there is none."""
    try:
        return await open_(storage, config, access, attribution)
    except RepositoryNotFoundError:
        pass
    try:
        return await create(storage, config, access, version, check_clean_root, attribution)
    except AlreadyExistsError:  # another process was faster
        return await open_(storage, config, access, attribution)


async def reopen(opened: Opened, config: RepositoryConfig | None, access: Access) -> Opened:
    """Open a repository again."""
    chosen = opened.config if config is None else opened.config.merge(copied(config))
    return await _with(opened, chosen, opened.access if access is None else access)


async def _with(opened: Opened, config: RepositoryConfig, access: Access) -> Opened:
    repository = await arraystore.Repository.open_async(
        core_storage(opened.storage, config.storage, opened.attribution),
        config.core(),
        authorize_virtual_chunk_access=open_containers(config, access),
    )
    return replace(opened, core=repository, config=config, access=access)


async def fetch_spec_version(storage: Storage, settings: StorageSettings | None) -> SpecVersion | None:
    """Return the version that a repository was created with; None if there is none."""
    try:
        repository = await arraystore.Repository.open_async(core_storage(storage, settings))
    except RepositoryNotFoundError:
        return None
    return (await _saved(repository))[1]


async def fetch_config(storage: Storage) -> RepositoryConfig | None:
    """Return the configuration that is saved in a repository; None if there is none."""
    repository = await arraystore.Repository.open_async(core_storage(storage))
    config = (await _saved(repository))[0]
    unsaved = SETTING not in (await repository.context.repository_log.table()).settings
    return None if unsaved and config == RepositoryConfig() else config


async def save_config(opened: Opened) -> None:
    """Save the configuration that a repository was opened with."""
    await opened.core.save_config_async()
    await _save(opened)


async def migrate(opened: Opened) -> Opened:
    """Note that a repository has the current version."""
    now = replace(opened, spec_version=SpecVersion.current())
    await _save(now)
    return now


async def _save(opened: Opened) -> None:
    value = {"config": to_saved(opened.config), "spec_version": int(opened.spec_version)}
    await set_setting(opened.core.context, SETTING, value)


async def _saved(repository: arraystore.Repository) -> tuple[RepositoryConfig, SpecVersion]:
    value = (await repository.context.repository_log.table()).settings.get(SETTING)
    if value is None:
        inline = repository.config.inline_chunk_threshold_bytes
        is_default = inline == arraystore.RepositoryConfig().inline_chunk_threshold_bytes
        return RepositoryConfig(inline_chunk_threshold_bytes=None if is_default else inline), SpecVersion.current()
    return from_saved(value["config"]), SpecVersion(value["spec_version"])


def check_version(opened: Opened, what: str) -> None:
    """Check that the program did not ask for a version of the format without an operation."""
    if opened.spec_version < SpecVersion.v2:
        raise FormatError(
            what,
            "this repository was created with spec_version=1, which does not have it: "
            "upgrade it with upgrade_icechunk_repository",
        )


def copied(config: RepositoryConfig) -> RepositoryConfig:
    """Return a copy, since configurations are mutable."""
    return copy.deepcopy(config)


def check_ref(branch: str | None, tag: str | None, snapshot_id: str | None, as_of: datetime | None) -> None:
    """Check that one snapshot is named, with the errors of Python that Icechunk raises."""
    if sum(value is not None for value in (branch, tag, snapshot_id)) != 1:
        raise ValueError("Must provide exactly one of branch, tag, or snapshot_id")
    if as_of is None:
        return
    if branch is None:
        raise ValueError("as_of argument must be provided with a branch name")
    if not isinstance(as_of, datetime) or as_of.tzinfo is None:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("as_of must be a datetime with a time zone")
