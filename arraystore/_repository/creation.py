"""Creation and look-up of a repository."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from typing import Any

from arraystore._chunks.virtual_chunk_container import ContainerAccess
from arraystore._chunks.virtual_containers import VirtualContainers
from arraystore._context.config import RepositoryConfig
from arraystore._context.context import Context
from arraystore._environment import current_environment
from arraystore._format.digest import log_start
from arraystore._format.ids import SnapshotId
from arraystore._format.record import Birth, Record, encode_body, encode_record, record_key
from arraystore._format.refs import (
    REPOSITORY_KEY,
    RepositoryInfo,
    branch_prefix,
    decode_repository,
    encode_repository,
)
from arraystore._format.repository_log import FIRST_BRANCH
from arraystore._log.conditional_put import put_surely
from arraystore._log.presence import read_hint
from arraystore._log.repository_log import RepositoryLog
from arraystore.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidInputError,
    ObjectNotFoundError,
    RepositoryNotFoundError,
    UnsupportedStorageError,
)
from arraystore.storage.protocol import Storage, holds

MAIN = FIRST_BRANCH

Containers = Mapping[str, ContainerAccess] | None
"""How containers of virtual chunks are read, by URL prefix."""

_RESTORE = f"if there was one, restore its object {REPOSITORY_KEY!r} from a backup or an older version in the bucket"
_FIRST_RECORD = re.compile(r"refs/[0-9A-Z]{20}/branch/main/0{12}")
"""Keys that an interrupted creation leaves."""


async def create_repository(
    storage: Storage, config: RepositoryConfig, access: Containers, *, check_clean_root: bool
) -> tuple[Context, RepositoryInfo]:
    """Create a repository; see `Repository.create`."""
    check_storage(storage)
    check_config(config)
    containers = VirtualContainers(access, config.virtual_chunk_containers)
    environment = current_environment()
    if check_clean_root:
        await _check_clean(storage)
    elif await repository_exists(storage):
        raise _exists(storage)
    info = RepositoryInfo(environment.new_id(), environment.now_us(), config.to_dict())
    birth = Birth(SnapshotId(environment.new_id()), None, environment.now_us())
    start = log_start(info.id, MAIN)
    record = Record(MAIN, 0, encode_body(0, birth, MAIN), repository=info.id, before=start)
    first = record_key(branch_prefix(info.id, MAIN), 0)
    # The first record is written first: an object "repo" promises a branch.  No other process has the id in its key.
    await put_surely(storage, environment, first, encode_record(record))

    async def is_own() -> bool:
        return decode_repository(REPOSITORY_KEY, await storage.get(REPOSITORY_KEY)).id == info.id

    if not await put_surely(storage, environment, REPOSITORY_KEY, encode_repository(info), is_own):
        await storage.delete([first])
        raise _exists(storage)
    await check_conditional(storage, info, {first: encode_record(record)})
    return Context(storage, info.id, config, containers, environment), info


async def find_repository(
    storage: Storage, config: RepositoryConfig | None, access: Containers
) -> tuple[Context, RepositoryInfo]:
    """Read the identity of a repository and its hint: one round of requests; see `Repository.open`."""
    check_storage(storage)
    check_config(config)
    environment = current_environment()
    try:
        data, hint = await asyncio.gather(storage.get(REPOSITORY_KEY), read_hint(storage, MAIN))
    except ObjectNotFoundError:
        raise RepositoryNotFoundError(
            f"there is no repository at {storage.location}: correct the location, or create one with `arraystore init` "
            f"or Repository.create; {_RESTORE}"
        ) from None
    try:
        info = decode_repository(REPOSITORY_KEY, data)
    except FormatError as error:
        remedy = "restore it from a backup or an older version in the bucket"
        raise FormatError(error.object_name, f"{error.reason}; {remedy}") from None
    if hint is not None and hint.repository != info.id:
        hint = None  # of a repository that was here before
    kept: dict[str, Any] = info.config
    if config is None and hint is not None and hint.settings:
        log = RepositoryLog(storage, info.id, environment)
        log.hinted(hint.settings)
        kept = (await log.table()).settings.get("config") or kept
    chosen = config or RepositoryConfig.from_dict(kept)
    containers = VirtualContainers(access, chosen.virtual_chunk_containers)
    context = Context(storage, info.id, chosen, containers, environment, {MAIN: hint})
    if hint is not None:
        context.log(MAIN).settings = hint.settings
    return context, info


async def repository_exists(storage: Storage) -> bool:
    """Tell whether there is a repository."""
    check_storage(storage)
    try:
        await storage.head(REPOSITORY_KEY)
    except ObjectNotFoundError:
        return False
    return True


def check_storage(storage: object) -> None:
    """Check the type that users confuse most: a URL or a path is not a storage."""
    if not isinstance(storage, Storage):
        raise InvalidInputError(
            f"storage must be a storage, not a {type(storage).__name__}: "
            "make one with storage_from_url(url), local_filesystem_storage(path) or s3_storage(bucket=...)"
        )


def check_config(config: object) -> None:
    """Check that this is a configuration, or None."""
    if not isinstance(config, RepositoryConfig | None):
        raise InvalidInputError(f"config must be a RepositoryConfig, not a {type(config).__name__}")


async def _check_clean(storage: Storage) -> None:
    async for page in storage.list(""):
        for info in page:
            if not _FIRST_RECORD.fullmatch(info.key):
                # a repository's own objects are listed before its "repo"
                if await repository_exists(storage):
                    raise _exists(storage)
                raise InvalidInputError(
                    f"{storage.location} is not empty: it has {info.key!r}, for instance. A repository needs a "
                    f"prefix of its own: choose another one (or pass check_clean_root=False in Python); {_RESTORE}"
                )


def _exists(storage: Storage) -> AlreadyExistsError:
    return AlreadyExistsError(f"there is a repository at {storage.location} already; open it")


async def check_conditional(storage: Storage, info: RepositoryInfo, written: Mapping[str, bytes]) -> None:
    """Try to create the same object again with other bytes, which must fail; else delete what was written, too."""
    other = encode_repository(RepositoryInfo(info.id, info.time + 1, info.config))
    if await storage.put_if_absent(REPOSITORY_KEY, other):
        await _withdraw(storage, {REPOSITORY_KEY: other, **written})
        raise UnsupportedStorageError(
            f"{storage.location} ({type(storage).__name__}) overwrites an object that was to be created only if "
            "absent. Commits would be lost here. Use a storage with conditional writes: S3, GCS, Azure, MinIO of 2024 "
            "or later, or a local directory"
        )


async def _withdraw(storage: Storage, written: Mapping[str, bytes]) -> None:
    """Delete objects that were written here, unless another process has written them since."""
    for key, data in written.items():
        with contextlib.suppress(ObjectNotFoundError):
            if await holds(storage, key, data):
                await storage.delete([key])
