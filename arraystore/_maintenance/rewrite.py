"""Putting layers in the place of others with the same content, through rewrite records.

Who prepares an exchange writes manifests, and maybe packs, that nothing names yet.  The record that names them fits as
long as the layers to be replaced are still there; writers that come in between put theirs on top and win.  A collection
that has passed in between may delete what nothing named, so what was written before its watermark is thrown away.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from arraystore._environment import Environment
from arraystore._format.envelope import bind_object, pack_body
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest, encode_manifest
from arraystore._format.record import (
    MAX_BODY,
    MAX_MANIFEST_IN_BODY,
    MOST_PACKS_IN_BODY,
    Replacement,
    Rewrite,
)
from arraystore._log.branch_entries import append_entry
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, refresh
from arraystore._log.state import State
from arraystore._log.status import check_open
from arraystore.storage.protocol import Storage

__all__ = ["LARGEST_EXCHANGE", "Exchange", "Exchanged", "delete_leftovers", "exchange", "in_batches", "placed"]

_logger = logging.getLogger("arraystore")

_MOST_BYTES = MAX_BODY // 4
"""Of replacements in one rewrite record: its body is repeated some eight times by its successors."""

LARGEST_EXCHANGE = MAX_BODY - 512
"""Bytes that one exchange may take in a record of its own; some three hundred manifests."""

_TRIES = 200
"""Attempts of one rewrite: of ten writers each wins one race in ten, and who gives up leaves its manifests behind."""


@dataclass(frozen=True)
class Exchange:
    """Neighbouring layers of an array, and others with the same content to put in their place.

    Parameters
    ----------
    node
        Id of the array.
    replaced
        The layers that go, oldest first; at least one.
    added
        Those that come; some of them may be among those that go, and stay what they are.
    packs
        Ids of the packs that were written for it.
    """

    node: bytes
    replaced: tuple[Layer, ...]
    added: tuple[Layer, ...]
    packs: tuple[bytes, ...] = ()

    @property
    def replacement(self) -> Replacement:
        """What a rewrite says of it."""
        return Replacement(self.node, self.replaced[0].id, self.replaced[-1].id, len(self.replaced), self.added)

    @cached_property
    def new_layers(self) -> tuple[Layer, ...]:
        """The layers that were made for it."""
        old = {layer.id for layer in self.replaced}
        return tuple([layer for layer in self.added if layer.id not in old])

    @cached_property
    def oldest(self) -> bytes | None:
        """Smallest id of what was made for it; None if nothing was."""
        return min([*(layer.id for layer in self.new_layers), *self.packs], default=None)

    @cached_property
    def manifest_keys(self) -> tuple[str, ...]:
        """Keys of the manifests that were written for it."""
        return tuple([layer.key for layer in self.new_layers if layer.inline is None])

    @cached_property
    def weight(self) -> int:
        """Bytes that it takes in a record."""
        item = self.replacement
        wire = (item.node, item.first, item.last, item.count, tuple([layer.to_wire() for layer in item.added]))
        return len(pack_body(wire)) + len(self.packs) * 14

    def fits(self, state: State) -> bool:
        """Tell whether the layers to be replaced are in a snapshot as they were."""
        node = state.by_id(self.node)
        if node is None:
            return False
        at = next((i for i, layer in enumerate(node.layers) if layer.id == self.replaced[0].id), None)
        return at is not None and node.layers[at : at + len(self.replaced)] == self.replaced


@dataclass
class Exchanged:
    """What came out of some exchanges.

    Parameters
    ----------
    tip
        Newest record known afterwards.
    done
        Those that are in the log now.
    lost
        Those whose layers are not there any more, or for which others were faster every time.
    fenced
        Those that a collection has overtaken: to be prepared again.
    records
        How many records were written.
    """

    tip: Tip
    done: list[Exchange] = field(default_factory=list[Exchange])
    lost: list[Exchange] = field(default_factory=list[Exchange])
    fenced: list[Exchange] = field(default_factory=list[Exchange])
    records: int = 0


def placed(environment: Environment, manifest: Manifest, encoded: bytes | None = None) -> tuple[Layer, bytes | None]:
    """Return the layer for a manifest under a new id, and the object to write before, None if it is in the layer."""
    if encoded is None:
        encoded = encode_manifest(manifest)
    layer = Layer(environment.new_id(), manifest.box, manifest.count, manifest.has_deletions)
    if len(encoded) <= MAX_MANIFEST_IN_BODY:
        return replace(layer, inline=encoded), None
    return layer, bind_object(layer.key, encoded)


def in_batches(items: Iterable[Exchange]) -> Iterator[list[Exchange]]:
    """Gather exchanges for one record each."""
    batch: list[Exchange] = []
    size = 0
    for item in items:
        if batch and size + item.weight > _MOST_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item.weight
    if batch:
        yield batch


async def exchange(log: BranchLog, tip: Tip, items: Sequence[Exchange]) -> Exchanged:
    """Append the records that put exchanges into effect; what they name is written and durable.

    Manifests of those that come to nothing are deleted: no record names them, and none ever will, for nobody else knows
    them, and a record that was refused counts as somebody else's only after it was read.  Packs are left to the caller,
    since several exchanges may share one.

    Raises
    ------
    AppendUncertainError
        If the storage fails for so long that it stays unknown whether a record arrived; then nothing is deleted.
    """
    result = Exchanged(tip)
    for batch in in_batches(items):
        await _exchange(log, batch, result)
    return result


async def _exchange(log: BranchLog, batch: Sequence[Exchange], result: Exchanged) -> None:
    left = list(batch)
    for _ in range(_TRIES):
        left = await _sift(log.storage, left, result)
        if not left:
            return
        tip = result.tip
        entry = Rewrite(tuple([item.replacement for item in left]), _packs(left))
        body = await append_entry(log, tip, entry)
        if body is not None:
            sequence = tip.sequence + 1
            result.tip = tip.followed_by(tip.state.rewritten(sequence, entry.replacements), body)
            result.done += left
            result.records += 1
            return
        result.tip = await refresh(log, tip)
    result.lost += left
    await _discard(log.storage, left)


async def _sift(storage: Storage, items: list[Exchange], result: Exchanged) -> list[Exchange]:
    """Return the exchanges that may be put on a tip as they are."""
    state = result.tip.state
    closed = check_open(state) is not None
    lost = [item for item in items if closed or not item.fits(state)]
    fitting = [item for item in items if item not in lost]
    fenced = [item for item in fitting if item.oldest is not None and item.oldest < state.life.fence]
    result.lost += lost
    result.fenced += fenced
    await _discard(storage, lost + fenced)
    return [item for item in fitting if item not in fenced]


def _packs(items: Sequence[Exchange]) -> bytes | None:
    """Return the ids of the packs of a record, as far as it names them."""
    packs = sorted({pack for item in items for pack in item.packs})
    return None if len(packs) > MOST_PACKS_IN_BODY else b"".join(packs)


async def _discard(storage: Storage, items: Sequence[Exchange]) -> None:
    await delete_leftovers(storage, [key for item in items for key in item.manifest_keys])


async def delete_leftovers(storage: Storage, keys: Sequence[str]) -> None:
    """Delete objects that this process has written and that nothing will ever name."""
    if keys:
        for failure in await storage.delete(keys):
            _logger.info("%s is left behind: %s", failure.key, failure.reason)
