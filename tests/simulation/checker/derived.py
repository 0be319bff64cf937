"""Rule "derived": checkpoints, history pages, hints and rewrites say nothing but what the log says."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import replace
from urllib.parse import unquote

from tests.simulation.checker.content import differences
from tests.simulation.checker.decoder import Branch, HistoryRow, Reader, chained
from tests.simulation.checker.decoding import id_text
from tests.simulation.checker.logs import Logs, id_bytes
from tests.simulation.checker.states import Nodes, Snapshot
from tests.simulation.checker.violations import DecodingError, Violation

__all__ = ["wrong_derivatives"]

_RULE = "derived"
_NOTHING = bytes(12)


def wrong_derivatives(logs: Logs) -> Iterator[Violation]:
    """Compare with the logs all that was derived from them."""
    for branch in logs.branches.values():
        yield from _rewrites(branch)
    named = frozenset(_named(logs))
    for key in sorted(logs.reader.objects):
        kind, _, rest = key.partition("/")
        try:
            if kind == "snapshots":
                yield from _checkpoint(logs, id_bytes(rest), key, named)
            elif kind == "history" and "/kept/" in key:
                yield from _survivors(logs, key)
            elif kind == "history":
                yield from _page(logs, key)
            elif kind == "manifests":
                yield from _manifest(logs, key, rest)
            elif kind == "hints" and unquote(rest) in logs.branches:
                logs.reader.hint(unquote(rest))
        except DecodingError as error:
            yield Violation(_RULE, error.what, error.key)


def _rewrites(branch: Branch) -> Iterator[Violation]:
    for rewrite in branch.rewrites:
        if rewrite.before.chunks != rewrite.after.chunks:
            changed = [
                c
                for c in rewrite.before.chunks.keys() | rewrite.after.chunks.keys()
                if rewrite.before.chunks.get(c) != rewrite.after.chunks.get(c)
            ]
            what = f"it changes chunks {sorted(changed)[:3]} of {'/' + rewrite.after.path!r}"
            yield Violation(_RULE, what, f"record {rewrite.number} of {branch.name!r}")


def _named(logs: Logs) -> Iterator[bytes]:
    """Return the checkpoints that something leads to: hints, pages, births, resets."""
    reader = logs.reader
    for key in reader.objects:
        kind, _, rest = key.partition("/")
        with suppress(DecodingError):  # told where the object itself is checked
            if kind == "hints":
                yield reader.object(key, 9)[1]
            elif kind == "history" and "/kept/" not in key:
                _, name, level, index = rest.split("/")
                yield from (identifier for _, identifier in reader.history(unquote(name), int(level), int(index))[1])
    for branch in logs.branches.values():
        yield from (era.origin[2] for era in branch.eras if era.origin is not None)


def _checkpoint(logs: Logs, identifier: bytes, key: str, named: Container[bytes]) -> Iterator[Violation]:
    reader = logs.reader
    found = reader.checkpoint(identifier)
    expected = _expected(logs, found)
    if expected is None:
        if found.branch in logs.branches:
            yield Violation(_RULE, f"it is that of record {found.number} of {found.branch!r}, which has another", key)
        return
    for name in ("id", "parent", "time", "message", "metadata"):
        one, other = getattr(found, name), getattr(expected, name)
        if one != other and (one or other):
            yield Violation(_RULE, f"its {name} is {one!r}, not {other!r}", key)
    for difference in differences(Nodes(expected.nodes, expected.keys), found, set()):
        yield Violation(_RULE, str(difference), key)
    yield from _layers(expected, found, key)
    life, told = logs.branches[found.branch].lives[found.number].told(), reader.life(identifier)
    if told != life and found.id == logs.branches[found.branch].states[found.number].id:
        yield Violation(_RULE, f"it says {told} of its branch, not {life}", key)
    yield from _digest(reader, found, identifier, key)
    yield from _pages(reader, found, identifier, key, named)


def _digest(reader: Reader, found: Snapshot, identifier: bytes, key: str) -> Iterator[Violation]:
    """Check that a checkpoint holds the digest of the log up to its record, which whoever wrote it knew."""
    own = chained(reader.link(found.branch, found.number), reader.record(found.branch, found.number)[2])
    if reader.digest(identifier) != own:
        yield Violation(_RULE, f"it does not hold the digest {own.hex()} of record {found.number}", key)


def _expected(logs: Logs, found: Snapshot) -> Snapshot | None:
    """Return the snapshot that a checkpoint is of: the last one of its record, or one within it."""
    branch = logs.branches.get(found.branch)
    if branch is None or found.number >= len(branch.states):
        return None
    state = branch.states[found.number]
    if state.id == found.id:
        begun = any(era.number == found.number and era.origin is not None for era in branch.eras)
        return replace(state, time=found.time) if begun else state
    within = branch.snapshot(found.id)
    return within if within is not None and within.number == found.number else logs.detached.get(found.id)


def _layers(expected: Snapshot, found: Snapshot, key: str) -> Iterator[Violation]:
    for identifier, place in expected.keys.items():
        node = found.by_id(identifier)
        if node is not None and [x.id for x in node.layers] != [x.id for x in expected.nodes[place].layers]:
            yield Violation(_RULE, f"layers of {'/' + node.path!r} are not those of the log", key)


def _pages(
    reader: Reader, found: Snapshot, identifier: bytes, key: str, named: Container[bytes]
) -> Iterator[Violation]:
    """Check that the pages that a checkpoint names are there, follow each other, and hold the ids that it says.

    It is written before its pages, and those before the hint: until something leads to it, they may be missing.
    """
    end: int | None = None
    for level, index, low, high in reader.pages(identifier):
        size = 64**level
        if (end is not None and size * index != end) or size * (index + 1) > found.number:
            yield Violation(_RULE, f"its page {index} of level {level} does not follow record {end}", key)
        end = size * (index + 1)
        if identifier not in named and reader.page_key(found.branch, level, index) not in reader.objects:
            continue
        rows, _ = reader.history(found.branch, level, index)
        ids = [row.id for row in rows]
        if (low, high) != (min(ids, default=_NOTHING), max(ids, default=_NOTHING)):
            yield Violation(_RULE, f"its page {index} of level {level} has other ids than it says", key)


def _page(logs: Logs, key: str) -> Iterator[Violation]:
    _, _, name, level, index = key.split("/")
    branch = logs.branches.get(unquote(name))
    if branch is None:
        return
    rows, checkpoints = logs.reader.history(branch.name, int(level), int(index))
    size = 64 ** int(level)
    first, last = size * int(index) + 1, size * (int(index) + 1)
    expected = [_row(c.after) for c in branch.commits if first <= c.number <= last]
    if not int(index) and branch.origin is None:
        expected.insert(0, _row(branch.first))
    life = branch.lives[-1]
    shown = [row for row in rows if row.number > life.expired and row.number >= life.start]
    needed = [row for row in expected if row.number > life.expired and row.number >= life.start]
    if shown != needed or not all(row in expected for row in rows):  # what is shown no more may have been trimmed
        differing = [a for a, b in zip(rows, expected, strict=False) if a != b]
        yield Violation(_RULE, f"{len(rows)} rows, not the {len(expected)} of the log: {differing[:1]}", key)
    for number, identifier in checkpoints:
        state = logs.reader.checkpoint(identifier)
        if (state.branch, state.number) != (branch.name, number) or number > last:
            yield Violation(_RULE, f"its checkpoint {id_text(identifier)} is not that of record {number}", key)


def _survivors(logs: Logs, key: str) -> Iterator[Violation]:
    """Check what an expiry has left: snapshots of the log, each with its checkpoint, each the parent of the next."""
    _, _, name, _, rest = key.split("/")
    branch = logs.branches.get(unquote(name))
    if branch is None:
        return
    upto, rows, checkpoints = logs.reader.survivors(branch.name, id_bytes(rest))
    for row, identifier in zip(rows, checkpoints, strict=True):
        made = branch.snapshot(row.id)
        if (
            made is None
            or row.number > upto
            or (made.number, made.time, made.message)
            != (
                row.number,
                row.time,
                row.message,
            )
        ):
            yield Violation(_RULE, f"it lists {id_text(row.id)}, which is no such snapshot of the log", key)
            continue
        state = logs.reader.checkpoint(identifier)
        if state.id != row.id:
            yield Violation(_RULE, f"its checkpoint of {id_text(row.id)} is that of {id_text(state.id)}", key)
        ancestors = {each.id for each in logs.ancestry(row.id)}
        if row.parent is not None and row.parent not in ancestors:
            yield Violation(_RULE, f"it makes {id_text(row.parent)} the parent of {id_text(row.id)}", key)


def _manifest(logs: Logs, key: str, rest: str) -> Iterator[Violation]:
    """Check a manifest that stood in a record, and got an object of its own before that was to go."""
    attached = logs.reader.attached.get(id_bytes(rest))
    data = logs.reader.objects[key]
    if attached is not None and attached[:12] + attached[16:] != data[:12] + data[16:]:  # but for the checksums
        yield Violation(_RULE, "it is not what is attached to the record of its layer", key)


def _row(state: Snapshot) -> HistoryRow:
    metadata = state.metadata or None
    return HistoryRow(state.number, state.id, state.parent, state.time, state.message, metadata)
