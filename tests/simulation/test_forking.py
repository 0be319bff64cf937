"""What forks that are merged are noted to have done."""

from __future__ import annotations

from tests.simulation.actors.forking import _left_of
from tests.simulation.observations import Create, Delete, Move, Operation, WriteChunk


def test_nothing_is_left_of_what_a_fork_did_to_a_node_that_another_one_has_deleted() -> None:
    did: list[Operation] = [WriteChunk("a/b", (0,), b"x"), Delete("a/b"), WriteChunk("c", (0,), b"y"), Move("a/d", "e")]
    assert _left_of(did, []) == did
    assert _left_of(did, ["a/b"]) == did[2:]
    assert _left_of(did, ["a"]) == [did[2]]


def test_what_a_fork_makes_anew_at_such_a_place_is_left() -> None:
    made: list[Operation] = [Delete("a"), Create("a", {}), WriteChunk("a", (0,), b"x")]
    assert _left_of(made, ["a"]) == made[1:]
