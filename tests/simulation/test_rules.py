"""Rules of the checker on logs made by hand: what a branch came back to, who deleted it, and what has expired."""

from __future__ import annotations

import asyncio

import arraystore as ars
from arraystore._format.ids import id_to_text
from arraystore.storage import Storage
from tests.simulation.checker import check
from tests.simulation.checker.applying import Touched
from tests.simulation.checker.branches import Branch, Commit
from tests.simulation.checker.decoder import Reader
from tests.simulation.checker.lives import Era, Life
from tests.simulation.checker.logs import Logs
from tests.simulation.checker.realtime import late_sights
from tests.simulation.checker.states import Snapshot
from tests.simulation.checker.violations import Violation
from tests.simulation.observations import Committed, Observations, RefChange, RefCreation, Solver, TipLook, Upkeep

BEGAN, FIRST, SECOND, THIRD = (bytes(11) + bytes([number]) for number in range(1, 5))


def _snapshot(identifier: bytes, parent: bytes | None, number: int) -> Snapshot:
    return Snapshot(identifier, parent, {}, {}, "main", number)


def _reset_within_a_record() -> Logs:
    """Make a log whose record 1 commits two snapshots, record 2 a third, and whose record 3 resets it to the first."""
    born = _snapshot(BEGAN, None, 0)
    first, second = _snapshot(FIRST, BEGAN, 1), _snapshot(SECOND, FIRST, 1)
    third, again = _snapshot(THIRD, SECOND, 2), _snapshot(FIRST, BEGAN, 3)
    commits = [
        Commit("main", 1, 0, 0, born, first, Touched()),
        Commit("main", 1, 1, 0, first, second, Touched()),
        Commit("main", 2, 0, 0, second, third, Touched()),
    ]
    eras = [Era(0, 0, born, None), Era(3, 3, again, ("main", 1, b"c" * 12))]
    lives = [Life(), Life(), Life(), Life(start=3)]
    branch = Branch(
        "main", "refs/x/branch/main/", born, None, commits, states=[born, second, third, again], eras=eras, lives=lives
    )
    return Logs(Reader({}), {"main": branch})


def _acknowledged(notes: Observations, label: str, base: bytes, snapshot: bytes, at: float) -> None:
    noted = notes.transaction(label, process="p", branch="main", base=id_to_text(base), began=at - 0.2, opened=at - 0.1)
    noted.attempt(Solver(), at - 0.1).end(at, Committed(id_to_text(snapshot)))


def _looked(notes: Observations, snapshot: bytes, at: float) -> list[Violation]:
    notes.see(TipLook("r", "main", id_to_text(snapshot), at, at + 0.1))
    return list(late_sights(_reset_within_a_record(), notes))


def test_a_snapshot_within_a_record_was_there_when_it_was_committed_and_not_only_once_a_reset_brought_it_back() -> None:
    notes = Observations()
    _acknowledged(notes, "a", BEGAN, FIRST, 1.0)
    assert _looked(notes, SECOND, 2.0) == []
    assert _looked(notes, THIRD, 3.0) == []


def test_what_was_seen_before_an_acknowledgement_and_never_came_back_is_still_found() -> None:
    notes = Observations()
    _acknowledged(notes, "a", SECOND, THIRD, 1.0)
    (found,) = _looked(notes, SECOND, 2.0)
    assert "up to record 1: it was at record 2 by then" in found.what


def test_a_look_after_a_reset_may_find_what_the_branch_came_back_to() -> None:
    notes = Observations()
    _acknowledged(notes, "a", SECOND, THIRD, 1.0)
    assert _looked(notes, FIRST, 2.0) == []


# -- deletions ------------------------------------------------------------------------------------------------------


def _objects(storage: Storage) -> dict[str, bytes]:
    async def read() -> dict[str, bytes]:
        keys = [item.key async for page in storage.list("") for item in page]
        return {key: bytes(await storage.get(key)) for key in keys}

    return asyncio.run(read())


def _with_deleted_branch() -> tuple[Storage, str, Observations]:
    """Make a repository with a branch that is deleted; returns the snapshot, and notes of all but the deletion."""
    storage, notes = ars.in_memory_storage(), Observations()
    repository = ars.Repository.create(storage)
    snapshot = repository.lookup_branch("main")
    repository.create_branch("side", snapshot)
    made = RefCreation("p", "branch", "side", snapshot, 0.0)
    made.end(1.0, Committed(snapshot))
    notes.see(made)
    repository.delete_branch("side", from_snapshot_id=snapshot)
    return storage, snapshot, notes


def _deleted(notes: Observations, expected: str | None) -> Observations:
    change = RefChange("p", "branch", "side", None, 2.0, expected=expected)
    change.end(3.0, Committed(""))
    notes.see(change)
    return notes


def test_a_deletion_that_was_meant_for_the_snapshot_that_it_ended_is_right() -> None:
    storage, snapshot, notes = _with_deleted_branch()
    assert check(_objects(storage), _deleted(notes, snapshot)) == []


def test_a_deletion_of_a_branch_that_stood_elsewhere_than_it_should_is_found() -> None:
    storage, snapshot, notes = _with_deleted_branch()
    (found,) = check(_objects(storage), _deleted(notes, "0" * 19 + "4"))
    assert (found.rule, found.where) == ("references", "branch 'side'")
    assert f"deletes it at {snapshot}, which nobody asked for" in found.what


def test_a_deletion_for_being_old_of_a_branch_that_is_not_is_found() -> None:
    storage, snapshot, notes = _with_deleted_branch()
    written = ars.Repository.open(storage).lookup_snapshot(snapshot).written_at
    micros = int(written.timestamp() * 1e6)
    for older_than, fits in ((micros + 10, True), (micros - 10, False)):
        expiry = Upkeep("e", "expire", 2.0, older_than=older_than)
        expiry.end(3.0, Committed(""))
        told = _with_seen(notes, expiry)
        assert (check(_objects(storage), told) == []) == fits


def _with_seen(notes: Observations, *more: object) -> Observations:
    """Return notes with more that was seen."""
    found = Observations(dict(notes.transactions), list(notes.seen))
    for seen in more:
        found.see(seen)  # type: ignore[arg-type]
    return found


def test_what_is_told_to_have_expired_and_is_still_shown_is_found() -> None:
    storage = ars.in_memory_storage()
    repository = ars.Repository.create(storage)
    kept = repository.lookup_branch("main")
    session = repository.writable_session("main")
    session.commit("second", allow_empty=True)
    expiry = Upkeep("e", "expire", 2.0, older_than=1)
    expiry.end(3.0, Committed(""))
    expiry.expired = frozenset({kept})
    found = [each for each in check(_objects(storage), _with_seen(Observations(), expiry)) if each.rule == "retention"]
    assert [each.where for each in found] == [f"snapshot {kept}"]
    assert "was told at 3.000 that it has expired, and it is kept" in found[0].what
