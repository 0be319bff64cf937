"""Origins of copied commits, in their metadata, and their times."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from arraystore._history import imports
from arraystore._history.imports import COPIED_FROM, WRITTEN_AT
from arraystore._history.time_travel import microseconds_of
from arraystore._repository.snapshots import SnapshotInfo

__all__ = ["COPIED_FROM", "WRITTEN_AT", "copied_from", "time_of", "time_of_copy", "with_origin"]


def with_origin(metadata: dict[str, Any], snapshot_id: str, written_at: datetime) -> dict[str, Any]:
    """Return metadata with the origin added; the time of the first original stays."""
    return {WRITTEN_AT: written_at.isoformat(), **metadata, COPIED_FROM: snapshot_id}


def copied_from(info: SnapshotInfo) -> str | None:
    """Return the id of the snapshot that one is a copy of; None if it is not a copy."""
    return imports.copied_from(info.metadata)


def time_of(info: SnapshotInfo) -> int:
    """Return the time in microseconds that no copy on top of a snapshot may be before.

    The empty snapshot that a repository begins with is younger than all that is copied into it, and says nothing.
    """
    return 0 if info.parent_id is None else microseconds_of(info.written_at, "written_at")


def time_of_copy(written_at: datetime, parent: int) -> int:
    """Return the time of a copy, in microseconds: that of the original, but none before its parent's.

    So that times of a history ascend, as a look-up by time expects.
    """
    return max(microseconds_of(written_at, "written_at"), parent)
