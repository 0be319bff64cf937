"""What a garbage collection did, and what it tells while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arraystore.storage.protocol import DeleteFailure

__all__ = ["GCSummary", "Progress"]

Progress = Callable[[str, int, int | None], None]
"""Told what is being done, how much of it is done, and of how much (None where nobody knows)."""


@dataclass(frozen=True)
class GCSummary:
    """What a garbage collection deleted, or would have deleted.

    Parameters
    ----------
    bytes_deleted
        Of all objects together.
    chunks_deleted
        Objects with chunks: packs, or chunks of a megabyte and more.
    manifests_deleted, transaction_logs_deleted
        Objects of these kinds.
    snapshots_deleted
        Checkpoints: complete snapshots, of which only some have one.
    attributes_deleted
        Always 0: attributes are no objects here.
    records_deleted
        Records of branches' logs whose snapshots had expired, and proposals that nobody waits for.
    others_deleted
        History pages, and what earlier collections left for later ones.
    requests
        Sent to the storage; a deletion of up to a thousand objects is one.
    full
        Whether everything was looked at, and not only what is new.
    watermark
        Id below which this collection looked.
    failures
        What could not be deleted; the next full collection tries again.
    dry_run
        Whether nothing was deleted.
    """

    bytes_deleted: int = 0
    chunks_deleted: int = 0
    manifests_deleted: int = 0
    snapshots_deleted: int = 0
    attributes_deleted: int = 0
    transaction_logs_deleted: int = 0
    records_deleted: int = 0
    others_deleted: int = 0
    requests: int = 0
    full: bool = False
    watermark: str = ""
    failures: tuple[DeleteFailure, ...] = ()
    dry_run: bool = False

    @property
    def objects_deleted(self) -> int:
        """All objects together."""
        objects = self.chunks_deleted + self.manifests_deleted + self.snapshots_deleted
        return objects + self.transaction_logs_deleted + self.records_deleted + self.others_deleted
