"""Collection of the changes of a fork, and the merge of those of many forks in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from arraystore._changes.change_set import ChangeSet
from arraystore._chunks.reader import ChunkReader
from arraystore._commit.prepare import final_references
from arraystore._forks.cuts import Cut, cut_off, take_cuts
from arraystore._forks.merged import CellLog, Merged, MergedNode, grid_of
from arraystore._forks.node_merge import apply_node, check_nodes, check_siblings, with_taken_back
from arraystore._forks.payload_table import (
    PAYLOAD,
    PayloadTable,
    Writers,
    gather_payloads,
    grids,
    part_of,
    sorted_cells,
)
from arraystore._forks.written_arrays import array_written, check_cut_off, check_decodings, find_cuts
from arraystore._format.box import Box
from arraystore._format.fork_payload import ChangePayload, ForkChanges, Part, WrittenArray, decode_changes
from arraystore._format.ids import ForkId, NodeId
from arraystore._format.node import Node, NodeKind, node_key
from arraystore._format.references import DELETED, INLINE, VIRTUAL, References
from arraystore._format.transaction import Operation
from arraystore._format.types import Bools, Int32s, Int64s
from arraystore._format.zarr_changes import dimension_of
from arraystore._format.zarr_metadata import array_info
from arraystore.errors import FormatError, InvalidInputError, MergeConflictError

OnOverlap = Literal["error", "last"]
"""The policy for chunks that two forks wrote: an error, or the later one wins."""

_SHOWN = 100
"""Largest number of chunks that an error names."""

_NONE = np.empty(0, dtype=np.int64)

_AT_ONCE = 1 << 20
"""Cells processed at a time, so that temporary memory does not grow with their number."""

_THE_SESSION = 0


@dataclass(frozen=True)
class PayloadOrigin:
    """The origin of a payload; see `ForkChanges`."""

    session: bytes
    fork: ForkId
    epoch: int
    number: int
    parents: tuple[tuple[ForkId, int], ...] = ()


# -- collecting -----------------------------------------------------------------------------------------------


async def collect(changes: ChangeSet, reader: ChunkReader, origin: PayloadOrigin) -> ChangePayload:
    """Make the packs of a fork durable and return what it changed; what it has read is to be added after that."""
    with changes.lock:  # other threads may go on writing, to packs that are not uploaded here
        changes.packs.settle()
        nodes, node_changes, changed = list(changes.all_nodes()), tuple(changes.node_changes()), changes.copied_arrays()
    await changes.packs.flush()
    await changes.packs.storage.sync()
    arrays: list[tuple[NodeId, str]] = []
    parts: list[Part] = []
    references_of_arrays: list[References] = []
    written: list[WrittenArray] = []
    for node in nodes:
        if (of_node := changed.get(node.id)) is not None:
            references = await final_references(changes, reader, node, of_node)
            written.append(array_written(node, of_node))
            if len(references):
                parts.append(part_of(0, len(arrays), references.coords))
                arrays.append((node.id, node.path))
                references_of_arrays.append(references)
    fork = ForkChanges(origin.fork, origin.epoch, origin.number, node_changes, b"", origin.parents, tuple(written))
    references = _concatenate(references_of_arrays)
    known = [table.bound_to(references) for table in changes.packs.statistics_tables()]
    statistics = tuple([piece for table in known if table is not None for piece in table.pieces()])
    return PayloadTable((fork,), tuple(arrays), tuple(parts), references, statistics).payload(origin.session)


def _concatenate(sets: Sequence[References]) -> References:
    """Concatenate references of one change set; its tables only grow, so those of the last set hold for all."""
    if not sets:
        return References.none(0)
    source, offset, length = (
        np.concatenate([getattr(part, name) for part in sets]) for name in ("source", "offset", "length")
    )
    no_coords = np.empty((len(source), 0), dtype=np.int64)
    return replace(sets[-1], coords=no_coords, source=source, offset=offset, length=length)


def decode_payload(data: bytes, session: bytes | None = None, oldest: int = 0) -> ChangePayload:
    """Decode a payload; raises `MergeConflictError` for another session, or for forks up to epoch `oldest`."""
    payload = decode_changes(PAYLOAD, data)
    if session is not None and payload.session != session:
        raise MergeConflictError(
            "these changes come from a fork of another session; merge them into that one", *_first_chunks(payload)
        )
    if any(fork.epoch <= oldest for fork in payload.forks):
        raise MergeConflictError(
            "these changes come from a fork that was issued before the session was rebased, and may overwrite what "
            "others have committed: merge forks before rebasing, or write again through a fork issued after it",
            *_first_chunks(payload),
        )
    return payload


def _first_chunks(payload: ChangePayload) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """Return the path and some chunks of the first array that a payload has chunks of."""
    for part in payload.parts[:1]:
        coords = part.box.coords(part.numbers()[:_SHOWN])
        return payload.arrays[part.array][1], tuple(tuple(row) for row in coords.tolist())
    return "", ()


def check_overlap(on_overlap: str) -> OnOverlap:
    """Check the policy for chunks that two forks wrote; raises `InvalidInputError`."""
    if on_overlap == "error":
        return "error"
    if on_overlap == "last":
        return "last"
    raise InvalidInputError(f"on_overlap must be 'error' or 'last', not {on_overlap!r}")


def combine_payloads(payloads: Sequence[ChangePayload], on_overlap: OnOverlap) -> ChangePayload:
    """Combine several payloads into one; raises `MergeConflictError` if their forks or sessions conflict."""
    session = payloads[0].session
    if any(payload.session != session for payload in payloads):
        raise MergeConflictError("these changes come from forks of different sessions; merge each into its own session")
    table = gather_payloads(payloads)
    check_siblings(table.forks)
    writers = _writers(table)
    for fork in table.forks:
        for change in fork.nodes:
            if change.operation == Operation.DELETED and writers.get(change.id, set()) - {fork.fork}:
                raise MergeConflictError(
                    f"a fork deleted {change.path!r}, whose chunks others wrote meanwhile", change.path
                )
    boxes = [Box((0,) * len(grid), grid) for grid in grids(table)]
    order, _, again = sorted_cells(table, table.numbers([box.strides for box in boxes]))
    if again.any():
        if on_overlap == "error":
            array = int(table.of_cells([part.array for part in table.parts])[order[again][0]])
            _refuse(table.arrays[array][1], _coords(table, order[again], array))
        _check_not_resized(table, writers, order[again])
        keep = np.ones(len(order), dtype=bool)
        keep[order[again]] = False
        table = table.take(keep)
    return table.payload(session)


def _check_not_resized(table: PayloadTable, writers: dict[NodeId, set[ForkId]], cells: Int64s) -> None:
    """Check that no array with chunks written twice was resized by only some of its writers."""
    # Where one of them let the array grow into a chunk, another has padding in the place of what was appended.
    resized: dict[NodeId, set[ForkId]] = {}
    for fork in table.forks:
        for change in fork.nodes:
            resized.setdefault(change.id, set()).add(fork.fork)
    arrays = table.of_cells([part.array for part in table.parts])[cells]
    for array in np.unique(arrays).tolist():
        identifier, path = table.arrays[array]
        if identifier in resized and writers[identifier] - resized[identifier]:
            _refuse_edges(path, _coords(table, cells[arrays == array], array))


def _refuse_edges(path: str, coords: Int64s) -> None:
    shown = tuple(tuple(row) for row in coords[:_SHOWN].tolist())
    raise MergeConflictError(
        f"{len(coords)} chunks of {path!r}, the first at {shown[0]}, were written by more than one fork, or by a fork "
        "and the session, while one of them resized the array: the others would put padding in the place of what it "
        "has appended; resize the array in the session, before forking",
        path,
        shown,
    )


def _changed_meanwhile(changes: ChangeSet, forks: Sequence[ForkChanges]) -> set[NodeId]:
    """Return arrays whose metadata forks changed, or the session since one of them was issued."""
    by_forks = {change.id for fork in forks for change in fork.nodes if change.kind == NodeKind.ARRAY}
    oldest = min((fork.epoch for fork in forks), default=None)
    late = [changes.node(key) for key, epoch in changes.node_epochs.items() if oldest is not None and epoch >= oldest]
    return by_forks | {node.id for node in late if node is not None and node.kind == NodeKind.ARRAY}


def _edges(changes: ChangeSet, node: Node, coords: Int64s) -> Int64s:
    """Return the cells that reach beyond the end of the array as one of their writers may have seen it."""
    base = changes.base.by_id(node.id)
    shape = array_info(node.documents).shape
    before = (0,) * len(shape) if base is None else array_info(base.documents).shape
    sides = [dimension_of(node.documents, axis).chunk for axis in range(len(shape))]
    if len(before) != len(shape) or None in sides:
        return coords
    end = np.minimum((coords + 1) * np.array(sides, dtype=np.int64), np.array(shape, dtype=np.int64))
    return coords[(end > np.array(before, dtype=np.int64)).any(axis=1)]


def _writers(table: PayloadTable) -> dict[NodeId, set[ForkId]]:
    """Return the forks that wrote chunks of each array."""
    writers: dict[NodeId, set[ForkId]] = {}
    for part in table.parts:
        writers.setdefault(table.arrays[part.array][0], set()).add(table.forks[part.fork].fork)
    return writers


def _coords(table: PayloadTable, cells: Int64s, array: int) -> Int64s:
    """Return the coordinates of the cells that belong to one array."""
    coords: list[Int64s] = []
    wanted = np.sort(cells)
    end = 0
    for part in table.parts:
        start, end = end, end + part.count
        low, high = wanted.searchsorted([start, end])
        if part.array == array and low < high:
            coords.append(part.box.coords(part.numbers()[wanted[low:high] - start]))
    return np.unique(np.concatenate(coords), axis=0)


def _refuse(path: str, coords: Int64s) -> None:
    shown = tuple(tuple(row) for row in coords[:_SHOWN].tolist())
    raise MergeConflictError(
        f"{len(coords)} chunks of {path!r} were written by more than one fork, or by a fork and the session, "
        f"the first at {shown[0]}: give every fork whole chunks of its own, or pass on_overlap='last'",
        path,
        shown,
    )


# -- merging ------------------------------------------------------------------------------------------------


def apply_payloads(
    changes: ChangeSet, payloads: list[ChangePayload], merged: Merged, on_overlap: OnOverlap = "error"
) -> tuple[ForkChanges, ...]:
    """Merge payloads of forks into a change set, all or none, and return the forks merged."""
    # Of several payloads of one fork the newest counts: it holds what the others do.
    for payload in payloads:
        if any(fork.number <= merged.numbers.get(fork.fork, 0) for fork in payload.forks):
            raise MergeConflictError("these changes of a fork have been merged already, or newer ones of the same fork")
    table = gather_payloads(payloads)
    payloads.clear()  # releases the payloads, whose references are gathered by now
    with changes.lock:
        changes.check_open()
        _note_own(changes, merged)
        table = replace(table, forks=tuple([with_taken_back(fork, merged) for fork in table.forks]))
        nodes_by_id = _final_nodes(changes, table, merged)
        nodes = [_written(nodes_by_id, array) for array in table.arrays]
        check_decodings(table, nodes)
        check_cut_off(changes, table.forks, nodes_by_id, merged)
        found_cuts = find_cuts(changes, table)
        table = _within(table, nodes)
        logs = [merged.log(node) for node in nodes]
        order, numbers, again = sorted_cells(table, table.numbers([log.strides for log in logs]))
        writers, spans = table.writers(), table.spans()
        resized = _changed_meanwhile(changes, table.forks)
        for node, log, span in zip(nodes, logs, spans, strict=True):
            cuts = merged.cuts.get(node.id, ())
            beside = again[span].any() or log or cuts
            if span.start < span.stop and (on_overlap == "error" or node.id in resized) and beside:
                shared = _shared(table.forks, writers, order[span], numbers[span], again[span], log, merged, cuts)
                coords = np.unique(log.coords(shared), axis=0)
                if len(coords) and on_overlap == "error":
                    _refuse(node.path, coords)
                if len(coords) and len(edges := _edges(changes, node, coords)):
                    _refuse_edges(node.path, edges)
        del again
        for node, cut in found_cuts:
            changes.cut(node, cut)
        for fork in table.forks:
            for change in fork.nodes:
                key = node_key(change.path, change.kind)
                last, before = merged.nodes.get(key), changes.node(key)
                apply_node(changes, change)
                first = before if last is None or last.fork != fork.fork else last.before
                merged.nodes[key] = MergedNode(fork.fork, changes.node(key), first)
            take_cuts(changes, merged.cuts, fork.fork)
        references, forks = _adopt_sources(changes, table.references), table.forks
        changes.packs.adopt_statistics(table.statistics)
        del table  # with the sources as they were
        earlier = [merged.owners[fork.fork] for fork in forks if fork.fork in merged.owners]
        owners = np.array([merged.owners.setdefault(fork.fork, len(merged.owners) + 1) for fork in forks])
        if earlier:
            _remove_earlier(changes, merged, earlier)
        for left, node, log, span in zip(reversed(range(len(nodes))), nodes, logs, spans, strict=True):
            cells = order[span]
            values = _values(references, cells)  # of cells that are the same chunk the last one counts
            if not left:
                references = references.take(_NONE)  # the tables may need as much for sorting
            _put(changes, node, log, numbers[span], values)
            log.note(numbers[span], _noted(changes.epoch, owners, writers, cells))
        merged.numbers.update({fork.fork: fork.number for fork in forks})
    return forks


def _stretches(count: int) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, count, _AT_ONCE))


def _shared(
    forks: Sequence[ForkChanges],
    writers: Writers,
    order: Int64s,
    numbers: Int64s,
    again: Bools,
    log: CellLog,
    merged: Merged,
    cuts: Sequence[Cut],
) -> Int64s:
    """Return the numbers of cells that two forks wrote, or a fork and, since it was issued, the session."""
    shared_numbers: list[Int64s] = []
    for some in _stretches(len(order)):
        of_cells = writers.of(order[some])
        shared = again[some] | _late(forks, of_cells, numbers[some], log, merged)
        if cuts:
            shared |= cut_off(cuts, forks, of_cells, log.coords(numbers[some]))
        shared_numbers.append(numbers[some][shared])
    return np.concatenate(shared_numbers)


def _noted(epoch: int, owners: Int64s, writers: Writers, order: Int64s) -> Int32s:
    """Return epoch and owner of each cell, for the log of its array."""
    noted = np.empty((len(order), 2), dtype=np.int32)
    noted[:, 0] = epoch
    for some in _stretches(len(order)):
        noted[some, 1] = owners[writers.of(order[some])]
    return noted


def _values(references: References, order: Int64s) -> Int64s:
    """Return source, offset and length of cells, shape (n, 3)."""
    values = np.empty((len(order), 3), dtype=np.int64)
    for some in _stretches(len(order)):
        cells = order[some]
        for at, column in enumerate((references.source, references.offset, references.length)):
            values[some, at] = column[cells]
    return values


def _note_own(changes: ChangeSet, merged: Merged) -> None:
    """Move the session's own writes since forks were issued into the logs, and what it has cut off."""
    take_cuts(changes, merged.cuts, None)
    touched, changes.touched = changes.touched, {}
    for identifier, table in touched.items():
        coords, values = table.columns()
        if len(coords):
            log = _log_of(merged, identifier, coords)
            _note(log, log.numbers(coords), values[:, 0])


def _log_of(merged: Merged, identifier: NodeId, coords: Int64s) -> CellLog:
    """Return the log of an array with room for cells."""
    grid = tuple((coords.max(axis=0) + 1).tolist())
    log = merged.cells.setdefault(identifier, CellLog(grid))
    log.fit(grid)
    return log


def _note(log: CellLog, numbers: Int64s, epochs: Int64s) -> None:
    noted = np.full((len(numbers), 2), _THE_SESSION, dtype=np.int32)
    noted[:, 0] = epochs
    log.note(numbers, noted)


def note_unseen(changes: ChangeSet, merged: Merged) -> None:
    """Move all that a fork has written into the logs, for a merge of forks that have seen nothing of it."""
    with changes.lock:
        _note_own(changes, merged)
        for identifier, written in changes.arrays.items():
            if written.visible is not None:
                merged.cuts.setdefault(identifier, []).append(Cut(0, None, written.visible))
            coords, _ = written.table.columns()
            if len(coords):
                log = _log_of(merged, identifier, coords)
                numbers = log.numbers(coords)
                numbers = np.sort(numbers[log.find_many(numbers)[0] < 0])
                _note(log, numbers, np.zeros_like(numbers))
        for key in changes.nodes:
            changes.node_epochs.setdefault(key, 0)


def _final_nodes(changes: ChangeSet, table: PayloadTable, merged: Merged) -> dict[NodeId, Node]:
    """Return the nodes as they will be after the merge, by id."""
    if any(fork.nodes for fork in table.forks):
        writers = _writers(table)

        def wrote_since(node: Node, fork: ForkChanges) -> bool:
            log = merged.cells.get(node.id)
            if log is None:
                return False
            _, values = log.columns()
            return bool(((values[:, 0] >= fork.epoch) & (values[:, 1] != merged.owners.get(fork.fork, -1))).any())

        return check_nodes(changes, table.forks, merged.nodes, writers, wrote_since)
    nodes = {node.id: node for node in changes.nodes.values() if node is not None}
    for identifier, _ in table.arrays:
        key = changes.base.keys.get(identifier)
        if key is not None and key not in changes.nodes:
            nodes[identifier] = changes.base.nodes[key]
    return nodes


def _written(nodes: dict[NodeId, Node], array: tuple[NodeId, str]) -> Node:
    node = nodes.get(array[0])
    if node is None:
        raise MergeConflictError(f"a fork wrote chunks of {array[1]!r}, which is deleted by now", array[1])
    if node.kind == NodeKind.GROUP:
        raise FormatError(PAYLOAD, f"{node.path!r} must be an array to have chunks, and is a group")
    return node


def _within(table: PayloadTable, nodes: Sequence[Node]) -> PayloadTable:
    """Check that chunks are within the grids of their arrays; drop deletions outside of them."""
    sides = [grid_of(node) for node in nodes]
    keep: Bools | None = None
    end = 0
    for part in table.parts:
        start, end = end, end + part.count
        node, grid = nodes[part.array], sides[part.array]
        if len(part.box.high) != len(grid):
            raise FormatError(PAYLOAD, f"chunks of {len(part.box.high)} dimensions for {node.path!r}")
        if any(high > side for high, side in zip(part.box.high, grid, strict=True)):
            coords = part.box.coords(part.numbers())
            outside = (coords >= np.array(grid, dtype=np.int64)).any(axis=1)
            lost = outside & (table.references.source[start:end] != DELETED)
            if bool(lost.any()):
                raise MergeConflictError(
                    f"a fork wrote chunks of {node.path!r} outside of its grid, which is {grid} now",
                    node.path,
                    tuple(tuple(row) for row in coords[lost][:_SHOWN].tolist()),
                )
            keep = np.ones(len(table.references), dtype=bool) if keep is None else keep
            keep[start:end] = ~outside
    return table if keep is None else table.take(keep)


def _late(forks: Sequence[ForkChanges], of_cells: Int64s, numbers: Int64s, log: CellLog, merged: Merged) -> Bools:
    """Tell which cells changed in the session, by another owner, after the fork that wrote them was issued."""
    epochs, owners = log.find_many(numbers)
    issued_at = np.array([fork.epoch for fork in forks], dtype=np.int64)
    mine = np.array([merged.owners.get(fork.fork, -2) for fork in forks], dtype=np.int64)
    late: Bools = (epochs >= issued_at[of_cells]) & (owners != mine[of_cells])
    return late


def _remove_earlier(changes: ChangeSet, merged: Merged, owners: Sequence[int]) -> None:
    """Remove the cells that earlier states of the same forks brought, which may have been taken back since."""
    for identifier, log in merged.cells.items():
        written = changes.arrays.get(identifier)
        if written is not None:
            coords, values = log.columns()
            gone = written.table.numbers(coords[np.isin(values[:, 1], owners)])
            there, _ = written.table.columns()
            written.table.drop(~np.isin(written.table.numbers(there), gone))


def _adopt_sources(changes: ChangeSet, part: References) -> References:
    """Renumber the sources of references for the session, adding packs, locations and inlined bytes to it."""
    first_pack = changes.packs.adopt(part.packs)
    source, offset = part.source.copy(), part.offset
    source[(part.source >= 0) & (part.source < VIRTUAL)] += first_pack
    if len(part.locations):
        source[part.source >= VIRTUAL] += changes.put_locations(part.locations) - VIRTUAL
    if part.inline:
        _, start, _ = changes.put_inline(memoryview(part.inline))
        offset = np.where(part.source == INLINE, offset + start, offset)
    return replace(part, source=source, offset=offset)


def _put(changes: ChangeSet, node: Node, log: CellLog, numbers: Int64s, values: Int64s) -> None:
    """Write references, shape (n, 3), into the session's table; cells are numbered as in the log."""
    table = changes.array(node).table
    table.put_numbered(numbers if table.strides == log.strides else table.numbers(log.coords(numbers)), values)
