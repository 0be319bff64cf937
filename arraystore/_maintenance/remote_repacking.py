"""Repacking by the workers of a cluster: they copy chunks into packs of their own, this process names the packs."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from arraystore._chunks.pack_writer import PackSettings
from arraystore._environment import Environment
from arraystore._format.ids import ID_BYTES, LayerId, NodeId, PackId, ids_of
from arraystore._format.layer import Layer
from arraystore._format.manifest import MAX_REACH, Manifest
from arraystore._format.pack import padded_size
from arraystore._format.references import REFERENCES_PER_MANIFEST, References, to_manifests
from arraystore._format.types import Int64s
from arraystore._maintenance.pack_usage import pack_sizes
from arraystore._maintenance.remote_readers import HasReader, RemoteReaders
from arraystore._maintenance.repacking import Repacker, RepackJob, RepackSlice
from arraystore._runtime.engine import expect, unexpected

_PACKS_PER_TASK = 8


@dataclass(frozen=True)
class _CopyChunks:
    """Work of a task: the chunks of some manifests are copied into new packs."""

    source: HasReader
    settings: PackSettings
    after: bytes
    """Id that those of the packs follow, whatever the clock of the worker says."""

    async def __call__(self, task: list[Manifest]) -> Any:
        environment = Environment()
        environment.after(self.after)
        jobs = [_job_of(manifest) for manifest in task]
        sizes = np.concatenate([padded_size(job.references.length) for job in jobs])
        settings = replace(self.settings, target=_even_target(sizes, self.settings.target))
        repacker = Repacker(self.source.reader, environment, settings, lambda: True)
        await repacker.copy(jobs)
        await self.source.reader.storage.sync()
        places = [(job.pack.astype("<i4").tobytes(), job.offset.astype("<i8").tobytes()) for job in jobs]
        refused = sorted(repacker.refused.items())
        return repacker.deletable(()), places, refused, repacker.bytes_read, repacker.bytes_written


def _job_of(manifest: Manifest) -> RepackJob:
    references = References.from_manifest(manifest)
    layer = Layer(LayerId(bytes(ID_BYTES)), manifest.box, manifest.count)
    return RepackJob.copying(NodeId(bytes(ID_BYTES)), layer, references, np.arange(len(references)))


def _even_target(sizes: Int64s, target: int) -> int:
    """Return the size of packs that are about as large as each other: a small last one would be rewritten again."""
    total = int(sizes.sum())
    packs = max(1, total // target)
    return max(target, -(-total // packs) + int(sizes.max()) * (packs > 1))


@dataclass(frozen=True)
class _Copies:
    """Checked result of a task."""

    packs: tuple[PackId, ...]
    places: list[tuple[Int64s, Int64s]]
    """Packs and offsets of the chunks of each slice."""
    refused: dict[PackId, str]
    bytes_read: int
    bytes_written: int


@dataclass(eq=False, kw_only=True)
class RemoteRepacker(Repacker):
    """Copies chunks on an engine."""

    remote: RemoteReaders

    def __post_init__(self) -> None:
        super().__post_init__()
        self._batch_bytes = _PACKS_PER_TASK * self.settings.target
        self._after = self.environment.new_id()

    def deletable(self, named: Collection[PackId]) -> list[PackId]:
        """Return nothing: a worker says which packs it wrote, and garbage collection finds out which are in no use."""
        return []

    async def _copied(self, batches: AsyncIterator[list[RepackSlice]]) -> AsyncGenerator[list[RepackSlice], None]:
        sent: deque[list[RepackSlice]] = deque()

        async def tasks() -> AsyncIterator[list[Manifest]]:
            async for batch in batches:
                if not self.has_budget():
                    self.interrupted = True
                    return
                sent.append(batch)
                yield [_manifest_of(piece) for piece in batch]

        work = _CopyChunks(self.remote.source, self.settings, self._after)
        async with aclosing(self.remote.engine.run(work, tasks(), "copying chunks into new packs")) as results:
            async for result in results:
                batch = sent.popleft()
                await self._take(batch, _check(result, batch, self._after))
                yield batch

    async def _take(self, batch: Sequence[RepackSlice], copies: _Copies) -> None:
        """Point the references of a batch to its copies, once their packs are seen to be there."""
        await self._check_packs(batch, copies)
        first = self._packs.adopt(copies.packs, copies.bytes_written)
        for piece, (pack, offset) in zip(batch, copies.places, strict=True):
            piece.job.pack[piece.rows] = np.where(pack >= 0, pack + first, -1)
            piece.job.offset[piece.rows] = offset
            piece.job.copied = piece.stop
            self.chunks_copied += int((pack >= 0).sum())
        self.refused |= copies.refused
        self.bytes_read += copies.bytes_read

    async def _check_packs(self, batch: Sequence[RepackSlice], copies: _Copies) -> None:
        """Check that the packs exist, are long enough, and are not those of earlier tasks."""
        expect(set(copies.packs).isdisjoint(self._packs.ids), "a list of new packs")
        ends = np.zeros(len(copies.packs), dtype=np.int64)
        for piece, (pack, offset) in zip(batch, copies.places, strict=True):
            there = pack >= 0
            length = padded_size(piece.job.references.length[piece.at][there])
            np.maximum.at(ends, pack[there], offset[there] + length)
        sizes = await pack_sizes(self.reader.storage, ids_of(b"".join(copies.packs)))
        expect(bool((sizes >= ends).all()), "a list of packs that hold the copies")


def _manifest_of(piece: RepackSlice) -> Manifest:
    """Return the references of a slice alone, with the packs that they name."""
    references = piece.job.references.take(piece.at)
    (manifest,) = to_manifests(references, max(len(references), REFERENCES_PER_MANIFEST))
    return manifest


def _check(result: Any, batch: Sequence[RepackSlice], after: bytes) -> _Copies:
    match result:
        case (tuple() as packs, tuple() as places, tuple() as refused, int() as read, int() as written):
            pass
        case _:
            raise unexpected("a list of copied chunks")
    expect(min(read, written) >= 0 and all(_is_id(pack) and pack > after for pack in packs), "a list of new packs")
    expect(list(packs) == sorted(set(packs)) and len(places) == len(batch), "a list of new packs")
    checked = [_check_places(place, len(piece.rows), len(packs)) for place, piece in zip(places, batch, strict=True)]
    return _Copies(packs, checked, dict(map(_check_refusal, refused)), read, written)


def _check_places(place: Any, count: int, packs: int) -> tuple[Int64s, Int64s]:
    match place:
        case (bytes() as pack, bytes() as offset) if len(pack) == 4 * count and len(offset) == 8 * count:
            numbers = np.frombuffer(pack, dtype="<i4").astype(np.int64)
            offsets = np.frombuffer(offset, dtype="<i8").astype(np.int64)
        case _:
            raise unexpected("a list of copied chunks")
    expect(bool(((numbers >= -1) & (numbers < packs)).all()), "a list of copied chunks")
    expect(bool(((offsets >= 0) & (offsets < MAX_REACH)).all()), "a list of copied chunks")
    return numbers, offsets


def _check_refusal(refusal: Any) -> tuple[PackId, str]:
    match refusal:
        case (bytes() as pack, str() as reason) if _is_id(pack):
            return PackId(pack), reason
        case _:
            raise unexpected("a list of damaged packs")


def _is_id(value: Any) -> bool:
    return type(value) is bytes and len(value) == ID_BYTES
