"""Workload of a repository: what is stored, written, read and kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from arraystore._context.config import RepositoryConfig
from arraystore.cli.sizes import parse_size
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from arraystore._maintenance.verification.statistics import CommitRate, RepositoryStatistics

MiB = 1 << 20
_SIZES = ("size", "chunk_size")
_FRACTIONS = ("overwrite", "outside")


@dataclass(frozen=True)
class Workload:
    """Workload: what a repository holds, and what is done with it.

    Parameters
    ----------
    size
        Bytes in the storage at the beginning.
    chunk_size
        Bytes of a chunk, as encoded.
    commits_per_day, chunks_per_commit
        Commits, and the chunks that each writes.
    workers
        Processes that write the chunks of a commit: each uploads packs of its own.
    commits_per_process
        Commits that a process makes before it ends.
    lost_races
        Races that a commit loses, on average.
    overwrite
        Fraction of the written chunks that replace others; the rest is new.
    retention_days
        Days for which replaced chunks are kept, in old snapshots.
    reads_per_day, chunks_per_read
        Processes that open the repository to read, and the chunks that each reads, from one array.
    contiguous
        Whether the chunks of a read are neighbours, written together.
    outside
        Fraction of the bytes read that leave the region.
    maintain_per_day
        Runs of ``maintain``.
    """

    size: float = 0.0
    chunk_size: float = 4.0 * MiB
    commits_per_day: float = 1.0
    chunks_per_commit: float = 100.0
    workers: float = 1.0
    commits_per_process: float = 1.0
    lost_races: float = 0.0
    overwrite: float = 0.0
    retention_days: float = 30.0
    reads_per_day: float = 0.0
    chunks_per_read: float = 100.0
    contiguous: bool = False
    outside: float = 0.0
    maintain_per_day: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name))

    @property
    def written_per_day(self) -> float:
        """Bytes of chunks that a day writes."""
        return self.commits_per_day * self.chunks_per_commit * self.chunk_size


def _check(name: str, value: Any) -> None:
    if name == "contiguous":
        if not isinstance(value, bool):
            raise InvalidInputError(f"workload {name}={value!r} must be true or false")
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidInputError(f"workload {name}={value!r} must be a number >= 0")
    if name in _FRACTIONS and value > 1:
        raise InvalidInputError(f"workload {name}={value!r} must be a fraction from 0 to 1")
    if name in ("chunk_size", "workers", "commits_per_process") and value < 1:
        raise InvalidInputError(f"workload {name}={value!r} must be >= 1")


def changed(workload: Workload, values: Mapping[str, Any]) -> Workload:
    """Return a workload with some values changed; sizes may be strings such as ``10TiB``."""
    names = [field.name for field in fields(Workload)]
    if unknown := sorted(values.keys() - set(names)):
        raise InvalidInputError(f"unknown workload {', '.join(unknown)}: choose from {', '.join(names)}")
    return replace(workload, **{name: _bytes(name, value) for name, value in values.items()})


def _bytes(name: str, value: Any) -> Any:
    return parse_size(value, option=name) if name in _SIZES and isinstance(value, str) else value


SNAPSHOTS_EXAMINED = 256


def observed(statistics: RepositoryStatistics) -> Workload:
    """Return the workload of a branch, as far as statistics of its newest `SNAPSHOTS_EXAMINED` snapshots tell."""
    arrays = statistics.arrays
    chunks = sum(each.chunks for each in arrays)
    stored = sum(each.native_bytes + each.inlined_bytes for each in arrays)
    chunk_size = max(1.0, stored / chunks) if chunks and stored else Workload.chunk_size
    added = [each.unique_bytes for each in statistics.snapshots]
    mean = sum(added) / len(added) if added else 0.0
    return Workload(
        size=float(statistics.total_bytes),
        chunk_size=chunk_size,
        commits_per_day=_commits_per_day(statistics.rate),
        chunks_per_commit=mean / chunk_size,
    )


def _commits_per_day(rate: CommitRate) -> float:
    if rate.last_day == rate.snapshots < SNAPSHOTS_EXAMINED:
        return float(rate.snapshots)  # all there is was made within a day: no rate yet
    return rate.per_day or 0.0


def packs_per_commit(workload: Workload, config: RepositoryConfig) -> tuple[float, float]:
    """Return how many objects a commit uploads for its chunks, and how many bytes the largest of them has."""
    size, chunks = workload.chunk_size, workload.chunks_per_commit
    if not chunks or size <= config.inline_chunk_threshold_bytes:
        return 0.0, 0.0
    if size >= config.own_object_threshold_bytes:
        return chunks, size
    workers = min(workload.workers, max(1.0, chunks))
    each = chunks / workers * size
    return workers * math.ceil(each / config.pack_target_bytes), min(each, config.pack_target_bytes)
