"""What two sessions put into one place by way of moves and deletions of groups, and what solvers leave of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import zarr

from arraystore import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictSolver,
    RebaseFailedError,
    Repository,
    Solution,
    VersionSelection,
    in_memory_storage,
)
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from tests.commit.model import keys_of
from tests.commit.operations import create_array, open_array, put, remove

ARRAY: dict[str, Any] = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [2],
    "data_type": "int8",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
    "chunk_key_encoding": {"name": "default"},
    "fill_value": 0,
    "codecs": [{"name": "bytes"}],
}
Act = Callable[[Session], None]


class Choose(ConflictSolver):
    """Gives one answer, whatever it is about."""

    def __init__(self, answer: Solution | VersionSelection) -> None:
        self.answer = answer

    def solve(self, conflict: object, versions: object) -> Solution | VersionSelection:
        return self.answer


def repository() -> Repository:
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    for path in ("", "g"):
        zarr.create_group(session.store, path=path)
    for path in ("g/a", "x"):
        create_array(session, path, 4, "time")[:] = 7
    put(session, "notes.txt", b"base")
    session.commit("base")
    return repo


def both(ours: Act, theirs: Act, solver: ConflictSolver | None = None) -> Repository:
    """Let both act on one base, and commit theirs, then ours."""
    repo = repository()
    mine, other = repo.writable_session("main"), repo.writable_session("main")
    ours(mine)
    theirs(other)
    other.commit("theirs")
    mine.commit("ours", rebase_with=solver or ConflictDetector())
    return repo


def nodes_of(repo: Repository) -> list[str]:
    return [key for key in keys_of(repo.readonly_session("main")) if key.endswith("zarr.json")]


def created(path: str) -> Act:
    return lambda session: create_array(session, path, 4, "time").__setitem__(slice(None), 1)


def bare(path: str) -> Act:
    """Create an array without groups above it."""

    def act(session: Session) -> None:
        document = session.store.get_sync("x/zarr.json")
        assert document is not None
        put(session, f"{path}/zarr.json", document.to_bytes())

    return act


def after_moving(*acts: Act) -> Act:
    def act(session: Session) -> None:
        session.move("g", "h")
        for each in acts:
            each(session)

    return act


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (created("h/n"), created("g/n")),
        (created("h/n"), bare("g/n/deep")),
        (bare("h/n/deep"), created("g/n")),
        (lambda session: session.move("x", "h/n"), created("g/n")),
        (lambda session: put(session, "h/f.txt", b"ours"), lambda session: put(session, "g/f.txt", b"theirs")),
        (lambda session: put(session, "h/n/c/0", b"ours"), created("g/n")),
        (created("h/q"), lambda session: session.move("g/a", "g/q")),
    ],
)
def test_what_a_moved_group_takes_along_does_not_come_where_ours_has_put_something(ours: Act, theirs: Act) -> None:
    with pytest.raises(RebaseFailedError):
        both(after_moving(ours), theirs)


def test_what_a_moved_group_takes_along_comes_beside_what_ours_has_put_there() -> None:
    repo = both(after_moving(created("h/n")), created("g/m"))
    assert nodes_of(repo) == [
        "h/a/zarr.json",
        "h/m/zarr.json",
        "h/n/zarr.json",
        "h/zarr.json",
        "x/zarr.json",
        "zarr.json",
    ]


@pytest.mark.parametrize("file", ["n/c/0", "n/notes.txt"])
def test_nothing_is_moved_onto_files(file: str) -> None:
    session = repository().writable_session("main")
    put(session, file, b"here already")
    for path in ("g", "x"):
        with pytest.raises(InvalidInputError, match="the target exists already"):
            session.move(path, "n")


@pytest.mark.parametrize("again", [lambda session: remove(session, "g"), lambda session: session.move("g", "h")])
def test_deleting_a_group_leaves_what_theirs_put_into_another_group_in_its_place(again: Act) -> None:
    def theirs(session: Session) -> None:
        again(session)
        zarr.create_group(session.store, path="g")
        created("g/new")(session)

    repo = both(lambda session: remove(session, "g"), theirs, BasicConflictSolver())
    assert nodes_of(repo) == ["g/new/zarr.json", "g/zarr.json", "x/zarr.json", "zarr.json"]


def _write(session: Session) -> None:
    open_array(session, "x")[:2] = 9


def _attribute(session: Session) -> None:
    open_array(session, "x").attrs["unit"] = "m"


@pytest.mark.parametrize("change", [_write, _attribute])
def test_an_array_that_ours_changed_is_not_deleted_because_theirs_moved_it_into_what_ours_deletes(change: Act) -> None:
    def ours(session: Session) -> None:
        change(session)
        remove(session, "g")

    with pytest.raises(RebaseFailedError, match="ours changed"):
        both(ours, lambda session: session.move("x", "g/x"), BasicConflictSolver())


def test_an_array_that_ours_changed_does_not_make_room_for_one_that_ours_creates() -> None:
    def ours(session: Session) -> None:
        _write(session)
        created("n")(session)

    with pytest.raises(RebaseFailedError, match="ours changed"):
        both(ours, lambda session: session.move("x", "n"), Choose(VersionSelection.UseOurs))


def test_nothing_is_created_in_a_group_whose_move_the_solver_gives_up() -> None:
    with pytest.raises(RebaseFailedError):
        both(after_moving(created("h/n")), lambda session: session.move("g", "k"), Choose(VersionSelection.UseTheirs))


@pytest.mark.parametrize(
    ("solution", "left"),
    [
        (VersionSelection.UseTheirs, b"theirs"),
        (VersionSelection.UseOurs, b"ours"),
        (Solution(VersionSelection.UseTheirs, {(): b"both"}), b"both"),
    ],
)
def test_a_file_that_both_wrote_is_what_the_solver_says(solution: VersionSelection | Solution, left: bytes) -> None:
    repo = both(
        lambda session: put(session, "notes.txt", b"ours"),
        lambda session: put(session, "notes.txt", b"theirs"),
        Choose(solution),
    )
    found = repo.readonly_session("main").store.get_sync("notes.txt")
    assert found is not None
    assert found.to_bytes() == left


@pytest.mark.parametrize("document", [{}, {"zarr_format": 3}, {"zarr_format": 3, "node_type": "array"}, ARRAY])
def test_merged_metadata_that_does_not_make_the_group_is_refused(document: dict[str, Any]) -> None:
    def attribute(value: int) -> Act:
        return lambda session: zarr.open_group(session.store, path="g").attrs.__setitem__("a", value)

    solution = Solution(metadata={"zarr.json": document})
    with pytest.raises(RebaseFailedError, match="does not make the group"):
        both(attribute(1), attribute(2), Choose(solution))
