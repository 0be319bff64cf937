"""Origins of copied commits, in their metadata."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from arraystore._repository.snapshots import SnapshotInfo

__all__ = ["COPIED_FROM", "WRITTEN_AT", "copied_from", "with_origin"]

COPIED_FROM = "arraystore.copied_from"
"""Key in the metadata of a copied commit: id of the snapshot that it is a copy of."""

WRITTEN_AT = "arraystore.written_at"
"""Key in the metadata of a copied commit: when the snapshot that it is a copy of was committed, in ISO 8601."""


def with_origin(metadata: dict[str, Any], snapshot_id: str, written_at: datetime) -> dict[str, Any]:
    """Return metadata with the origin added; the time of the first original stays."""
    return {WRITTEN_AT: written_at.isoformat(), **metadata, COPIED_FROM: snapshot_id}


def copied_from(info: SnapshotInfo) -> str | None:
    """Return the id of the snapshot that one is a copy of; None if it is not a copy."""
    origin = info.metadata.get(COPIED_FROM)
    return origin if isinstance(origin, str) else None
