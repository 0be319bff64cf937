"""Wrong ways to put layers of chunks on top of each other, and to bring them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from arraystore import forks
from arraystore.commit import prepare
from arraystore.commit.changes import ChangeSet
from arraystore.commit.reader import ChunkReader
from arraystore.commit.state import replaced_layers
from arraystore.format.changes import ChangePayload
from arraystore.format.layer import Layer
from arraystore.format.record import Replacement
from arraystore.format.references import DELETED, References, overlay
from arraystore.format.transaction import Append
from arraystore.haul import gathered
from arraystore.maintenance import fold
from arraystore.simulation.actors.workload import Workload
from arraystore.simulation.mutations.patching import Mutation, everywhere, folded_often

__all__ = ["MUTATIONS"]


def _one_large_array(workload: Workload) -> Workload:
    """Have layers of a few chunks on top of one of many, which is not folded with them."""
    operations = {"write": 3.0, "erase": 3.0}
    return replace(
        workload, arrays=1, groups=0, chunks=60, turns=(8, 10), steps=(1, 1), think=0.05, operations=operations
    )


def _without_tombstones(parts: Sequence[References], *, keep_deleted: bool) -> References:
    return overlay(parts, keep_deleted=False)


def _backwards(parts: Sequence[References], *, keep_deleted: bool) -> References:
    return overlay(list(reversed(parts)), keep_deleted=keep_deleted)


def _without_newer(layers: tuple[Layer, ...], item: Replacement) -> tuple[Layer, ...] | None:
    found = replaced_layers(layers, item)
    if found is None:
        return None
    return found[: [layer.id for layer in layers].index(item.first) + len(item.added)]


def _oldest(reader: ChunkReader, layers: Sequence[Layer], coords: tuple[int, ...]) -> Any:
    return _find_cached(reader, list(reversed(layers)), coords)


_find_cached = ChunkReader.find_cached


def _not_shifted(append: Append, length: int, dimensions: int) -> tuple[int, ...]:
    return (0,) * dimensions


def _in_other_order(payloads: Sequence[ChangePayload]) -> Any:
    return gathered(list(reversed(payloads)))


_final_references = prepare.final_references


async def _shrunk_only(changes: ChangeSet, reader: ChunkReader, node: Any) -> References:
    return changes.references(node.id)


async def _never_erased(changes: ChangeSet, reader: ChunkReader, node: Any) -> References:
    found = await _final_references(changes, reader, node)
    return found.take(found.source != DELETED)


MUTATIONS = (
    Mutation(
        "fold forgets tombstones",
        "deleted chunks come back when layers above others are folded",
        lambda: [(fold, "overlay", _without_tombstones)],
        ("calm",),
        settings=folded_often,
        tuned=_one_large_array,
    ),
    Mutation(
        "fold in the wrong order",
        "of folded layers the oldest one counts",
        lambda: [(fold, "overlay", _backwards)],
        ("calm",),
        settings=folded_often,
        tuned=_one_large_array,
    ),
    Mutation(
        "fold drops newer layers",
        "what was committed while layers were folded is gone",
        lambda: everywhere(replaced_layers, _without_newer),
        ("calm",),
        settings=folded_often,
        tuned=_one_large_array,
    ),
    Mutation(
        "oldest layer wins",
        "chunks are looked for in the oldest layer first",
        lambda: [(ChunkReader, "find_cached", _oldest)],
        ("calm",),
        explored=("reader",),
    ),
    Mutation(
        "appends are not shifted",
        "what is appended stays where it was prepared for when others have appended before it",
        lambda: [(Append, "shift", _not_shifted)],
        ("appends",),
    ),
    Mutation(
        "forks in the wrong order",
        "of forks that wrote the same chunk the first one counts, where the last one should",
        lambda: [(forks, "gathered", _in_other_order)],
        ("forks",),
    ),
    Mutation(
        "shrinking cuts nothing off",
        "chunks beyond the end of an array that was shrunk come back when it grows",
        lambda: everywhere(_final_references, _shrunk_only),
        ("calm", "appends", "mixed"),
    ),
    Mutation(
        "deletions are not written",
        "a deleted chunk is deleted for its session only",
        lambda: everywhere(_final_references, _never_erased),
        ("calm", "mixed"),
    ),
)
"""Wrong ways to put layers together."""
