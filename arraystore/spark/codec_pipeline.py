"""Choice of zarr's codec pipeline in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import zarr
from zarr.core import codec_pipeline

_SETTING = "codec_pipeline.path"
_USUAL = "zarr.core.codec_pipeline.BatchedCodecPipeline"
_QUICK = "FusedCodecPipeline"


@contextmanager
def fused_codec_pipeline() -> Iterator[None]:
    """Open arrays with the pipeline that takes least time for each chunk, unless another one is configured.

    A task has a process for itself, so handing chunks to an event loop and to threads, as zarr's default pipeline does,
    only costs some 200 µs of processor time a chunk.
    """
    if not hasattr(codec_pipeline, _QUICK) or zarr.config.get(_SETTING, None) != _USUAL:
        yield
        return
    with zarr.config.set({_SETTING: f"{codec_pipeline.__name__}.{_QUICK}"}):
        yield
