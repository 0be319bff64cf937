"""What a repository holds that nothing leads to."""

from __future__ import annotations

import asyncio
import datetime as dt

import icechunk

from arraystore._environment import Environment
from arraystore._format.history import decode_history
from arraystore._format.ids import id_to_text
from arraystore._format.layer import Layer
from arraystore._format.manifest import decode_manifest
from arraystore._format.record import Commit, Rewrite
from arraystore._format.refs import REPOSITORY_KEY, decode_repository
from arraystore._format.snapshot import decode_checkpoint
from arraystore._log.branch_log import BranchLog
from arraystore.storage import Storage

__all__ = ["ours", "theirs"]


def ours(storage: Storage) -> set[str]:
    """Keys of objects of a repository of arraystore's that nothing leads to; its only branch is ``main``."""
    return asyncio.run(_orphans(storage))


async def _orphans(storage: Storage) -> set[str]:
    log = BranchLog(storage, await _id_of(storage), "main", Environment())
    found = {"repo", "hints/main"}
    layers: dict[str, Layer] = {}
    for sequence in range(await log.tip(None) + 1):
        found.add(log.key(sequence))
        layers |= {layer.key: layer for layer in await _layers_of_record(log, sequence, found)}
    for key in await _checkpoints(log, found):
        for node in decode_checkpoint(key, await storage.get(key)).nodes:
            layers |= {layer.key: layer for layer in node.layers}
    for layer in layers.values():
        found |= await _objects_of(log, layer)
    return {info.key async for page in storage.list("") for info in page} - found


async def _id_of(storage: Storage) -> bytes:
    return decode_repository(REPOSITORY_KEY, await storage.get(REPOSITORY_KEY)).id


async def _layers_of_record(log: BranchLog, sequence: int, found: set[str]) -> list[Layer]:
    entry = log.decode(sequence, (await log.read(sequence)).body)
    if isinstance(entry, Rewrite):
        return [layer for item in entry.replacements for layer in item.added]
    if not isinstance(entry, Commit):
        return []
    found |= {"transactions/" + id_to_text(item.log) for item in entry.transactions if isinstance(item.log, bytes)}
    return [chunk.layer for _, changes, _ in await log.resolve(sequence, entry) for chunk in changes.chunks]


async def _checkpoints(log: BranchLog, found: set[str]) -> set[str]:
    hint = await log.hint()  # there is none before the first checkpoint
    identifiers = set() if hint is None else {hint.checkpoint}
    async for page in log.storage.list(log.history_prefix):
        for info in page:
            level, index = info.key.split("/")[-2:]
            history = decode_history(info.key, await log.storage.get(info.key), "main", int(level), int(index))
            identifiers |= {identifier for _, identifier in history.checkpoints}
            found.add(info.key)
    keys = {"snapshots/" + id_to_text(identifier) for identifier in identifiers}
    found |= keys
    return keys


async def _objects_of(log: BranchLog, layer: Layer) -> set[str]:
    if layer.inline is not None:
        return set(decode_manifest("inline", layer.inline).pack_keys)
    if layer.attachment is not None:
        record = await log.read(layer.attachment.sequence)
        return set(decode_manifest("attached", record.attachments[layer.attachment.index]).pack_keys)
    return {layer.key, *decode_manifest(layer.key, await log.storage.get(layer.key), layer.key).pack_keys}


def theirs(repository: icechunk.Repository) -> int:
    """How many objects the peer's own garbage collection would delete."""
    summary = repository.garbage_collect(dt.datetime.now(dt.UTC) + dt.timedelta(days=1), dry_run=True)
    kinds = ("snapshots", "transaction_logs", "manifests", "chunks")
    return sum(getattr(summary, f"{kind}_deleted") for kind in kinds)
