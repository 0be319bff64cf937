"""Checking of chunks by the workers of a cluster: references go there in tasks, findings come back."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest
from arraystore._format.node import Node
from arraystore._format.reference_batches import tasks_of
from arraystore._format.references import References
from arraystore._format.types import Int64s
from arraystore._maintenance.collection.summary import StageProgress
from arraystore._maintenance.remote_readers import HasReader, RemoteReaders
from arraystore._maintenance.verification.chunk_reading import ChunkVerifier
from arraystore._maintenance.verification.findings import Collector, Finding, Severity, Use
from arraystore._maintenance.verification.layers import LayerUse, Loaded
from arraystore._maintenance.verification.virtual import UnreadChunks
from arraystore._runtime.engine import expect, unexpected

_REFERENCES_IN_MEMORY = 1 << 20
"""References above which tasks are run before more manifests are read."""

_COUNTS = frozenset({"chunks_read", "bytes_read", "chunks_not_decoded"})


def _to_send(item: LayerUse, manifest: Manifest) -> Loaded:
    """Return what a worker needs: not the other layers of the array, nor the snapshots that have it."""
    virtual = bool((manifest.source >= manifest.pack_count).any())
    node = Node(item.node.id, item.node.path, item.node.kind, item.node.documents if virtual else {})
    layer = Layer(item.layer.id, item.layer.box, item.layer.count)
    return Loaded(LayerUse(layer, node, Use(node.path, [], 0)), manifest, [], [])


@dataclass(frozen=True)
class _CheckChunks:
    """Work of a task: chunks of several pieces are read and checked."""

    source: HasReader

    async def __call__(self, task: list[Loaded]) -> Any:
        counts, unread = Counter[str](), UnreadChunks()
        findings: list[Any] = []
        for loaded in task:
            collector = Collector()
            verifier = ChunkVerifier(self.source.reader, collector, counts)
            await verifier.check(loaded, np.arange(loaded.manifest.count))
            for place, chunks in verifier.unread.items():
                unread.add(place, chunks)
            findings.append(([_to_plain(finding) for finding in collector.findings()], collector.omitted))
        return findings, dict(counts), dict(unread.counts)


def _to_plain(finding: Finding) -> tuple[bool, str, str, str]:
    return finding.severity == Severity.ERROR, finding.key, finding.problem, finding.repair


@dataclass(eq=False)
class RemoteChunkVerifier:
    """Checks chunks on an engine; inlined ones, which came with their manifests, here."""

    remote: RemoteReaders
    collector: Collector
    counts: Counter[str]
    progress: StageProgress
    _waiting: list[tuple[LayerUse, References]] = field(default_factory=list[tuple[LayerUse, References]])
    _references: int = 0

    def __post_init__(self) -> None:
        self._here = ChunkVerifier(self.remote.source.reader, self.collector, self.counts)
        self._unread = UnreadChunks()

    @property
    def unread(self) -> Mapping[str, int]:
        """Virtual chunks that no worker could read, by place and reason."""
        return self._unread.counts

    async def check(self, loaded: Loaded, at: Int64s) -> None:
        """Check some chunks of a manifest, once there are enough of them."""
        inlined = loaded.manifest.source[at] == loaded.manifest.inline_source
        await self._here.check(loaded, at[inlined])
        references = References.from_manifest(loaded.manifest, loaded.item.layer.shift).take(at[~inlined])
        self._waiting.append((loaded.item, references))
        self._references += len(references)
        if self._references >= _REFERENCES_IN_MEMORY:
            await self.finish()

    async def finish(self) -> None:
        """Check all chunks that are left."""
        waiting, self._waiting, self._references = self._waiting, [], 0
        sent: deque[list[Use]] = deque()

        async def each() -> AsyncIterator[tuple[LayerUse, References]]:
            for item in waiting:
                yield item

        async def tasks() -> AsyncIterator[list[Loaded]]:
            async for task in tasks_of(each()):
                sent.append([item.use for item, _ in task])
                yield [_to_send(*piece) for piece in task]

        work = _CheckChunks(self.remote.source)
        async with aclosing(self.remote.engine.run(work, tasks(), "verifying chunks")) as results:
            async for result in results:
                self._take(sent.popleft(), result)
                self.progress("reading chunks", self.counts["chunks_read"], None)

    def _take(self, uses: list[Use], result: Any) -> None:
        """Add the findings of a task, after checking that they are findings."""
        match result:
            case (tuple() as findings, dict() as counts, dict() as unread):
                _check_counts(counts, _COUNTS)
                _check_counts(unread)
            case _:
                raise unexpected("findings of chunks")
        expect(len(findings) == len(uses), "one list of findings for each manifest")
        for use, found in zip(uses, findings, strict=True):
            self._report(use, found)
        self.counts.update(counts)
        for place, chunks in unread.items():
            self._unread.add(place, chunks)

    def _report(self, use: Use, found: Any) -> None:
        match found:
            case (tuple() as findings, int() as omitted) if omitted >= 0:
                self.collector.omitted += omitted
            case _:
                raise unexpected("a list of findings")
        for finding in findings:
            match finding:
                case (bool() as error, str() as key, str() as problem, str() as repair):
                    report = self.collector.error if error else self.collector.warning
                    report(key, problem, repair, [use])
                case _:
                    raise unexpected("a finding")


def _check_counts(counts: Mapping[Any, Any], names: frozenset[str] | None = None) -> None:
    for name, count in counts.items():
        expect(type(name) is str and (names is None or name in names), "a count of chunks")
        expect(type(count) is int and count >= 0, "a count of chunks")
