"""Errors of other pipelines about a chunk, which do not say which one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.projection import Batch
from arraystore._session.pipeline.target import PipelineStore
from arraystore.errors import ArrayStoreError


async def note_chunk(error: Exception, batch: Batch, codec: Any) -> None:
    """Add to an error which chunk of a selection it is about, where that is known without reading one."""
    with suppress(ArrayStoreError):  # the error itself says more than one about its chunk would
        await _note_chunk(error, batch, codec)


async def _note_chunk(error: Exception, batch: Batch, codec: Any) -> None:
    size = codec.encoded_size if isinstance(codec, ChunkCodec) else None
    for path, *_ in batch if len(batch) == 1 or size is not None else ():
        store = getattr(path, "store", None)
        if not isinstance(store, PipelineStore):
            return
        stored = await store._pipeline_hierarchy(writing=False).length(path.path)
        if stored is None or stored == size:
            continue
        expected = "" if size is None else f", where chunks of the array have {size}"
        error.add_note(
            f"Chunk {path.path!r} has {stored} stored bytes{expected}: they must be one chunk, encoded as the metadata "
            "of the array say. If it is virtual, correct its reference; else write it again."
        )
        return
