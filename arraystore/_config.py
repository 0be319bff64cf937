"""How a repository lays out, caches and checks what it stores."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from arraystore._chunks.pack_writer import PackSettings
from arraystore.errors import InvalidInputError

__all__ = ["RepositoryConfig"]

MiB = 1 << 20


@dataclass(frozen=True)
class RepositoryConfig:
    """Configuration of a repository; what is given to `Repository.create` is kept in the repository.

    Parameters
    ----------
    inline_chunk_threshold_bytes
        Chunks of at most this many bytes travel in the manifest instead of a pack.
    own_object_threshold_bytes
        Chunks of at least this many bytes become objects of their own.
    pack_target_bytes
        Smaller chunks are gathered into objects of about this size.
    max_bytes_in_flight
        Most bytes of packs that wait for upload; then writers wait.
    manifest_cache_bytes
        Decoded manifests that are kept in memory, per process.
    chunk_cache_bytes
        Parts of packs that are kept in memory, per process, where a request costs more than what it brings.
    log_cache_bytes
        Records of a branch's log, and what is decoded of them, that are kept in memory, per branch and process.
    branches_in_memory
        Most branches that a process keeps newest snapshot and log of; those used least recently are dropped first, and
        opened anew when they are used again.
    verify_chunks
        Whether chunks that are read are checked against their checksums, unless a session is told otherwise.  What is
        written gets checksums in any case.
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

    def __post_init__(self) -> None:
        if type(self.verify_chunks) is not bool:
            raise InvalidInputError(f"configuration verify_chunks={self.verify_chunks!r} is neither true nor false")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "verify_chunks" and (type(value) is not int or value < 0):
                raise InvalidInputError(f"configuration {field.name}={value!r} must be an integer of at least 0")
        if self.pack_target_bytes < self.own_object_threshold_bytes:
            raise InvalidInputError(
                f"pack_target_bytes={self.pack_target_bytes} is smaller than "
                f"own_object_threshold_bytes={self.own_object_threshold_bytes}: "
                "a pack must hold any chunk that goes into one"
            )
        if self.inline_chunk_threshold_bytes > 64 * 1024:
            raise InvalidInputError("inline_chunk_threshold_bytes is at most 65536: manifests are read whole")

    @classmethod
    def default(cls) -> RepositoryConfig:
        """Return the default configuration."""
        return cls()

    def merge(self, **changes: Any) -> RepositoryConfig:
        """Return a configuration with some values changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the values by name."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RepositoryConfig:
        """Build a configuration; raises `InvalidInputError` for unknown names or values."""
        known = {field.name for field in fields(cls)}
        unknown = values.keys() - known
        if unknown:
            raise InvalidInputError(f"unknown configuration {sorted(unknown)}; known are {sorted(known)}")
        return cls(**values)

    def pack_settings(self) -> PackSettings:
        """Return what the pack writer needs."""
        return PackSettings(
            self.inline_chunk_threshold_bytes,
            self.own_object_threshold_bytes,
            self.pack_target_bytes,
            self.max_bytes_in_flight,
        )
