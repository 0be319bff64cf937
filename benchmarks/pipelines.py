"""The ways of running zarr's codecs that each system is measured with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import zarr
from zarr.core.sync import cleanup_resources

__all__ = ["DEFAULT", "FUSED", "FUSED_ONE", "Pipeline", "configured"]

_PATHS = {
    "default": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "fused": "zarr.core.codec_pipeline.FusedCodecPipeline",
}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One setting of zarr.

    Parameters
    ----------
    kind
        "default" or "fused".
    workers
        Threads that zarr may use; None is zarr's own default.
    concurrency
        zarr's ``async.concurrency``; None is zarr's own default.
    """

    kind: str
    workers: int | None = None
    concurrency: int | None = None

    @property
    def label(self) -> str:
        """A short name for tables."""
        text = self.kind
        if self.workers is not None:
            text += f", {self.workers} worker" + ("s" if self.workers != 1 else "")
        if self.concurrency is not None:
            text += f", concurrency {self.concurrency}"
        return text


DEFAULT = Pipeline("default")
FUSED = Pipeline("fused")
FUSED_ONE = Pipeline("fused", workers=1)


@contextmanager
def configured(pipeline: Pipeline) -> Iterator[None]:
    """Run the body with zarr set to `pipeline`."""
    settings: dict[str, object] = {"codec_pipeline.path": _PATHS[pipeline.kind]}
    if pipeline.workers is not None:
        settings["codec_pipeline.max_workers"] = pipeline.workers
        settings["threading.max_workers"] = pipeline.workers
    if pipeline.concurrency is not None:
        settings["async.concurrency"] = pipeline.concurrency
    # zarr reads threading.max_workers only when it starts its thread pool, so a setting that names it needs a new one.
    if pipeline.workers is not None:
        cleanup_resources()
    try:
        with zarr.config.set(settings):
            yield
    finally:
        if pipeline.workers is not None:
            cleanup_resources()
