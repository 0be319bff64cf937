"""Configuration of a repository: layout, caches and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from arraystore._chunks.pack_writer import PackSettings
from arraystore._chunks.virtual_chunk_container import VirtualChunkContainer
from arraystore.errors import InvalidInputError

__all__ = ["RepositoryConfig"]

MiB = 1 << 20
_CONTAINERS = "virtual_chunk_containers"


@dataclass(frozen=True)
class RepositoryConfig:
    """Configuration of a repository; `Repository.create` stores it in the repository.

    Parameters
    ----------
    inline_chunk_threshold_bytes
        Size up to which a chunk is inlined in its manifest; must be >= 0 and <= 65536.
    own_object_threshold_bytes
        Size from which a chunk becomes an object of its own.
    pack_target_bytes
        Approximate size of the packs that smaller chunks are written to; must be >= `own_object_threshold_bytes`.
    max_bytes_in_flight
        Maximum size of packs waiting for upload; beyond it writers block.
    manifest_cache_bytes
        Size of the cache of decoded manifests, per process.
    chunk_cache_bytes
        Size of the cache of parts of packs, per process, used if the latency of a request dominates its transfer.
    log_cache_bytes
        Size of the cache of log records and their decoded form, per branch and process.
    branches_in_memory
        Maximum number of branches whose newest snapshot and log are cached per process; the least recently used are
        evicted first.
    verify_chunks
        Whether to verify checksums of chunks on read, unless a session overrides it.  Checksums are always written.
    chunk_statistics
        Whether writers keep the least and the greatest value, and counts of NaN and of the fill value, of each chunk of
        numbers, by which `where` leaves out chunks.
    virtual_chunk_containers
        Places that virtual chunks may be in; who opens the repository authorises those that it reads.
    """

    inline_chunk_threshold_bytes: int = 512
    own_object_threshold_bytes: int = 1 * MiB
    pack_target_bytes: int = 8 * MiB
    max_bytes_in_flight: int = 64 * MiB
    manifest_cache_bytes: int = 256 * MiB
    chunk_cache_bytes: int = 64 * MiB
    log_cache_bytes: int = 16 * MiB
    branches_in_memory: int = 128
    verify_chunks: bool = True
    chunk_statistics: bool = False
    virtual_chunk_containers: tuple[VirtualChunkContainer, ...] = ()

    def __post_init__(self) -> None:
        _check_containers(self.virtual_chunk_containers)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "bool" and type(value) is not bool:
                raise InvalidInputError(f"configuration {field.name}={value!r} must be true or false")
            if field.type == "int" and (type(value) is not int or value < 0):
                raise InvalidInputError(f"configuration {field.name}={value!r} must be an integer >= 0")
        if self.pack_target_bytes < self.own_object_threshold_bytes:
            raise InvalidInputError(
                f"configuration pack_target_bytes={self.pack_target_bytes} must be >= "
                f"own_object_threshold_bytes={self.own_object_threshold_bytes}: a pack must hold any chunk below it"
            )
        if self.inline_chunk_threshold_bytes > 64 * 1024:
            raise InvalidInputError(
                f"configuration inline_chunk_threshold_bytes={self.inline_chunk_threshold_bytes} must be <= 65536: "
                "manifests are read as a whole"
            )

    @classmethod
    def default(cls) -> RepositoryConfig:
        """Return the default configuration."""
        return cls()

    def merge(self, **changes: Any) -> RepositoryConfig:
        """Return a copy with some values changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the values by name; containers as options by prefix.

        Statistics that are off and containers that there are none of are left out, for older releases refuse names that
        they do not know.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        containers = values.pop(_CONTAINERS)
        if not self.chunk_statistics:
            del values["chunk_statistics"]
        return values | ({_CONTAINERS: {each.url_prefix: each.options() for each in containers}} if containers else {})

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RepositoryConfig:
        """Build a configuration; raises `InvalidInputError` for unknown names or values."""
        names = {field.name for field in fields(cls)}
        unknown = values.keys() - names
        if unknown:
            raise InvalidInputError(f"unknown configuration {sorted(unknown)}: choose from {sorted(names)}")
        if _CONTAINERS in values:
            values = {**values, _CONTAINERS: _read_containers(values[_CONTAINERS])}
        return cls(**values)

    def pack_settings(self) -> PackSettings:
        """Return the settings of the pack writer."""
        return PackSettings(
            self.inline_chunk_threshold_bytes,
            self.own_object_threshold_bytes,
            self.pack_target_bytes,
            self.max_bytes_in_flight,
            self.chunk_statistics,
        )


def _check_containers(containers: object) -> None:
    if not isinstance(containers, tuple) or not all(isinstance(each, VirtualChunkContainer) for each in containers):
        raise InvalidInputError(f"configuration {_CONTAINERS} must be a tuple of VirtualChunkContainer")
    prefixes = [each.url_prefix for each in containers]
    repeated = sorted({prefix for prefix in prefixes if prefixes.count(prefix) > 1})
    if repeated:
        raise InvalidInputError(f"configuration {_CONTAINERS} has {repeated[0]!r} twice: merge the two")


def _read_containers(values: object) -> tuple[VirtualChunkContainer, ...]:
    """Read containers as `to_dict` writes them, or as such."""
    if isinstance(values, Mapping) and all(isinstance(options, Mapping) for options in values.values()):
        known = {field.name for field in fields(VirtualChunkContainer)[1:]}
        for prefix, options in values.items():
            if unknown := options.keys() - known:
                raise InvalidInputError(
                    f"container {prefix!r} has unknown options {sorted(unknown)}: choose from {sorted(known)}"
                )
        return tuple(VirtualChunkContainer(prefix, **options) for prefix, options in values.items())
    if isinstance(values, tuple):
        return values
    raise InvalidInputError(f"configuration {_CONTAINERS} must be a map of prefixes to options")
