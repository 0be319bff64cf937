"""Settings of an Icechunk repository that an import takes over: metadata, virtual chunk containers, feature flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arraystore._chunks.virtual_chunk_container import VirtualChunkContainer
from arraystore._context.config import RepositoryConfig
from arraystore._log.status import FLAGS
from arraystore._repository.repository import Repository
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    import icechunk

__all__ = ["copy_settings"]


async def copy_settings(theirs: icechunk.Repository, ours: Repository) -> None:
    """Add settings of the source to those of the target, whose own ones stay; flags last, which may forbid the rest.

    The status does not come over: who moves away makes the source read-only, not the target.
    """
    from icechunk import SpecVersion

    await _copy_containers(theirs, ours)
    if theirs.spec_version == SpecVersion.v1:
        return  # it has neither metadata nor flags
    metadata = await theirs.get_metadata_async()
    if not metadata.items() <= (await ours.get_metadata_async()).items():
        await ours.update_metadata_async(metadata)
    existing = {flag.name: flag.setting for flag in await ours.feature_flags_async()}
    for flag in await theirs.feature_flags_async():
        if flag.name in FLAGS and flag.setting is not None and existing.get(flag.name) is None:
            await ours.set_feature_flag_async(flag.name, flag.setting)


async def _copy_containers(theirs: icechunk.Repository, ours: Repository) -> None:
    """Save the containers of the source that the target has none of the same prefix for."""
    import icechunk

    saved = await icechunk.Repository.fetch_config_async(theirs.storage)
    found = (saved.virtual_chunk_containers or {}) if saved is not None else {}
    config = await Repository.fetch_config_async(ours.storage) or RepositoryConfig()
    known = {container.url_prefix for container in config.virtual_chunk_containers}
    containers = [_container(prefix, container.store) for prefix, container in sorted(found.items())]
    added = [container for container in containers if container is not None and container.url_prefix not in known]
    if added:
        both = (*config.virtual_chunk_containers, *added)
        await ours.save_config_async(config.merge(virtual_chunk_containers=both))


def _container(prefix: str, store: Any) -> VirtualChunkContainer | None:
    """Return a container, without credentials as in Icechunk; None where there is none of the kind here.

    That is memory, which is gone, and names such as ``az``, which Icechunk 1 has saved by itself.
    """
    try:
        return _same_container(prefix, store)
    except InvalidInputError:
        return None


def _same_container(prefix: str, store: Any) -> VirtualChunkContainer | None:
    folder = prefix if prefix.endswith("/") else prefix + "/"
    kind = type(store).__name__
    options: Any = getattr(store, "_0", None)
    if kind == "InMemory":
        return None
    if kind in ("S3", "S3Compatible", "Tigris"):
        return VirtualChunkContainer(
            folder,
            region=options.region,
            endpoint_url=options.endpoint_url,
            allow_http=options.allow_http,
            anonymous=options.anonymous,
            force_path_style=options.force_path_style,
            requester_pays=options.requester_pays,
        )
    account = (options or {}).get("account") if kind == "Azure" else None
    return VirtualChunkContainer(folder, account=account)
