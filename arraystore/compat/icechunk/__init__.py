"""Icechunk's public names over arraystore: ``import arraystore.compat.icechunk as icechunk``.

Programs and tests that were written for Icechunk 2.3 run; what they store is a repository of arraystore.
"""

from __future__ import annotations

import platform
import sys
from contextlib import suppress
from importlib import metadata

import arraystore
from arraystore._runtime import run
from arraystore.compat.icechunk._exceptions import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    FormatError,
    IcechunkError,
    InternalError,
    InvalidInputError,
    NodeNotFoundError,
    NotFoundError,
    ReadOnlyError,
    RebaseFailedError,
    RefNotFoundError,
    RepositoryNotFoundError,
    SessionStateError,
    SnapshotNotFoundError,
    StorageError,
)
from arraystore.compat.icechunk._opening import migrate
from arraystore.compat.icechunk.config import (
    Attribution,
    CachingConfig,
    CompressionAlgorithm,
    CompressionConfig,
    FeatureFlag,
    ManifestConfig,
    ManifestPreloadCondition,
    ManifestPreloadConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
    ManifestVirtualChunkLocationCompressionConfig,
    ObjectStoreConfig,
    RepositoryConfig,
    initialize_logs,
    set_logs_filter,
    shutdown_telemetry,
)
from arraystore.compat.icechunk.conflicts import (
    BasicConflictSolver,
    Conflict,
    ConflictDetector,
    ConflictSolver,
    ConflictType,
    VersionSelection,
)
from arraystore.compat.icechunk.credentials import (
    AnyAzureCredential,
    AnyAzureStaticCredential,
    AnyCredential,
    AnyGcsCredential,
    AnyGcsStaticCredential,
    AnyS3Credential,
    AzureCredentials,
    AzureRefreshableCredential,
    AzureStaticCredentials,
    Credentials,
    GcsBearerCredential,
    GcsCredentials,
    GcsStaticCredentials,
    S3Credentials,
    S3StaticCredentials,
    azure_anonymous_credentials,
    azure_credentials,
    azure_from_env_credentials,
    azure_refreshable_credentials,
    azure_static_credentials,
    containers_credentials,
    gcs_credentials,
    gcs_from_env_credentials,
    gcs_refreshable_credentials,
    gcs_static_credentials,
    s3_anonymous_credentials,
    s3_credentials,
    s3_from_env_credentials,
    s3_refreshable_credentials,
    s3_static_credentials,
)
from arraystore.compat.icechunk.ops import (
    GCSummary,
    RepoAvailability,
    RepoStatus,
    Update,
    UpdateType,
)
from arraystore.compat.icechunk.repository import (
    Repository,
)
from arraystore.compat.icechunk.session import (
    ForkSession,
    Session,
)
from arraystore.compat.icechunk.snapshots import (
    AncestryGraph,
    Diff,
    ManifestFileInfo,
    SnapshotInfo,
)
from arraystore.compat.icechunk.storage import (
    AnyObjectStoreConfig,
    ChecksumAlgorithm,
    S3Options,
    Storage,
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
    azure_storage,
    gcs_storage,
    gcs_store,
    hf_storage,
    http_storage,
    http_store,
    in_memory_storage,
    local_filesystem_storage,
    local_filesystem_store,
    r2_storage,
    redirect_storage,
    s3_storage,
    s3_store,
    tigris_storage,
)
from arraystore.compat.icechunk.store import (
    IcechunkStore,
)
from arraystore.compat.icechunk.types import (
    ChunkType,
    CommitMethod,
    SessionMode,
    SpecVersion,
)
from arraystore.compat.icechunk.virtual import (
    VirtualChunkContainer,
    VirtualChunkSpec,
)

__version__ = "2.3.0"
"""Version of Icechunk whose names these are."""

__all__ = [
    "AlreadyExistsError",
    "AncestryGraph",
    "AnyAzureCredential",
    "AnyAzureStaticCredential",
    "AnyCredential",
    "AnyGcsCredential",
    "AnyGcsStaticCredential",
    "AnyObjectStoreConfig",
    "AnyS3Credential",
    "Attribution",
    "AzureCredentials",
    "AzureRefreshableCredential",
    "AzureStaticCredentials",
    "BasicConflictSolver",
    "CachingConfig",
    "ChecksumAlgorithm",
    "ChunkType",
    "CommitMethod",
    "CompressionAlgorithm",
    "CompressionConfig",
    "Conflict",
    "ConflictDetector",
    "ConflictError",
    "ConflictSolver",
    "ConflictType",
    "Credentials",
    "Diff",
    "ErrorKind",
    "FeatureFlag",
    "ForkSession",
    "FormatError",
    "GCSummary",
    "GcsBearerCredential",
    "GcsCredentials",
    "GcsStaticCredentials",
    "IcechunkError",
    "IcechunkStore",
    "InternalError",
    "InvalidInputError",
    "ManifestConfig",
    "ManifestFileInfo",
    "ManifestPreloadCondition",
    "ManifestPreloadConfig",
    "ManifestSplitCondition",
    "ManifestSplitDimCondition",
    "ManifestSplittingConfig",
    "ManifestVirtualChunkLocationCompressionConfig",
    "NodeNotFoundError",
    "NotFoundError",
    "ObjectStoreConfig",
    "ReadOnlyError",
    "RebaseFailedError",
    "RefNotFoundError",
    "RepoAvailability",
    "RepoStatus",
    "Repository",
    "RepositoryConfig",
    "RepositoryNotFoundError",
    "S3Credentials",
    "S3Options",
    "S3StaticCredentials",
    "Session",
    "SessionMode",
    "SessionStateError",
    "SnapshotInfo",
    "SnapshotNotFoundError",
    "SpecVersion",
    "Storage",
    "StorageConcurrencySettings",
    "StorageError",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
    "Update",
    "UpdateType",
    "VersionSelection",
    "VirtualChunkContainer",
    "VirtualChunkSpec",
    "__version__",
    "azure_anonymous_credentials",
    "azure_credentials",
    "azure_from_env_credentials",
    "azure_refreshable_credentials",
    "azure_static_credentials",
    "azure_storage",
    "containers_credentials",
    "gcs_credentials",
    "gcs_from_env_credentials",
    "gcs_refreshable_credentials",
    "gcs_static_credentials",
    "gcs_storage",
    "gcs_store",
    "hf_storage",
    "http_storage",
    "http_store",
    "in_memory_storage",
    "initialize_logs",
    "local_filesystem_storage",
    "local_filesystem_store",
    "print_debug_info",
    "r2_storage",
    "redirect_storage",
    "s3_anonymous_credentials",
    "s3_credentials",
    "s3_from_env_credentials",
    "s3_refreshable_credentials",
    "s3_static_credentials",
    "s3_storage",
    "s3_store",
    "set_logs_filter",
    "shutdown_telemetry",
    "spec_version",
    "supported_spec_versions",
    "tigris_storage",
    "upgrade_icechunk_repository",
    "user_agent",
]


_BESIDE = (
    "config", "conflicts", "credentials", "ops", "repository", "session", "snapshots", "storage", "store",
    "supported_spec_versions", "types", "upgrade_icechunk_repository", "virtual",
)  # fmt: skip
"""Further names that `dir(icechunk)` shows: its modules, and what is not in its `__all__`."""


def __dir__() -> list[str]:
    return sorted({*__all__, *_BESIDE})


def spec_version() -> SpecVersion:
    """Return the newest version of Icechunk's format that a program may ask for."""
    return SpecVersion.current()


def supported_spec_versions() -> list[SpecVersion]:
    """Return the versions of Icechunk's format that a program may ask for."""
    return [SpecVersion.v2, SpecVersion.v1]


def user_agent() -> str:
    """Return the name and the version of this library."""
    return f"arraystore/{arraystore.__version__} (icechunk {__version__})"


def print_debug_info() -> None:
    """Print versions of what is installed."""
    lines = [f"platform:  {platform.platform()}", f"python:  {platform.python_version()}"]
    lines.append(f"icechunk:  {__version__} by arraystore {arraystore.__version__}")
    for package in ("zarr", "numcodecs", "xarray", "virtualizarr"):
        with suppress(metadata.PackageNotFoundError):
            lines.append(f"{package}:  {metadata.version(package)}")
    sys.stdout.write("\n".join(lines) + "\n")


def upgrade_icechunk_repository(
    repo: Repository,
    *,
    dry_run: bool,
    delete_unused_v1_files: bool = True,
    prefetch_concurrency: int | None = None,
) -> Repository:
    """Note that a repository has the newest version; nothing is rewritten, since there is one format only."""
    return repo if dry_run else Repository(run(migrate(repo._opened)))
