"""Moves: metadata only, all of a transaction at once, and the same whoever replays them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import zarr
from zarr.core.buffer.cpu import Buffer

from arraystore import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictSolver,
    ConflictType,
    InvalidInputError,
    NodeNotFoundError,
    ReadOnlyError,
    RebaseFailedError,
    Repository,
    Session,
    SessionStateError,
    Storage,
    VersionSelection,
)
from arraystore.storage import CountingStorage
from tests.commit.rivals import impatient, latest, values
from tests.commit.support import DistantStorage, keys, without_maintenance
from tests.commit.trees import TREE, array_at, check, check_valid, repository_with_tree, tree_of
from tests.tiers import mostly_thorough

DETECT = ConflictDetector()


def _commit_moves(*moves: tuple[str, str]) -> tuple[Storage, Session]:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    for source, target in moves:
        session.move(source, target)
    seen = tree_of(session)
    session.commit("moved")
    check(storage, seen)
    return storage, session


def _theirs(storage: Storage, change: Callable[[Session], object]) -> str:
    session = impatient(storage).writable_session("main")
    change(session)
    return session.commit("theirs")


# -- alone --------------------------------------------------------------------------------------------------------


def test_a_group_moves_with_all_that_is_in_it() -> None:
    storage, _ = _commit_moves(("g", "h/inner"))
    expected = {"h": None, "h/z": 3, "top": 4}
    expected |= {"h/inner": None, "h/inner/x": 1, "h/inner/deep": None, "h/inner/deep/y": 2}
    assert tree_of(latest(storage)) == expected
    assert zarr.open_group(latest(storage).store, path="h/inner", mode="r").attrs["was"] == "g"


def test_a_move_writes_no_chunk_and_no_manifest() -> None:
    inner, _ = repository_with_tree()
    storage = CountingStorage(DistantStorage(inner))
    session = without_maintenance(impatient(storage)).writable_session("main")
    before = set(keys(inner))
    storage.reset()
    session.move("g", "elsewhere")
    session.commit("moved")
    requests = [operation for operation, _ in storage.log if operation != "sync"]
    assert requests == ["list", "put_if_absent"]  # the listing tells whether moves are allowed
    assert {key.split("/")[0] for key in set(keys(inner)) - before} == {"refs"}


def test_two_nodes_change_places() -> None:
    storage, _ = _commit_moves(("top", "swap"), ("g/x", "top"), ("swap", "g/x"))
    assert tree_of(latest(storage)) == TREE | {"top": 1, "g/x": 4}


def test_two_groups_change_places_with_all_that_is_in_them() -> None:
    storage, _ = _commit_moves(("g", "swap"), ("h", "g"), ("swap", "h"))
    expected = {"h": None, "h/x": 1, "h/deep": None, "h/deep/y": 2, "g": None, "g/z": 3, "top": 4}
    assert tree_of(latest(storage)) == expected


def test_a_chain_of_names_moves_up_by_one() -> None:
    storage, _ = _commit_moves(("top", "old"), ("g/x", "top"), ("h/z", "g/x"), ("g/deep/y", "h/z"))
    assert tree_of(latest(storage)) == {
        "old": 4,
        "top": 1,
        "g/x": 3,
        "h/z": 2,
        "g": None,
        "g/deep": None,
        "h": None,
    }


def test_a_group_and_its_child_change_places() -> None:
    storage, _ = _commit_moves(("g/deep", "deep"), ("g", "deep/g"))
    assert tree_of(latest(storage)) == {
        "deep": None,
        "deep/y": 2,
        "deep/g": None,
        "deep/g/x": 1,
        "h": None,
        "h/z": 3,
        "top": 4,
    }


def test_a_move_there_and_back_changes_nothing() -> None:
    _, repository = repository_with_tree()
    session = repository.writable_session("main")
    session.move("g", "elsewhere")
    session.move("elsewhere", "g")
    assert not session.has_uncommitted_changes
    assert tree_of(session) == TREE


def test_into_a_group_that_was_just_created_and_out_of_one_that_is_deleted_then() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="new")
    session.move("g/deep", "new/deep")
    session.move("g/x", "new/x")
    del zarr.open_group(session.store)["g"]
    expected = {"new": None, "new/deep": None, "new/deep/y": 2, "new/x": 1, "h": None, "h/z": 3, "top": 4}
    assert tree_of(session) == expected
    session.commit("moved")
    check(storage, expected)


def test_what_was_moved_can_be_written_deleted_and_its_old_place_taken_in_the_same_session() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    session.move("top", "h/top")
    zarr.open_array(session.store, path="h/top")[:] = 40
    array_at(session.store, "top", 50)
    session.move("g", "moved")
    del zarr.open_group(session.store)["moved/deep"]
    expected = {"h": None, "h/z": 3, "h/top": 40, "top": 50, "moved": None, "moved/x": 1}
    assert tree_of(session) == expected
    session.commit("moved")
    check(storage, expected)


def test_an_id_stays_with_its_node() -> None:
    _, repository = repository_with_tree()
    session = repository.writable_session("main")
    before = session.get_node_id("g/deep/y")
    session.move("g", "moved")
    assert session.get_node_id("moved/deep/y") == before
    session.commit("moved")
    assert session.get_node_id("moved/deep/y") == before


BAD = [
    ("missing", "new", NodeNotFoundError, "missing"),
    ("", "new", InvalidInputError, "root group cannot be moved"),
    ("g", "", InvalidInputError, "root group cannot be replaced"),
    ("g", "h", InvalidInputError, "exists already"),
    ("top", "g/x", InvalidInputError, "exists already"),
    ("g", "g/inside", InvalidInputError, "into itself"),
    ("g", "g", InvalidInputError, "already|itself"),
    ("g", "nowhere/g", InvalidInputError, "no group '/nowhere'"),
    ("g", "top/g", InvalidInputError, "'/top' is an array"),
    ("top", "../top", InvalidInputError, ""),
]


@pytest.mark.parametrize(("source", "target", "error", "text"), BAD)
def test_a_move_that_cannot_be_is_refused_and_changes_nothing(
    source: str, target: str, error: type[Exception], text: str
) -> None:
    _, repository = repository_with_tree()
    session = repository.writable_session("main")
    with pytest.raises(error) as caught:
        session.move(source, target)
    assert any(part in str(caught.value) for part in text.split("|"))
    assert not session.has_uncommitted_changes
    assert tree_of(session) == TREE


def test_sessions_that_only_read_and_forks_refuse_to_move() -> None:
    _, repository = repository_with_tree()
    with pytest.raises(ReadOnlyError):
        repository.readonly_session("main").move("g", "moved")
    session = repository.writable_session("main")
    fork = session.fork()
    with pytest.raises(SessionStateError, match="fork"):
        fork.move("g", "moved")
    assert tree_of(fork) == TREE


@pytest.mark.parametrize("seed", mostly_thorough(range(8), every=4))
def test_random_moves_over_many_commits_replay_as_they_were_made(seed: int) -> None:
    chance = random.Random(seed)
    storage, repository = repository_with_tree()
    for turn in range(12):
        session = repository.writable_session("main")
        before = tree_of(session)
        for _ in range(chance.randint(1, 5)):
            tree = tree_of(session)
            source = chance.choice(sorted(tree))
            group = chance.choice(["", *sorted(path for path, value in tree.items() if value is None)])
            target = "/".join(part for part in (group, chance.choice("abcdefgh")) if part)
            try:
                session.move(source, target)
            except InvalidInputError:
                continue
        seen = tree_of(session)
        assert sorted(map(str, seen.values())) == sorted(map(str, before.values()))
        if session.has_uncommitted_changes:
            session.commit(str(turn))
        assert tree_of(latest(storage)) == seen
    check(storage, tree_of(latest(storage)))


def test_a_checkpoint_after_moves_and_the_log_from_its_start_tell_the_same() -> None:
    storage, repository = repository_with_tree()
    place = "g"
    for turn in range(70):
        session = repository.writable_session("main")
        session.move(place, f"g{turn}")
        place = f"g{turn}"
        zarr.open_array(session.store, path=f"{place}/x")[:] = turn
        session.commit(str(turn))
    repository.wait_for_maintenance()
    expected = {"g69": None, "g69/x": 69, "g69/deep": None, "g69/deep/y": 2, "h": None, "h/z": 3, "top": 4}
    assert latest(storage).base_tip.state.checkpoint is not None
    assert tree_of(latest(storage)) == expected
    asyncio.run(storage.delete(["hints/main"]))
    assert tree_of(latest(storage)) == expected


# -- against others -----------------------------------------------------------------------------------------------


class _Ours(ConflictSolver):
    def solve(self, conflict: Any, versions: Any) -> VersionSelection:
        return VersionSelection.UseOurs


class _Theirs(ConflictSolver):
    def solve(self, conflict: Any, versions: Any) -> VersionSelection:
        return VersionSelection.UseTheirs


def _write(path: str, value: int) -> Callable[[Session], object]:
    return lambda session: zarr.open_array(session.store, path=path).__setitem__(slice(None), value)


def _delete(path: str) -> Callable[[Session], object]:
    return lambda session: zarr.open_group(session.store).__delitem__(path)


def _create(path: str, value: int | None = 9) -> Callable[[Session], object]:
    if value is None:
        return lambda session: zarr.create_group(session.store, path=path)
    return lambda session: array_at(session.store, path, value)


def _move(source: str, target: str) -> Callable[[Session], object]:
    return lambda session: session.move(source, target)


MOVED_G = {"m": None, "m/x": 1, "m/deep": None, "m/deep/y": 2, "h": None, "h/z": 3, "top": 4}

TOGETHER: list[Any] = [
    pytest.param(_write("g/x", 8), MOVED_G | {"m/x": 8}, id="chunks-inside"),
    pytest.param(_create("g/new"), MOVED_G | {"m/new": 9}, id="creation-inside"),
    pytest.param(_create("other"), MOVED_G | {"other": 9}, id="creation-elsewhere"),
    pytest.param(_delete("g/x"), {k: v for k, v in MOVED_G.items() if k != "m/x"}, id="deletion-inside"),
    pytest.param(_move("h", "k"), {k.replace("h", "k"): v for k, v in MOVED_G.items()}, id="move-elsewhere"),
]


@pytest.mark.parametrize(("other", "expected"), TOGETHER)
def test_our_move_goes_together_with_what_theirs_did_inside_and_elsewhere(
    other: Callable[[Session], object], expected: dict[str, int | None]
) -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    session.move("g", "m")
    _theirs(storage, other)
    session.commit("ours", rebase_with=DETECT)
    check(storage, expected)


@pytest.mark.parametrize(("other", "expected"), [TOGETHER[0], TOGETHER[2], TOGETHER[4]])
def test_what_ours_did_inside_and_elsewhere_goes_together_with_their_move(
    other: Callable[[Session], object], expected: dict[str, int | None]
) -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    other(session)
    _theirs(storage, _move("g", "m"))
    session.commit("ours", rebase_with=DETECT)
    check(storage, expected)


@pytest.mark.parametrize(
    ("ours", "conflict"),
    [
        (_create("g/new"), (ConflictType.NewNodeInInvalidGroup, "/g/new")),
        (_delete("g/x"), (ConflictType.DeleteOfUpdatedArray, "/g/x")),
    ],
)
def test_what_ours_creates_or_deletes_in_a_group_that_theirs_moved_is_for_people_to_decide(
    ours: Callable[[Session], object], conflict: tuple[ConflictType, str]
) -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    ours(session)
    _theirs(storage, _move("g", "m"))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=DETECT)
    assert [(c.conflict_type, c.path) for c in caught.value.conflicts] == [conflict]
    check(storage, MOVED_G)


def _swap(session: Session) -> None:
    session.move("g", "t")
    session.move("h", "g")
    session.move("t", "h")


def _move_and_replace(session: Session) -> None:
    session.move("g", "m")
    zarr.create_group(session.store, path="g")


@pytest.mark.parametrize("theirs", [_swap, _move_and_replace])
@pytest.mark.parametrize("path", ["g/new", "g/deep/new"])
def test_what_ours_creates_does_not_get_into_a_group_that_theirs_put_in_place_of_the_one_they_moved(
    theirs: Callable[[Session], object], path: str
) -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    _create(path)(session)
    _theirs(storage, theirs)
    seen = tree_of(latest(storage))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=DETECT)
    conflicts = {(c.conflict_type, c.path) for c in caught.value.conflicts}
    assert conflicts == {(ConflictType.NewNodeInInvalidGroup, "/" + path)}
    check(storage, seen)


def _move_and_fill(session: Session) -> None:
    _move_and_replace(session)
    for name, value in ("x", 5), ("new", 6):
        _create(f"g/{name}", value)(session)


def _move_and_put_an_array(session: Session) -> None:
    session.move("g", "m")
    _create("g", 5)(session)


def _moved_top(tree: dict[str, int | None], target: str) -> dict[str, int | None]:
    return {target if path == "top" else path: value for path, value in tree.items()}


def _swapped() -> dict[str, int | None]:
    return {{"g": "h", "h": "g"}.get(path[0], path[0]) + path[1:]: value for path, value in TREE.items()}


FILLED = {"g": None, "g/x": 5, "g/new": 6}

REPLACED: list[Any] = [
    pytest.param(_move_and_fill, _write("g/x", 8), MOVED_G | FILLED | {"m/x": 8}, id="chunks"),
    pytest.param(_move_and_fill, _write("top", 8), MOVED_G | FILLED | {"top": 8}, id="elsewhere"),
    pytest.param(_move_and_fill, _create("g/new"), MOVED_G | FILLED | {"m/new": 9}, id="creation"),
    pytest.param(_move_and_fill, _move("top", "g/new"), _moved_top(MOVED_G | FILLED, "m/new"), id="move"),
    pytest.param(_move_and_put_an_array, _create("g/new"), MOVED_G | {"g": 5, "m/new": 9}, id="an array above"),
    pytest.param(_swap, _create("g/z"), _swapped() | {"h/z": 9}, id="swapped"),
    pytest.param(_swap, _create("h/deep"), _swapped() | {"g/deep": 9}, id="swapped the other way"),
]


@pytest.mark.parametrize(("ours", "theirs", "expected"), REPLACED)
@pytest.mark.parametrize("first", ["commit", "rebase"])
def test_what_theirs_put_into_a_group_that_ours_moves_leaves_its_place_to_what_ours_puts_there(
    ours: Callable[[Session], object],
    theirs: Callable[[Session], object],
    expected: dict[str, int | None],
    first: str,
) -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    ours(session)
    _theirs(storage, theirs)
    if first == "rebase":
        session.rebase(DETECT)
        assert tree_of(session) == expected
    session.commit("ours", rebase_with=DETECT)
    check(storage, expected)


def test_what_theirs_put_into_a_group_stays_in_the_way_of_what_ours_moves_beside_it() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    session.move("g/deep", "m")
    _create("g/new")(session)
    _theirs(storage, _create("g/new", 6))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=DETECT)
    conflicts = {(c.conflict_type, c.path) for c in caught.value.conflicts}
    assert conflicts == {(ConflictType.NewNodeConflictsWithExistingNode, "/g/new")}


COLLIDING: list[Any] = [
    pytest.param(_move("g", "k"), "/g", id="moved-elsewhere"),
    pytest.param(_delete("g"), "/g", id="deleted"),
    pytest.param(_create("m"), "/g", id="target-taken-by-an-array"),
    pytest.param(_create("m", None), "/g", id="target-taken-by-a-group"),
    pytest.param(_move("top", "m"), "/g", id="target-taken-by-a-move"),
]


@pytest.mark.parametrize(("theirs", "path"), COLLIDING)
@pytest.mark.parametrize("solver", [DETECT, BasicConflictSolver()])
def test_a_move_that_cannot_be_rebased_says_so_and_may_be_dropped(
    theirs: Callable[[Session], object], path: str, solver: ConflictSolver
) -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    session.move("g", "m")
    _write("h/z", 30)(session)
    snapshot = _theirs(storage, theirs)
    seen = tree_of(latest(storage))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=solver)
    assert {(c.conflict_type, c.path, c.snapshot) for c in caught.value.conflicts} == {
        (ConflictType.MoveOperationCannotBeRebased, path, snapshot)
    }
    session.commit("ours", rebase_with=_Theirs())
    check(storage, seen | {"h/z": 30})


def _in_turn(*steps: Callable[[Session], object]) -> Callable[[Session], object]:
    def change(session: Session) -> None:
        for step in steps:
            step(session)

    return change


GONE_WITHIN: list[Any] = [
    pytest.param(_create("m/deep/new"), ConflictType.NewNodeInInvalidGroup, "/m/deep/new", id="created"),
    pytest.param(_move("top", "m/deep/top"), ConflictType.MoveOperationCannotBeRebased, "/top", id="moved"),
]


@pytest.mark.parametrize(("ours", "kind", "path"), GONE_WITHIN)
@pytest.mark.parametrize("theirs", [_move("g/deep", "h/deep"), _delete("g/deep")], ids=["moved away", "deleted"])
def test_nothing_comes_into_a_group_that_theirs_took_out_of_the_one_that_ours_moves(
    ours: Callable[[Session], object], kind: ConflictType, path: str, theirs: Callable[[Session], object]
) -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    _in_turn(_move("g", "m"), ours)(session)
    _theirs(storage, theirs)
    seen = tree_of(latest(storage))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=DETECT)
    assert {(c.conflict_type, c.path) for c in caught.value.conflicts} == {(kind, path)}
    check(storage, seen)


def test_what_theirs_put_into_a_group_that_ours_deletes_and_whose_group_it_moves_is_a_conflict() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    _in_turn(_delete("g/deep"), _move("g", "m"))(session)
    _theirs(storage, _create("g/deep/new"))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=DETECT)
    assert {c.conflict_type for c in caught.value.conflicts} == {ConflictType.DeleteOfUpdatedGroup}


def test_what_theirs_put_into_a_group_that_they_moved_along_and_ours_deletes_is_a_conflict() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    _delete("g/deep")(session)
    _theirs(storage, _in_turn(_move("g", "m"), _create("m/deep/new")))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=DETECT)
    assert ConflictType.DeleteOfUpdatedGroup in {c.conflict_type for c in caught.value.conflicts}


class _Answers(ConflictSolver):
    """Answers by conflict and what happened."""

    def __init__(self, answers: dict[tuple[ConflictType, str], VersionSelection], other: VersionSelection) -> None:
        self.answers, self.other = answers, other

    def solve(self, conflict: Any, versions: Any) -> VersionSelection:
        for (kind, word), answer in self.answers.items():
            if conflict.conflict_type == kind and word in conflict.detail:
                return answer
        return self.other


def test_a_group_stays_when_a_solver_drops_the_move_of_what_is_in_it() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    _in_turn(_move("g/deep", "m"), _delete("g"))(session)
    _theirs(storage, _create("m"))
    session.commit("ours", rebase_with=_Theirs())
    check(storage, {"g": None, "g/deep": None, "g/deep/y": 2, "h": None, "h/z": 3, "top": 4, "m": 9})


def test_what_was_created_deep_in_a_group_whose_move_a_solver_drops_is_a_conflict() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    _in_turn(_move("g", "m"), _create("m/deep/new"))(session)
    _theirs(storage, _move("g", "k"))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=_Theirs())
    conflicts = {(c.conflict_type, c.path) for c in caught.value.conflicts}
    assert conflicts == {(ConflictType.NewNodeInInvalidGroup, "/m/deep/new")}


def test_a_group_with_what_stays_is_kept_when_answers_about_a_deletion_differ() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    _in_turn(_delete("h/z"), _delete("g"))(session)
    _theirs(storage, _in_turn(_create("g/deep/new"), _move("h", "g/deep/h")))
    kept = {(ConflictType.DeleteOfUpdatedArray, "moved"): VersionSelection.UseTheirs}
    session.commit("ours", rebase_with=_Answers(kept, VersionSelection.UseOurs))
    check(storage, {"g": None, "g/deep": None, "g/deep/h": None, "g/deep/h/z": 3, "top": 4})


def test_answers_that_leave_two_nodes_at_one_place_are_a_conflict() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    _in_turn(_delete("h"), _create("h"))(session)
    _theirs(storage, _create("h/new"))
    seen = tree_of(latest(storage))
    kept = {(ConflictType.DeleteOfUpdatedGroup, ""): VersionSelection.UseTheirs}
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=_Answers(kept, VersionSelection.UseOurs))
    assert {c.conflict_type for c in caught.value.conflicts} == {ConflictType.NewNodeConflictsWithExistingNode}
    check(storage, seen)


def test_what_is_created_where_a_solver_drops_a_move_is_a_conflict() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    _move_and_fill(session)
    _theirs(storage, _create("m"))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=_Theirs())
    assert {c.conflict_type for c in caught.value.conflicts} == {ConflictType.NewNodeConflictsWithExistingNode}


def test_the_group_into_which_ours_moves_is_gone() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    session.move("top", "h/top")
    _theirs(storage, _delete("h"))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=DETECT)
    assert [c.conflict_type for c in caught.value.conflicts] == [ConflictType.MoveOperationCannotBeRebased]
    assert "deleted or moved away" in caught.value.conflicts[0].detail


MIXES = {
    "move g": _move("g", "m"),
    "move g into h": _move("g", "h/g"),
    "move h into g": _move("h", "g/h"),
    "move x": _move("g/x", "top2"),
    "move top to x2": _move("top", "g/deep/top"),
    "delete g": _delete("g"),
    "delete h": _delete("h"),
    "create in deep": _create("g/deep/new"),
    "create m": _create("m", None),
    "write y": _write("g/deep/y", 7),
}


def _move_and_delete_above(session: Session) -> None:
    session.move("g/deep", "m")
    _delete("g")(session)


SEVERAL: dict[str, Any] = {
    "move deep out of g and delete it": _move_and_delete_above,
    "move g and fill its place": _move_and_fill,
    "move g and put an array in its place": _move_and_put_an_array,
    "swap g and h": _swap,
}


@pytest.mark.parametrize(("ours", "theirs"), mostly_thorough(itertools.product(MIXES, MIXES), every=7))
def test_whatever_moves_meet_the_hierarchy_stays_valid_and_what_theirs_changed_can_be_kept(
    ours: str, theirs: str
) -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    MIXES[ours](session)
    _theirs(storage, MIXES[theirs])
    seen = tree_of(latest(storage))
    try:
        session.commit("ours", rebase_with=DETECT)
    except RebaseFailedError:
        assert tree_of(latest(storage)) == seen
        session.commit("ours", rebase_with=_Theirs())
        found = tree_of(latest(storage))
        assert found.items() <= seen.items()
        assert found.items() >= seen.items() - TREE.items()
    check_valid(storage)


@pytest.mark.parametrize(("ours", "theirs"), list(itertools.product(SEVERAL, MIXES | SEVERAL)))
@pytest.mark.parametrize("solver", [_Ours(), _Theirs()], ids=["ours", "theirs"])
def test_whatever_ours_puts_in_place_of_what_it_moves_is_as_if_it_came_later_or_is_refused(
    ours: str, theirs: str, solver: ConflictSolver
) -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    SEVERAL[ours](session)
    _theirs(storage, (MIXES | SEVERAL)[theirs])
    seen = tree_of(latest(storage))
    later = repository.writable_session("main")
    try:
        session.commit("ours", rebase_with=DETECT)
    except RebaseFailedError:
        assert tree_of(latest(storage)) == seen
        with contextlib.suppress(RebaseFailedError):
            session.commit("ours", rebase_with=solver)
    else:
        SEVERAL[ours](later)
        assert tree_of(latest(storage)) == tree_of(later)
    check_valid(storage)


def test_serializable_sessions_that_listed_a_group_collide_with_a_move_into_it() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main", isolation="serializable")
    assert set(zarr.open_group(session.store, path="h", mode="r")) == {"z"}
    _write("top", 5)(session)
    _theirs(storage, _move("g/x", "h/x"))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=DETECT)
    assert {c.conflict_type for c in caught.value.conflicts} == {ConflictType.ReadConflict}


def test_values_stay_with_a_moved_array_through_later_commits_and_old_snapshots_keep_the_old_place() -> None:
    storage, repository = repository_with_tree()
    before = repository.lookup_branch("main")
    session = repository.writable_session("main")
    session.move("g/x", "h/x")
    session.commit("moved")
    _theirs(storage, _write("h/x", 11))
    assert values(latest(storage), "h/x").tolist() == [11] * 4
    assert tree_of(Repository.open(storage).readonly_session(snapshot_id=before)) == TREE


def test_what_theirs_creates_where_it_has_just_moved_something_from_stays_in_its_group() -> None:
    storage, repository = repository_with_tree()
    with repository.transaction("main", message="an empty group") as store:
        zarr.create_group(store, path="e")
    session = repository.writable_session("main")
    _delete("e")(session)
    _theirs(storage, _create("e/new"))

    def renew(other: Session) -> None:
        other.move("e/new", "old")
        _create("e/new")(other)

    _theirs(storage, renew)
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=DETECT)
    assert {c.conflict_type for c in caught.value.conflicts} == {ConflictType.DeleteOfUpdatedGroup}
    check_valid(storage)


def test_a_file_beside_the_chunks_of_an_array_stays_where_theirs_moved_the_array_from() -> None:
    storage, repository = repository_with_tree()
    with repository.transaction("main", message="a file") as store:
        store.set_sync("top/notes", Buffer.from_bytes(b"notes"))
    session = repository.writable_session("main")
    session.store.delete_sync("top/notes")
    _theirs(storage, _move("top", "g/top"))
    session.commit("ours", rebase_with=DETECT)
    assert latest(storage).hierarchy.node("\0top/notes") is None
    check_valid(storage)


def _into_new(other: Session) -> None:
    zarr.create_group(other.store, path="g/new")
    _create("g/new/inner", 5)(other)


CARRIED: list[Any] = [
    pytest.param([_create("k/new")], _create("g/new", 5), {"k/new": 9}, id="array-and-array"),
    pytest.param([_create("k/new")], _into_new, {"k/new": 9}, id="array-and-group"),
    pytest.param(
        [_create("k/new", None), _create("k/new/x")], _create("g/new", 5), {"k/new": None, "k/new/x": 9}, id="above"
    ),
    pytest.param([_create("k/new")], _move("top", "g/new"), {"k/new": 9}, id="moved-there"),
]
"""What ours creates in a group that it moves to k, what theirs puts into the group, and what ours has there."""


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize(("ours", "theirs", "expected"), CARRIED)
def test_ours_takes_the_place_of_what_theirs_put_into_a_group_that_ours_moves_there_if_asked_for(
    ours: list[Callable[[Session], object]],
    theirs: Callable[[Session], object],
    expected: dict[str, int | None],
    rounds: int,
) -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    session.move("g", "k")
    for change in ours:
        change(session)
    _write("h/z", 30)(session)
    _theirs(storage, theirs)
    if rounds == 2:
        session.rebase(_Ours())
        _theirs(storage, _write("h/z", 31))
    session.commit("ours", rebase_with=_Ours())
    seen = tree_of(latest(storage))
    assert {path: held for path, held in seen.items() if path.startswith("k/new")} == expected
    assert seen["h/z"] == 30
    assert not any(path == "g" or path.startswith("g/") for path in seen)
    check_valid(storage)


def test_what_theirs_carries_out_of_a_group_that_ours_moves_is_not_deleted_any_more() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    session.move("g", "k")
    _create("k/new")(session)
    _theirs(storage, _create("g/new", 5))
    session.rebase(_Ours())
    _theirs(storage, _move("g/new", "h/new"))
    session.commit("ours", rebase_with=_Ours())
    seen = tree_of(latest(storage))
    assert (seen["k/new"], seen["h/new"]) == (9, 5)
    check_valid(storage)


def test_a_file_of_ours_stays_in_the_place_of_theirs_over_another_conflict() -> None:
    storage, repository = repository_with_tree()
    session = repository.writable_session("main")

    def note(text: bytes) -> Callable[[Session], object]:
        return lambda other: other.store.set_sync("notes", Buffer.from_bytes(text))

    note(b"ours")(session)
    _write("h/z", 30)(session)
    _theirs(storage, note(b"theirs"))
    session.rebase(_Ours())
    _theirs(storage, _write("h/z", 31))
    session.commit("ours", rebase_with=_Ours())
    read = latest(storage).store.get_sync("notes")
    assert read is not None
    assert read.to_bytes() == b"ours"


def test_a_node_is_not_left_without_the_group_that_a_solver_has_dropped_on_both_sides() -> None:
    class OursAbove(ConflictSolver):
        def solve(self, conflict: Any, versions: Any) -> VersionSelection:
            return VersionSelection.UseOurs if conflict.path == "/k" else VersionSelection.UseTheirs

    storage, repository = repository_with_tree()
    session = repository.writable_session("main")
    _create("k/n/m")(session)
    _theirs(storage, _create("k/n", None))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=OursAbove())
    assert [(c.conflict_type, c.path) for c in caught.value.conflicts] == [
        (ConflictType.NewNodeInInvalidGroup, "/k/n/m")
    ]
    check_valid(storage)
