"""Summary and progress of a garbage collection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arraystore._runtime.display import Described, View, section
from arraystore._runtime.formatting import bytes_text, count_text
from arraystore.storage.protocol import DeleteFailure

StageProgress = Callable[[str, int, int | None], None]
"""Called with the current step, the count done, and the total (None if unknown)."""


def no_progress(_step: str, _done: int, _total: int | None) -> None:
    """Ignore progress."""


@dataclass(frozen=True, repr=False)
class GCSummary(Described):
    """Objects that a garbage collection deleted, or, as a dry run, would delete.

    Parameters
    ----------
    bytes_deleted
        Total size of all deleted objects.
    chunks_deleted
        Objects with chunks: packs, or chunks of a megabyte and more.
    manifests_deleted, transaction_logs_deleted
        Objects of these kinds.
    snapshots_deleted
        Checkpoints: complete snapshots, of which only some have one.
    attributes_deleted
        Always 0: attributes have no objects of their own.
    records_deleted
        Records of branches whose snapshots had expired, and decided intents.
    others_deleted
        History pages, lists of survivors, and the objects that earlier collections left for later ones.
    requests
        Requests sent to the storage; a deletion of up to 1,000 objects is one.
    full
        True if all objects were examined, and not only those created or released since the last collection.
    watermark
        Id below which unreferenced objects were deleted.
    failures
        Objects whose deletion failed; the next full collection tries again.
    dry_run
        True if nothing was deleted.
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
        """Number of deleted objects of all kinds."""
        objects = self.chunks_deleted + self.manifests_deleted + self.snapshots_deleted
        return objects + self.transaction_logs_deleted + self.records_deleted + self.others_deleted

    def _view(self) -> View:
        done = "would delete" if self.dry_run else "deleted"
        kinds = "chunks", "manifests", "snapshots", "transaction_logs", "records", "others"
        counts = {kind.replace("_", " "): getattr(self, f"{kind}_deleted") for kind in kinds}
        facts = [(kind, f"{count:,}") for kind, count in counts.items() if count]
        facts += [("examined", "all objects" if self.full else "objects since the last collection")]
        facts += [("requests", f"{self.requests:,}")] if self.requests else []
        failures = section(
            "Failed deletions", ("key", "reason"), self.failures, lambda each: (each.key, each.reason), limit=20
        )
        size = bytes_text(self.bytes_deleted)
        title = f"Garbage collection {done} {count_text(self.objects_deleted, 'object')} ({size})"
        return View(title, tuple(facts), failures)
