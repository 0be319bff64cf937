"""A read set forgets nothing that was read, whatever it has to leave out to stay small."""

from __future__ import annotations

import random
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore._changes import read_cells, read_set
from arraystore._changes.read_cells import ReadCells
from arraystore._changes.read_set import ReadSet
from arraystore._chunks.cells import Cells
from arraystore._conflicts import Conflict, ConflictType
from arraystore._format.box import MAX_VOLUME, Box
from arraystore._format.envelope import pack_body
from arraystore._format.ids import id_to_text
from arraystore._format.layer import Layer
from arraystore._format.node import Node, NodeKind
from arraystore._format.transaction import ChunkChange, Presence
from arraystore._log.footprint import Footprint, NodeFootprint, Written
from arraystore._log.state import SnapshotState, empty_state
from arraystore.errors import FormatError

A, B, LAYER = b"a" * 12, b"b" * 12, b"l" * 12
OLD, NEW = b"\x01" * 12, b"\x02" * 12

Coords = tuple[int, ...]


@contextmanager
def bounds(**values: int) -> Iterator[None]:
    """Make the bounds small for a while, so that little is already too much."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(read_cells if hasattr(read_cells, name) else read_set, name, value)
        yield


def array(coords: Sequence[Coords]) -> np.ndarray:
    return np.array(coords, dtype=np.int64).reshape(len(coords), len(coords[0]))


def written(coords: Sequence[Coords], node: bytes = A, snapshot: bytes = NEW) -> Written:
    cells = Cells.of(array(coords))
    layer = Layer(LAYER, cells.box, cells.count)
    found = Presence.of(cells.box, cells.numbers, cells.count)
    return Written(snapshot, ChunkChange(node, layer, None if layer.dense else (found.kind, found.data)))


def an_array(key: str = "a", node: bytes = A, **happened: object) -> NodeFootprint:
    return NodeFootprint(node, NodeKind.ARRAY, key, **happened)  # type: ignore[arg-type]


def wrote(*coords: Coords, key: str = "a", node: bytes = A) -> Footprint:
    return footprint(an_array(key, node, chunks=[written(coords, node)]))


def footprint(*nodes: NodeFootprint, keys: dict[str, bytes] | None = None) -> Footprint:
    """Return what others did; a node that was created or deleted has changed what is at its key."""
    found = Footprint({node.id: node for node in nodes}, dict(keys or {}))
    for node in nodes:
        snapshot = node.created or node.deleted or node.moved
        if snapshot is not None:
            found.keys[node.key] = snapshot
    return found


def appeared(key: str, kind: NodeKind = NodeKind.GROUP) -> Footprint:
    return footprint(NodeFootprint(B, kind, key, created=NEW))


def chunks_of(conflicts: Sequence[Conflict]) -> list[Coords]:
    assert [conflict.conflict_type for conflict in conflicts] == [ConflictType.ReadConflict] * len(conflicts)
    return [tuple(row) for c in conflicts if c.conflicted_chunks is not None for row in c.conflicted_chunks.tolist()]


# -- chunks -----------------------------------------------------------------------------------------------------------


def test_only_chunks_that_were_read_and_written_collide() -> None:
    seen = ReadSet()
    for coords in ((0, 0), (0, 1), (5, 5)):
        seen.chunk(A, coords)
    (conflict,) = seen.collisions(wrote((0, 1), (5, 5), (7, 7)))
    assert chunks_of([conflict]) == [(0, 1), (5, 5)]
    assert (conflict.path, conflict.snapshot, conflict.node) == ("/a", id_to_text(NEW), A)
    assert seen.collisions(wrote((0, 2), (7, 7))) == []
    assert seen.collisions(wrote((0, 1), node=B, key="b")) == []


def test_the_conflict_names_the_newest_snapshot_that_wrote_what_was_read() -> None:
    seen = ReadSet()
    seen.chunk(A, (1,))
    node = an_array(chunks=[written([(1,)], snapshot=OLD), written([(2,)], snapshot=NEW)])
    (conflict,) = seen.collisions(footprint(node))
    assert conflict.snapshot == id_to_text(OLD)


@pytest.mark.parametrize("happened", ["deleted", "moved", "reshaped"])
def test_a_chunk_that_was_read_collides_with_what_happens_to_its_array(happened: str) -> None:
    seen = ReadSet()
    seen.chunk(A, (3, 3))
    (conflict,) = seen.collisions(footprint(an_array(**{happened: NEW})))
    assert (conflict.path, conflict.conflicted_chunks, conflict.snapshot) == ("/a", None, id_to_text(NEW))
    assert seen.collisions(footprint(an_array(node=B, **{happened: NEW}))) == []


@pytest.mark.parametrize("happened", ["updated", "appended"])
def test_a_chunk_that_was_read_does_not_mind_attributes_or_growth(happened: str) -> None:
    seen = ReadSet()
    seen.chunk(A, (3, 3))
    assert seen.collisions(footprint(an_array(**{happened: NEW}))) == []


def test_an_array_without_dimensions_has_a_chunk_to_read() -> None:
    seen = ReadSet()
    seen.chunk(A, ())
    assert chunks_of(seen.collisions(wrote(()))) == [()]
    assert seen.collisions(wrote((), node=B)) == []


def test_an_array_that_was_read_as_a_whole_collides_with_every_chunk_of_it() -> None:
    seen = ReadSet()
    seen.array(A)
    assert chunks_of(seen.collisions(wrote((9, 9), (0, 0)))) == [(0, 0), (9, 9)]


def test_boxes_stay_boxes_however_large() -> None:
    seen = ReadSet()
    seen.cells(A, Cells(Box((0, 0), (1 << 40, 4)), None))
    assert chunks_of(seen.collisions(wrote((1 << 39, 3), (1 << 39, 4)))) == [(1 << 39, 3)]
    seen.cells(A, Cells(Box((0, 0), (1 << 40, 1 << 40)), None))  # more cells than can be numbered
    assert seen.summary()["chunks"] == {id_to_text(A): "all"}


def grids(ndim: int) -> st.SearchStrategy[list[Coords]]:
    return st.lists(st.tuples(*[st.integers(0, 40)] * ndim), min_size=1, max_size=60)


@given(st.integers(0, 4).flatmap(lambda n: st.tuples(st.lists(grids(n), min_size=1, max_size=4), grids(n), grids(n))))
def test_no_collision_is_missed_and_none_is_told_that_others_did_not_write(
    drawn: tuple[list[list[Coords]], list[Coords], list[Coords]],
) -> None:
    batches, first, second = drawn
    theirs = {*first, *second}
    read = {coords for batch in batches for coords in batch}
    for most in (1, 4, 16, 1 << 16):
        with bounds(MAX_CELLS=most, MAX_TOTAL_CELLS=most, MAX_BOXES=2, _BUFFER=7):
            seen = ReadSet()
            for number, batch in enumerate(batches):
                if number % 2:
                    seen.cells(A, Cells.of(array(batch)))
                else:
                    for coords in batch:
                        seen.chunk(A, coords)
            again = ReadSet.decode("reads", seen.encode())
            other = ReadSet()
            other.chunk(A, batches[0][0])
            other.update(seen)
            node = an_array(chunks=[written(first), written(second)])
            for each in (seen, again, other):
                hit = chunks_of(each.collisions(footprint(node)))
                assert sorted(set(hit)) == hit
                assert read & theirs <= set(hit) <= theirs
                if most == 1 << 16 and len(batches) < 3:
                    assert set(hit) == read & theirs


@given(st.lists(st.tuples(st.integers(0, MAX_VOLUME - 1), st.integers(0, MAX_VOLUME - 1)), min_size=1, max_size=9))
def test_chunks_of_the_largest_grids_are_not_lost(coords: list[Coords]) -> None:
    cells = ReadCells()
    for each in coords:
        cells.add(array([each]))
    for each in coords:
        assert cells.hits([Cells.of(array([each]))]).tolist() == [list(each)]
    again = ReadCells.from_wire("reads", cells.to_wire())
    assert all(len(again.hits([Cells.of(array([each]))])) for each in coords)


def test_too_many_chunks_become_blocks_as_small_as_they_can_be() -> None:
    with bounds(MAX_CELLS=100, _BUFFER=10):
        seen = ReadSet()
        for number in range(150):
            seen.chunk(A, (number, number))
        assert seen.summary()["chunks"] == {id_to_text(A): {"blocks": 75, "side": 2, "boxes": []}}
        (conflict,) = seen.collisions(wrote((2, 3), (2, 4), (99, 99), (99, 100), (150, 150)))
        assert chunks_of([conflict]) == [(2, 3), (99, 99)]
        assert "in blocks of 2" in conflict.detail


def test_an_array_that_is_read_completely_is_a_box_and_costs_nothing() -> None:
    seen = ReadSet()
    for number in random.Random(1).sample(range(30_000), 30_000):
        seen.chunk(A, (number // 300, number % 300))
    assert seen.summary()["chunks"] == {id_to_text(A): {"blocks": 30_000, "side": 1, "boxes": []}}
    assert len(seen.encode()) < 100
    for number in range(30_000, 60_000):  # a box that is too large to be listed is kept as one
        seen.chunk(A, (number // 300, number % 300))
    seen.cells(A, Cells(Box((0, 0), (200, 300)), None))
    assert seen.collisions(wrote((200, 0), (0, 300))) == []


def test_a_filled_grid_is_never_listed_cell_by_cell() -> None:
    cells = ReadCells()
    cells.blocks = Cells(Box((0, 0), (1 << 30, 1 << 30)), None)
    cells.add(array([(1 << 31, 0)]))
    cells.widen()
    other = ReadCells()
    other.update(cells)
    for each in (cells, other):
        hits = each.hits([Cells.of(array([(1 << 29, 7), (1 << 30, 9), (1 << 31, 0)]))])
        assert hits.tolist() == [[1 << 29, 7], [1 << 31, 0]]


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_memory_stays_bounded_whatever_is_read() -> None:
    rng = random.Random(7)
    with bounds(MAX_CELLS=1 << 10, MAX_TOTAL_CELLS=1 << 12, _BUFFER=1 << 9):
        seen = ReadSet()
        tracemalloc.start()
        try:
            for number in range(30_000):
                seen.chunk(bytes([number % 16]) * 12, (rng.randrange(10**6), rng.randrange(99)))
            kept, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < 40 << 12, "each cell takes some 100 bytes before it is packed, and 30,000 were read"
        assert most < 200 << 12
        assert len(seen.encode()) < 8 << 12


def test_where_all_arrays_together_have_too_many_the_largest_widens_first() -> None:
    with bounds(MAX_TOTAL_CELLS=130, _BUFFER=1):
        seen = ReadSet()
        for number in range(100):
            seen.chunk(A, (number, number))
        for number in range(40):
            seen.chunk(B, (number, number))
        assert seen.summary()["chunks"] == {
            id_to_text(A): {"blocks": 50, "side": 2, "boxes": []},
            id_to_text(B): {"blocks": 40, "side": 1, "boxes": []},
        }


@pytest.mark.parametrize("kind", ["node", "place", "prefix", "names", "array", "tree"])
def test_with_too_many_entries_everything_counts_as_read(kind: str) -> None:
    with bounds(MAX_ENTRIES=50):
        seen = ReadSet()
        for number in range(51):
            if kind == "names":
                seen.listing(f"g{number}", recursive=False)
            elif kind == "array":
                seen.array(number.to_bytes(12, "big"))
            else:
                getattr(seen, kind)(f"g{number}")
        seen.chunk(A, (1,))
        seen.node("later")
        assert seen.everything
        assert ReadSet.decode("reads", seen.encode()).everything
        assert len(seen.encode()) < 20
        assert [c.path for c in seen.collisions(appeared("somewhere/else"))] == ["/somewhere/else"]
        assert chunks_of(seen.collisions(wrote((9, 9), key="x", node=B))) == [(9, 9)]
        assert [c.path for c in seen.collisions(footprint(an_array("y", updated=NEW)))] == ["/y"]


# -- nodes and listings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("happened", ["updated", "reshaped", "appended", "deleted", "created", "moved"])
def test_metadata_that_was_read_collides_with_everything_that_happens_to_its_node(happened: str) -> None:
    seen = ReadSet()
    seen.node("a")
    (conflict,) = seen.collisions(footprint(an_array(**{happened: NEW})))
    assert (conflict.conflict_type, conflict.path) == (ConflictType.ReadConflict, "/a")
    assert conflict.snapshot == id_to_text(NEW)
    assert seen.collisions(footprint(an_array("b", **{happened: NEW}))) == []


def test_metadata_that_was_read_does_not_mind_chunks() -> None:
    seen = ReadSet()
    seen.node("a")
    assert seen.collisions(wrote((0,))) == []


def test_a_node_that_was_looked_for_where_it_moved_from_collides() -> None:
    seen = ReadSet()
    seen.node("old")
    moved = footprint(an_array("new", moved=NEW), keys={"old": NEW})
    assert [conflict.path for conflict in seen.collisions(moved)] == ["/old"]


def test_a_place_minds_only_what_appears_and_vanishes() -> None:
    seen = ReadSet()
    seen.place("a")
    assert seen.collisions(footprint(an_array(updated=NEW))) == []
    assert [conflict.path for conflict in seen.collisions(appeared("a"))] == ["/a"]


def test_a_file_and_a_node_of_one_name_are_told_apart() -> None:
    seen = ReadSet()
    seen.node("\0a")
    assert seen.collisions(appeared("a")) == []
    assert [conflict.path for conflict in seen.collisions(appeared("\0a", NodeKind.FILE))] == ["/a"]


@pytest.mark.parametrize(
    ("path", "key", "collides"),
    [
        ("g", "g/x", True),
        ("g", "g", True),
        ("g", "g/x/y", False),
        ("g", "gg", False),
        ("g", "\0g/x", True),
        ("g", "\0g", False),
        ("", "x", True),
        ("", "x/y", False),
        ("", "", True),
        ("a/b", "a", False),
    ],
)
def test_names_that_were_listed_collide_with_what_appears_right_below(path: str, key: str, collides: bool) -> None:
    seen = ReadSet()
    seen.listing(path, recursive=False)
    kind = NodeKind.FILE if key.startswith("\0") else NodeKind.GROUP
    assert bool(seen.collisions(appeared(key, kind))) == collides


@pytest.mark.parametrize(("key", "kind"), [("g/new/x", NodeKind.GROUP), ("\0g/new/x", NodeKind.FILE)])
def test_a_directory_that_is_only_implied_appears_in_a_listing_of_names(key: str, kind: NodeKind) -> None:
    seen = ReadSet()
    seen.listing("g", recursive=False)
    theirs = appeared(key, kind)
    assert len(seen.collisions(theirs, state_with("g"))) == 1
    assert seen.collisions(theirs, state_with("g", "g/new")) == []


def state_with(*paths: str) -> SnapshotState:
    nodes = {path: Node(path.encode().rjust(12, b"."), path, NodeKind.GROUP, {}) for path in paths}
    keys = {node.id: key for key, node in nodes.items()}
    state = empty_state("main", 1, OLD, None, 0, b"")
    return SnapshotState(state.branch, 1, OLD, None, 0, b"", nodes, keys)


def test_an_array_that_appears_above_what_was_listed_collides_and_a_group_does_not() -> None:
    for recursive in (False, True):
        seen = ReadSet()
        seen.listing("a/b/c", recursive=recursive)
        assert len(seen.collisions(appeared("a", NodeKind.ARRAY))) == 1
        assert seen.collisions(appeared("a/b")) == []


def test_a_recursive_listing_collides_with_nodes_and_chunks_below_but_not_with_metadata() -> None:
    seen = ReadSet()
    seen.listing("g", recursive=True)
    assert len(seen.collisions(appeared("g/x/y"))) == 1
    assert len(seen.collisions(appeared("g"))) == 1
    assert chunks_of(seen.collisions(wrote((4, 4), key="g/x/a"))) == [(4, 4)]
    assert seen.collisions(wrote((4, 4), key="gg")) == []
    assert seen.collisions(footprint(an_array("g/x", updated=NEW))) == []
    assert seen.collisions(appeared("gg/x")) == []


def test_a_tree_collides_with_everything_at_and_below_it() -> None:
    seen = ReadSet()
    seen.tree("g")
    for theirs in (appeared("g/x"), wrote((1,), key="g/a"), footprint(an_array("g/x", updated=NEW)), appeared("g")):
        assert len(seen.collisions(theirs)) == 1
    assert len(seen.collisions(footprint(an_array("g", updated=NEW)))) == 1
    assert seen.collisions(footprint(an_array("h", updated=NEW))) == []


def test_a_listing_of_a_prefix_means_the_text_and_not_a_directory() -> None:
    seen = ReadSet()
    seen.prefix("te")
    seen.prefix("temp")
    assert len(seen.collisions(wrote((1,), key="temperature"))) == 1
    assert len(seen.collisions(appeared("te/x"))) == 1
    assert len(seen.collisions(appeared("\0test.txt", NodeKind.FILE))) == 1
    assert seen.collisions(wrote((1,), key="pressure")) == []


@given(st.lists(st.text("ab/", max_size=4), max_size=8), st.text("ab/", max_size=6))
def test_a_text_starts_with_one_of_many_prefixes_or_with_none(prefixes: list[str], text: str) -> None:
    assert read_set._Prefixes(prefixes).match(text) == any(text.startswith(prefix) for prefix in prefixes)


def test_what_is_deleted_is_told_once() -> None:
    seen = ReadSet()
    seen.node("a")
    seen.chunk(A, (0,))
    assert len(seen.collisions(footprint(an_array(deleted=NEW)))) == 1


def test_metadata_and_chunks_of_one_array_are_told_apart() -> None:
    seen = ReadSet()
    seen.node("a")
    seen.chunk(A, (0,))
    told = seen.collisions(footprint(an_array(updated=OLD, chunks=[written([(0,)])])))
    expected = [(True, id_to_text(OLD)), (False, id_to_text(NEW))]
    assert [(each.conflicted_chunks is None, each.snapshot) for each in told] == expected


def test_a_read_set_tells_people_what_was_read() -> None:
    seen = ReadSet()
    assert seen.empty
    seen.node("a")
    seen.chunk(A, (1, 2))
    seen.array(B)
    seen.cells(A, Cells(Box((0, 0), (2, 2)), None))
    seen.listing("g", recursive=True)
    assert not seen.empty
    assert seen.summary({A: "a"}) == {
        "everything": False,
        "metadata": ["/a"],
        "places": ["/g"],
        "listings": [],
        "prefixes": ["g/"],
        "trees": [],
        "chunks": {"/a": {"blocks": 1, "side": 1, "boxes": [((0, 0), (2, 2))]}, id_to_text(B): "all"},
    }


# -- threads ----------------------------------------------------------------------------------------------------------


def test_nothing_is_lost_while_many_threads_read_and_one_looks() -> None:
    with bounds(_BUFFER=64):
        seen = ReadSet()
        start = threading.Barrier(9)

        def read(worker: int) -> None:
            start.wait()
            for number in range(2000):
                seen.chunk(A, (worker, number))
                seen.node(f"{worker}/{number % 100}")

        threads = [threading.Thread(target=read, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        start.wait()
        while any(thread.is_alive() for thread in threads):
            seen.summary()
        for thread in threads:
            thread.join()
        told = seen.summary()
    assert told["chunks"] == {id_to_text(A): {"blocks": 16_000, "side": 1, "boxes": []}}
    assert len(told["metadata"]) == 800


# -- the way home -----------------------------------------------------------------------------------------------------


def full() -> ReadSet:
    seen = ReadSet()
    rng = random.Random(3)
    seen.node("a")
    seen.place("\0file")
    seen.listing("g", recursive=False)
    seen.listing("h", recursive=True)
    seen.tree("t")
    seen.array(B)
    seen.cells(A, Cells(Box((0, 0), (9, 9)), None))
    for _ in range(500):
        seen.chunk(A, (rng.randrange(1000), rng.randrange(1000)))
    return seen


def test_a_read_set_comes_back_from_its_bytes() -> None:
    seen = full()
    again = ReadSet.decode("reads", seen.encode())
    assert again.summary() == seen.summary()
    assert again.encode() == seen.encode()


def test_a_read_set_takes_few_bytes_a_chunk() -> None:
    seen = ReadSet()
    for number in range(0, 100_000, 3):
        seen.chunk(A, (number // 1000, number % 1000))
    assert len(seen.encode()) < 100_000 // 8 + 200


def damaged() -> Iterator[tuple[str, object]]:
    empty: tuple[object, ...] = ((),) * 6
    box, far = ((0,), (4,)), ((0,), (1 << 62,))
    yield "no tuple", 7
    yield "too short", empty[:5]
    yield "a key that is no text", ((b"a",), *empty[1:])
    yield "a key that is too long", (("a" * 5000,), *empty[1:])
    for name, item in {
        "an id that is too short": (b"a", (True, 0, (), None)),
        "a level that no writer reaches": (A, (False, 64, (), None)),
        "a negative level": (A, (False, -1, (), None)),
        "a box that is none": (A, (False, 0, (((4,), (0,)),), None)),
        "too many boxes": (A, (False, 0, (box,) * 257, None)),
        "boxes beside all": (A, (True, 0, (box,), None)),
        "dimensions that differ": (A, (False, 0, (box, ((0, 0), (1, 1))), None)),
        "blocks and boxes that differ": (A, (False, 0, (((0, 0), (1, 1)),), (box, 4, 0, b""))),
        "more blocks than announced": (A, (False, 0, (), (box, 2, 1, b"\xf0"))),
        "no blocks": (A, (False, 0, (), (box, 0, 0, b""))),
        "more blocks than are kept": (A, (False, 0, (), (far, 1 << 40, 2, b"\0\1\0"))),
        "blocks beyond every chunk": (A, (False, 8, (), (far, 1 << 62, 0, b""))),
    }.items():
        yield name, (*empty[:5], (item,))
    yield "an array twice", (*empty[:5], ((A, (True, 0, (), None)),) * 2)
    yield "too many keys", (tuple(map(str, range(100_001))), *empty[1:])


@pytest.mark.parametrize(("value"), [pytest.param(value, id=name) for name, value in damaged()])
def test_bytes_that_no_session_wrote_are_refused(value: object) -> None:
    with pytest.raises(FormatError, match=r"^the reads of a fork"):
        ReadSet.decode("the reads of a fork", pack_body(value))


def test_bytes_that_were_changed_are_refused_or_can_be_used() -> None:
    rng = random.Random(11)
    data = full().encode()
    theirs = footprint(an_array(chunks=[written([(3, 3), (500, 500)])]), keys={"g/x": NEW})
    refused = 0
    for _ in range(1500):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        if rng.random() < 0.2:
            del changed[rng.randrange(len(changed)) :]
        try:
            seen = ReadSet.decode("reads", bytes(changed))
        except FormatError:
            refused += 1
            continue
        other = full()
        other.update(seen)
        other.collisions(theirs)
        assert ReadSet.decode("reads", seen.encode()).summary() == seen.summary()
    assert refused > 100
