"""Configuration under Icechunk's names: mutable, and merged field by field."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import arraystore
from arraystore._chunks.virtual_chunk_container import VirtualChunkContainer as CoreContainer
from arraystore._context.config import RepositoryConfig as CoreConfig
from arraystore._log.status import FeatureFlag as CoreFlag
from arraystore.compat.icechunk._display import Numbered, Record, Shown
from arraystore.compat.icechunk._logs import initialize_logs, set_logs_filter, shutdown_telemetry
from arraystore.compat.icechunk._manifests import (
    ManifestConfig,
    ManifestPreloadCondition,
    ManifestPreloadConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
    ManifestVirtualChunkLocationCompressionConfig,
)
from arraystore.compat.icechunk._settings import StorageRetriesSettings, StorageSettings
from arraystore.compat.icechunk.virtual import AnyObjectStoreConfig, ObjectStoreConfig, VirtualChunkContainer
from arraystore.errors import InvalidInputError

__all__ = [
    "AnyObjectStoreConfig",
    "Attribution",
    "CachingConfig",
    "CompressionAlgorithm",
    "CompressionConfig",
    "FeatureFlag",
    "ManifestConfig",
    "ManifestPreloadCondition",
    "ManifestPreloadConfig",
    "ManifestSplitCondition",
    "ManifestSplitDimCondition",
    "ManifestSplittingConfig",
    "ManifestVirtualChunkLocationCompressionConfig",
    "ObjectStoreConfig",
    "RepoUpdateRetryConfig",
    "RepositoryConfig",
    "initialize_logs",
    "set_logs_filter",
    "shutdown_telemetry",
]


_LONGEST_LABEL = 128
_FORBIDDEN = set(';()="\\')
_TOKEN = re.compile(r"[\w.!#$%&'*+^`|~-]+(/[\w.!#$%&'*+^`|~-]+)?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """Labels of a program for the logs of an object store, in the user agent of each request."""

    client: str | None = None
    workload: str | None = None
    principal: str | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and len(value) > _LONGEST_LABEL:
                raise InvalidInputError(f"{name} of an attribution is longer than {_LONGEST_LABEL} characters")
            if name == "client" and value is not None and not _TOKEN.fullmatch(value):
                raise InvalidInputError(f"client={value!r} must consist of token characters, and one slash")
            if value is not None and (set(value) & _FORBIDDEN or not (value.isascii() and value.isprintable())):
                raise InvalidInputError(
                    f"{name}={value!r} has a forbidden character: it must consist of printable ASCII characters "
                    f"other than {' '.join(sorted(_FORBIDDEN))}, since it is sent in a header"
                )


def agent_of(attribution: Attribution) -> str:
    """Return the user agent of requests for a program; empty if it has no labels."""
    labels = {"workload": attribution.workload, "principal": attribution.principal}
    comment = "; ".join([f"{name}={value}" for name, value in labels.items() if value is not None])
    if attribution.client is None and not comment:
        return ""
    parts = [attribution.client, f"arraystore/{arraystore.__version__}", f"({comment})" if comment else None]
    return " ".join([part for part in parts if part is not None])


class _WithDefault(enum.EnumMeta):
    """Makes the class without arguments return its first member."""

    def __call__(cls, value: Any = 0, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(value, *args, **kwargs)


class CompressionAlgorithm(Numbered, metaclass=_WithDefault):
    """Compression of metadata."""

    Zstd = 0

    @staticmethod
    def default() -> CompressionAlgorithm:
        """Return the default."""
        return CompressionAlgorithm.Zstd


@dataclass(repr=False, unsafe_hash=True)
class CompressionConfig(Record):
    """Compression of metadata; arraystore chooses it itself."""

    _title: ClassVar[str] = "icechunk.config.CompressionConfig"
    _defaults: ClassVar[Mapping[str, Any]] = {"algorithm": CompressionAlgorithm.Zstd, "level": 3}

    algorithm: CompressionAlgorithm | None = None
    level: int | None = None

    @staticmethod
    def default() -> CompressionConfig:
        """Return the default."""
        return CompressionConfig()


@dataclass(repr=False, unsafe_hash=True)
class CachingConfig(Record):
    """Sizes of caches; of these, `num_bytes_chunks` has an effect."""

    _title: ClassVar[str] = "icechunk.config.CachingConfig"
    _defaults: ClassVar[Mapping[str, Any]] = {
        "num_snapshot_nodes": 500_000,
        "num_chunk_refs": 15_000_000,
        "num_transaction_changes": 0,
        "num_bytes_attributes": 0,
        "num_bytes_chunks": 0,
    }

    num_snapshot_nodes: int | None = None
    num_chunk_refs: int | None = None
    num_transaction_changes: int | None = None
    num_bytes_attributes: int | None = None
    num_bytes_chunks: int | None = None

    @staticmethod
    def default() -> CachingConfig:
        """Return the default."""
        return CachingConfig()


@dataclass(repr=False, unsafe_hash=True)
class RepoUpdateRetryConfig(Record):
    """Repetitions of an update of the repository; arraystore has no object that all updates rewrite."""

    _title: ClassVar[str] = "icechunk._icechunk_python.RepoUpdateRetryConfig"
    _defaults: ClassVar[Mapping[str, Any]] = {"default": StorageRetriesSettings(100, 50, 30_000)}

    default: StorageRetriesSettings | None = None


@dataclass(frozen=True, repr=False)
class FeatureFlag(Shown):
    """An operation that can be switched off."""

    _title: ClassVar[str] = "icechunk.config.FeatureFlag"

    id: int
    name: str
    default_enabled: bool
    setting: bool | None
    enabled: bool

    @classmethod
    def of(cls, number: int, flag: CoreFlag) -> FeatureFlag:
        """Return a flag of arraystore as one of Icechunk."""
        return cls(number, flag.name, flag.default_enabled, flag.setting, flag.enabled)


@dataclass(repr=False, eq=True, unsafe_hash=False)
class RepositoryConfig(Record):
    """Configuration of a repository."""

    _title: ClassVar[str] = "icechunk.config.RepositoryConfig"
    _defaults: ClassVar[Mapping[str, Any]] = {
        "inline_chunk_threshold_bytes": 512,
        "get_partial_values_concurrency": 10,
        "compression": CompressionConfig(),
        "max_concurrent_requests": 256,
        "caching": CachingConfig(),
        "storage": StorageSettings(),
        "manifest": ManifestConfig(),
        "repo_update_retries": RepoUpdateRetryConfig(),
        "num_updates_per_repo_info_file": 1000,
    }

    inline_chunk_threshold_bytes: int | None = None
    get_partial_values_concurrency: int | None = None
    compression: CompressionConfig | None = None
    max_concurrent_requests: int | None = None
    caching: CachingConfig | None = None
    storage: StorageSettings | None = None
    virtual_chunk_containers: dict[str, VirtualChunkContainer] | None = None
    manifest: ManifestConfig | None = None
    repo_update_retries: RepoUpdateRetryConfig | None = None
    num_updates_per_repo_info_file: int | None = field(default=None)
    max_concurrent_decodes: int | None = field(default=None)

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def default() -> RepositoryConfig:
        """Return a configuration in which everything is at its default."""
        return RepositoryConfig()

    def get_virtual_chunk_container(self, name: str) -> VirtualChunkContainer | None:
        """Return the container of a prefix of URLs; None if there is none."""
        return (self.virtual_chunk_containers or {}).get(name)

    def set_virtual_chunk_container(self, cont: VirtualChunkContainer) -> None:
        """Add a container, in place of the one with its prefix."""
        self.virtual_chunk_containers = {**(self.virtual_chunk_containers or {}), cont.url_prefix: cont}

    def clear_virtual_chunk_containers(self) -> None:
        """Remove all containers."""
        self.virtual_chunk_containers = {}

    def merge(self, other: RepositoryConfig) -> RepositoryConfig:
        """Return a configuration with what the other one says, and else with what this one says."""
        merged: RepositoryConfig = _merged(self, other)
        return merged

    def core(self) -> CoreConfig:
        """Return what arraystore's own configuration can say of it."""
        changes: dict[str, int] = {}
        if self.inline_chunk_threshold_bytes is not None:
            changes["inline_chunk_threshold_bytes"] = min(self.inline_chunk_threshold_bytes, 64 * 1024)
        if self.caching is not None and self.caching.num_bytes_chunks is not None:
            changes["chunk_cache_bytes"] = self.caching.num_bytes_chunks
        containers = (self.virtual_chunk_containers or {}).values()
        return CoreConfig().merge(**changes, virtual_chunk_containers=tuple(map(_core_container, containers)))


_OPTIONS = ("region", "endpoint_url", "allow_http", "anonymous", "force_path_style", "requester_pays")


def _core_container(container: VirtualChunkContainer) -> CoreContainer:
    """Return a container as arraystore's own configuration has it, for programs that open the repository by that."""
    options = getattr(container.store, "options", None)
    values = {name: getattr(options, name) for name in _OPTIONS if options is not None}
    prefix = container.url_prefix
    return CoreContainer(prefix if prefix.endswith("/") else prefix + "/", **values)


def _merged(first: Any, second: Any) -> Any:
    """Return a record of what the second one says, and else of what the first one says."""
    if not isinstance(first, Record) or type(first) is not type(second):
        return first if second is None else second
    if isinstance(first, VirtualChunkContainer):
        return second
    values = {
        item.name: _merged(getattr(first, item.name), getattr(second, item.name))
        for item in fields(first)  # type: ignore[arg-type]
    }
    return type(first)(**values)
