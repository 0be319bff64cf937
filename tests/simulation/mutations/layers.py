"""Wrong ways to put layers of chunks on top of each other, to bring them together, and to prove what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from arraystore._changes.change_set import ArrayChanges, ChangeSet
from arraystore._chunks.reader import ChunkReader
from arraystore._commit import prepare
from arraystore._forks import merge
from arraystore._forks.payload_table import gather_payloads
from arraystore._format import pack
from arraystore._format.fork_payload import ChangePayload
from arraystore._format.ids import PackId
from arraystore._format.layer import Layer
from arraystore._format.pack import CHECKSUM_BYTES, is_sound, pack_seed, trailer
from arraystore._format.record import Replacement
from arraystore._format.references import DELETED, References, overlay
from arraystore._format.transaction import Append
from arraystore._log.state import replaced_layers
from arraystore._maintenance import fold
from arraystore.simulation.bucket import Bucket
from arraystore.storage.protocol import ByteRange, BytesLike
from tests.simulation.actors.workload import Workload
from tests.simulation.mutations.patching import Change, Mutation, everywhere, folded_often

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
    return gather_payloads(list(reversed(payloads)))


_final_references = prepare.final_references


async def _shrunk_only(changes: ChangeSet, reader: ChunkReader, node: Any, changed: ArrayChanges) -> References:
    return changes.references(changed)


async def _never_erased(changes: ChangeSet, reader: ChunkReader, node: Any, changed: ArrayChanges) -> References:
    found = await _final_references(changes, reader, node, changed)
    return found.take(found.source != DELETED)


_get_ranges = Bucket.get_ranges


def _damaged_on_the_way(bucket: Bucket, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
    """Answer the first question about each pack with a bit that is flipped."""
    found = _get_ranges(bucket, key, ranges)
    asked: set[str] = vars(bucket).setdefault("_asked", set())
    if key in asked or not key.startswith("chunks/"):
        return found
    asked.add(key)
    return [bytes([data[0] ^ 1]) + data[1:] for data in found]


def _lines_that_damage() -> list[Change]:
    return [(Bucket, "get_ranges", _damaged_on_the_way)]


def _believed(seed: int, offset: int, framed: BytesLike) -> bool:
    return True


def _placed_nowhere(seed: int, offset: int) -> int:
    return pack_seed(PackId(b""))


def _sound_anywhere(seed: int, offset: int, framed: BytesLike) -> bool:
    found = bytes(framed)
    return trailer(pack_seed(PackId(b"")), 0, found[:-CHECKSUM_BYTES])[:CHECKSUM_BYTES] == found[-CHECKSUM_BYTES:]


MUTATIONS = (
    Mutation(
        "fold forgets tombstones",
        "deleted chunks come back when layers above others are folded",
        lambda: [(fold, "overlay", _without_tombstones)],
        ("calm",),
        settings=folded_often,
        tuned=_one_large_array,
        runs=(("calm", 2), ("calm", 12)),
        breaks="derived",
    ),
    Mutation(
        "fold in the wrong order",
        "of folded layers the oldest one counts",
        lambda: [(fold, "overlay", _backwards)],
        ("calm",),
        settings=folded_often,
        tuned=_one_large_array,
        runs=(("calm", 0), ("calm", 1)),
        breaks="derived",
    ),
    Mutation(
        "fold drops newer layers",
        "what was committed while layers were folded is gone",
        lambda: everywhere(replaced_layers, _without_newer),
        ("calm",),
        settings=folded_often,
        tuned=_one_large_array,
        runs=(("calm", 0), ("calm", 1)),
        breaks="reads",
    ),
    Mutation(
        "oldest layer wins",
        "chunks are looked for in the oldest layer first",
        lambda: [(ChunkReader, "find_cached", _oldest)],
        ("calm",),
        explored=("reader",),
        runs=(("calm", 0), ("calm", 1)),
        breaks="reads",
    ),
    Mutation(
        "appends are not shifted",
        "what is appended stays where it was prepared for when others have appended before it",
        lambda: [(Append, "shift", _not_shifted)],
        ("appends",),
        runs=(("appends", 0), ("appends", 1)),
        breaks="reads",
    ),
    Mutation(
        "forks in the wrong order",
        "of forks that wrote the same chunk the first one counts, where the last one should",
        lambda: [(merge, "gather_payloads", _in_other_order)],
        ("forks",),
        runs=(("forks", 5), ("forks", 8)),
        breaks="content",
    ),
    Mutation(
        "shrinking cuts nothing off",
        "chunks beyond the end of an array that was shrunk come back when it grows",
        lambda: everywhere(_final_references, _shrunk_only),
        ("calm", "appends", "mixed"),
        runs=(("calm", 0), ("calm", 3)),
        breaks="content",
    ),
    Mutation(
        "deletions are not written",
        "a deleted chunk is deleted for its session only",
        lambda: everywhere(_final_references, _never_erased),
        ("calm", "mixed"),
        runs=(("calm", 0), ("calm", 2)),
        breaks="content",
    ),
    Mutation(
        "checksums are not checked",
        "chunks are returned although a bit of theirs was flipped on the way",
        lambda: everywhere(is_sound, _believed),
        ("calm", "mixed"),
        settings=_lines_that_damage,
        runs=(("calm", 0), ("calm", 1)),
        breaks="reads",
    ),
    Mutation(
        "checksums know no place",
        "a chunk in another pack, or at another place of its own, has the right checksum",
        lambda: [(pack, "_placed", _placed_nowhere), *everywhere(is_sound, _sound_anywhere)],
        ("calm", "mixed"),
        runs=(("calm", 0), ("calm", 1)),
        breaks="history",
    ),
)
"""Wrong ways to put layers together."""
