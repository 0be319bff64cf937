"""Which of zarr's pipelines encodes and decodes chunks in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import zarr
from zarr.core import codec_pipeline

__all__ = ["fused_codec_pipeline"]

_SETTING = "codec_pipeline.path"
_USUAL = "zarr.core.codec_pipeline.BatchedCodecPipeline"
_QUICK = "FusedCodecPipeline"


@contextmanager
def fused_codec_pipeline() -> Iterator[None]:
    """Open arrays with the pipeline that takes least time for each chunk, where zarr has it and nobody chose another.

    A task has a process for itself, so nothing is won by putting chunks into an event loop and into threads, which
    is what zarr's usual pipeline does: some 200 µs of processor time a chunk.
    """
    if not hasattr(codec_pipeline, _QUICK) or zarr.config.get(_SETTING, None) != _USUAL:
        yield
        return
    with zarr.config.set({_SETTING: f"{codec_pipeline.__name__}.{_QUICK}"}):
        yield
