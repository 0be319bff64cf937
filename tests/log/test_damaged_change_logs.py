"""Change logs that fit no snapshot are damaged: `FormatError`, and no checkpoint that nobody can read."""

from __future__ import annotations

import pytest
import zarr

from arraystore import FormatError, Repository, in_memory_storage
from arraystore._format.box import Box
from arraystore._format.layer import Layer
from arraystore._format.node import NodeKind
from arraystore._format.record import Transaction
from arraystore._format.transaction import Append, ChunkChange, NodeChange, Operation, TransactionLog
from arraystore._log.state import SnapshotState, StateBuilder
from tests.commit.operations import create_array, put


def snapshot() -> SnapshotState:
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    zarr.create_group(session.store)
    create_array(session, "a", 4, "t")[:] = 1
    put(session, "notes.txt", b"notes")
    session.commit("base")
    return repo.readonly_session("main").base_tip.state


def apply(state: SnapshotState, *nodes: NodeChange, chunks: tuple[ChunkChange, ...] = ()) -> None:
    log = TransactionLog(nodes, chunks)
    StateBuilder(state).commit(state.sequence + 1, [(Transaction(bytes(12), state.snapshot, 0, 0, b"", log), log, b"")])


@pytest.mark.parametrize("kind", [NodeKind.GROUP, NodeKind.FILE])
def test_an_update_does_not_make_another_kind_of_a_node(kind: NodeKind) -> None:
    state = snapshot()
    with pytest.raises(FormatError):
        apply(state, NodeChange(Operation.UPDATED, state.nodes["a"].id, "a", kind, {}))


def test_a_file_is_not_moved_as_an_array_to_a_place_where_no_file_can_be() -> None:
    state = snapshot()
    file = state.nodes["\0notes.txt"]
    with pytest.raises(FormatError):
        apply(state, NodeChange(Operation.MOVED, file.id, "notes.txt", NodeKind.ARRAY, {}, ""))


def test_an_append_behind_the_end_of_an_array_does_not_move_chunks_to_before_its_start() -> None:
    state = snapshot()
    node = state.nodes["a"].id
    layer = Layer(bytes(range(12)), Box((0,), (2,)), 2, False)
    with pytest.raises(FormatError):
        apply(
            state,
            NodeChange(Operation.APPENDED, node, "a", NodeKind.ARRAY, {}, None, Append(0, 8, 2, 2)),
            chunks=(ChunkChange(node, layer, None, True),),
        )
