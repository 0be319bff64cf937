"""The checker finds nothing wrong with what the real code makes, and each thing that somebody has made wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import msgpack
import pytest

import arraystore as ars
from arraystore._format.ids import id_from_text
from arraystore._format.pack import pack_seed, padded_size, trailer
from arraystore.simulation.trace import Event
from tests.simulation.checker import RULES, Violation, check
from tests.simulation.checker.decoding import body
from tests.simulation.forging import (
    CHECKPOINT,
    HINT,
    PAGE,
    RECORD,
    REPOSITORY,
    entry_of,
    enveloped,
    forged,
    forged_tip,
    put_commit,
    put_record,
    record_key,
    tip_of,
)
from tests.simulation.observations import (
    Ancestry,
    Append,
    Committed,
    ListingRead,
    Observations,
    RefCreation,
    RefListing,
    RefLook,
    Refused,
    Solver,
    TipLook,
    Unfinished,
    Unknown,
    ValueRead,
    WriteChunk,
)
from tests.simulation.play import DETECTOR, GROUP, Actor, Play, array

BASIC = Solver("basic")
THEIRS = Solver("basic", on_chunk_conflict="theirs")
CUSTOM = Solver("custom")
Objects = dict[str, bytes]


def rules(found: list[Violation]) -> set[str]:
    return {violation.rule for violation in found}


def founded() -> Play:
    """Return a repository with a group and two arrays."""
    play = Play()
    play.open("found").create("").create("g").create("a", array((4,))).create("g/b", array((4, 2))).write(
        "a", (0,)
    ).write("a", (1,), 100).write("g/b", (0, 1)).commit()
    return play


def everything() -> Play:
    """Return a history with all operations, solvers and outcomes, and all that is derived from it."""
    play = founded()
    play.look()
    first = play.repo.lookup_branch("main")
    together(play)
    appended(play)
    solved(play)
    for number in range(70):
        play.open(f"more {number}").write("a", (number % 4,), 60 * (number % 3)).commit()
    named(play, first)
    play.look()
    play.read("a/c/0", first)
    play.read("nothing/zarr.json", play.repo.lookup_branch("main"))
    seen = tuple((i.id, i.parent_id, i.message) for i in play.repo.ancestry(branch="main"))
    play.notes.see(Ancestry("reader", seen[0][0], seen, play.now(), play.now()))
    return play


def together(play: Play) -> None:
    """Let transactions with one base change different things, and read."""
    actors = [play.open(f"together {i}", "serializable") for i in range(5)]
    actors[0].read("a/c/1").write("a", (2,)).erase("a", (0,)).read("a/c/0").read("a/c/2")
    actors[1].update("g", GROUP.replace(b"{}", b'{"x": 1}')).create("g/new", array((3,))).write("g/new", (2,))
    actors[1].list("g").list("", deep=True)
    actors[2].move("g/b", "moved").read("moved/zarr.json").write("moved", (3, 1), 200)
    actors[3].file("notes.txt", b"a file").read("notes.txt")
    actors[4].update("a", array((4,), note="plain")).read("a/zarr.json")
    for actor in actors[1:]:
        actor.commit()
    actors[0].commit()
    loser = play.open("too late").write("a", (0,))
    play.open("in time").write("a", (0,)).delete("g/new").file("notes.txt", None).commit(Solver())
    assert loser.commit() is None
    assert loser.commit(Solver()) is None


def appended(play: Play) -> None:
    """Let several append at once, one of them after a rebase."""
    play.open("series").create("s", array((4,), (2,))).write("s", (0,)).commit()
    appenders = [play.open(f"append {i}") for i in range(3)]
    for i, actor in enumerate(appenders):
        data = {(2 + j,): f"appended by {i}: {j}".encode() for j in range(2)}
        actor.append("s", array((8,), (2,)), 4, data)
    appenders[2].update("s", array((8,), (2,), who="two"))
    appenders[0].commit()
    appenders[1].rebase().write("s", (0,)).commit()
    appenders[2].commit()
    play.open("to half a chunk").append("s", array((17,), (2,), who="two"), 1, {(8,): b"half a chunk"}).commit()
    play.open("unaligned").append("s", array((19,), (2,), who="two"), 2, {(8,): b"whole", (9,): b"half"}).commit()
    shrunk = play.open("shrunk").update("s", array((6,), (2,))).update("s", array((10,), (2,))).write("s", (4,))
    shrunk.commit()


def solved(play: Play) -> None:
    """Let solvers decide: ours, theirs, merged, and deletions."""
    for name, solver in (("ours", BASIC), ("theirs", THEIRS), ("merge", CUSTOM)):
        late = play.open(f"late {name}").write("a", (1,), 50).write("a", (2,))
        play.open(f"early {name}").write("a", (1,)).commit()
        late.commit(solver)
    again = play.open("rebased and merged").write("a", (1,)).write("a", (3,))
    play.open("first rival").write("a", (1,)).commit()
    again.rebase(CUSTOM).write("a", (0,))
    play.open("second rival").write("a", (3,)).commit()
    again.commit(THEIRS)
    gone = play.open("deletes the group").delete("g")
    play.open("puts something into it").create("g/late", array((1,))).write("g/late", (0,)).commit()
    gone.commit(BASIC)


def named(play: Play, first: str) -> None:
    """Create a branch and a tag, and commit to the branch."""
    tip = play.repo.lookup_branch("main")
    for kind, name, snapshot in (("branch", "side/é", tip), ("tag", "v1", first)):
        creation = RefCreation("referrer", kind, name, snapshot, play.now())
        play.notes.see(creation)
        (play.repo.create_branch if kind == "branch" else play.repo.create_tag)(name, snapshot)
        creation.end(play.now(), Committed(snapshot))
    play.open("aside", branch="side/é").write("a", (0,)).commit()
    play.notes.see(RefLook("referrer", "v1", play.repo.lookup_tag("v1"), play.now(), play.now()))
    play.notes.see(RefListing("referrer", "branch", ("main", "side/é"), play.now(), play.now()))
    play.notes.see(RefListing("referrer", "tag", ("v1",), play.now(), play.now()))


@cache
def _everything() -> tuple[Objects, Observations]:
    play = everything()
    return play.objects(), play.notes


@pytest.fixture
def history() -> tuple[Objects, Observations]:
    objects, notes = _everything()
    return dict(objects), copy.deepcopy(notes)


def changed(notes: Observations, kind: type[Any], which: int, **changes: Any) -> None:
    """Change one of the things that were seen."""
    at = [i for i, seen in enumerate(notes.seen) if isinstance(seen, kind)][which]
    notes.seen[at] = replace(notes.seen[at], **changes)


# -- nothing is wrong ---------------------------------------------------------------------------------------------


def test_nothing_is_wrong_with_a_history_of_everything(history: Any) -> None:
    objects, notes = history
    assert check(objects, notes) == []
    kinds = {key.split("/")[0] for key in objects}
    assert kinds == {"repo", "refs", "snapshots", "manifests", "chunks", "history", "hints"} or kinds >= {
        "refs",
        "snapshots",
        "chunks",
        "history",
        "hints",
    }
    outcomes = [type(transaction.outcome) for transaction in notes.transactions.values()]
    assert outcomes.count(Committed) > 90
    assert outcomes.count(Refused) == 1
    entries = {entry_of(objects, n)[1] for n in range(tip_of(objects) + 1)}
    assert entries == {0, 1, 2}


def test_an_outcome_that_nobody_knows_may_be_either(history: Any) -> None:
    objects, notes = history
    for label in ("more 3", "too late"):
        notes.transactions[label].attempts[-1].outcome = Unknown("no answer")
    assert check(objects, notes) == []


def test_a_transaction_without_a_solver_that_nobody_overtook_is_right() -> None:
    play = founded()
    play.open("alone").write("a", (0,)).commit(Solver())
    assert check(play.objects(), play.notes) == []


# -- history ------------------------------------------------------------------------------------------------------


def test_a_missing_record_is_found(history: Any) -> None:
    objects, notes = history
    del objects[record_key(objects, "main", 5)]
    assert any(v.rule == "history" and "no records [5]" in v.what for v in check(objects, notes))


def test_a_damaged_record_is_found(history: Any) -> None:
    objects, notes = history
    key = record_key(objects, "main", tip_of(objects))
    objects[key] = objects[key][:-1] + bytes([objects[key][-1] ^ 1])
    assert any(v.rule == "history" and "checksum" in v.what and v.where == key for v in check(objects, notes))


def test_a_record_that_carries_another_body_than_that_record_has_is_found(history: Any) -> None:
    objects, notes = history
    key = record_key(objects, "main", 7)

    def change(record: Any) -> None:
        record[6][2] = record[6][1]

    forged(objects, key, RECORD, change)
    assert any(v.rule == "history" and "another body" in v.what for v in check(objects, notes))


def test_a_record_that_carries_too_few_bodies_is_found(history: Any) -> None:
    objects, notes = history
    key = record_key(objects, "main", 7)
    forged(objects, key, RECORD, lambda record: record[6].pop())
    assert any(v.rule == "history" and "carries 5 bodies, not 6" in v.what for v in check(objects, notes))


def test_a_transaction_that_does_not_follow_the_one_before_is_found(history: Any) -> None:
    objects, notes = history

    def change(transaction: Any) -> None:
        transaction[1] = bytes(12)

    forged_tip(objects, change)
    assert any(v.rule == "history" and "does not follow" in v.what for v in check(objects, notes))


def test_a_snapshot_that_is_made_twice_is_found(history: Any) -> None:
    objects, notes = history
    found = id_from_text(notes.transactions["more 1"].outcome.snapshot)

    def change(transaction: Any) -> None:
        transaction[0] = found

    forged_tip(objects, change)
    assert any(v.rule == "history" and "has made" in v.what for v in check(objects, notes))


def test_a_refusal_of_what_was_committed_is_found(history: Any) -> None:
    objects, notes = history
    put_commit(objects, "forged", parent=_tip(notes), refused=_tip(notes))
    assert any(v.rule == "history" and "it refuses" in v.what for v in check(objects, notes))


@pytest.mark.parametrize(
    ("intent", "what"),
    [
        (["main", 6, 20, [[bytes(12)]]], "another record than its key"),
        (["main", 5, 38, [[bytes(12)]]], "too far away"),
        (["main", 5, 6, [[]]], "IndexError"),
        (["side/é", 5, 6, [[bytes(12)]]], "another record than its key"),
    ],
)
def test_an_intent_that_is_none_is_found(history: Any, intent: Any, what: str) -> None:
    objects, notes = history
    key = record_key(objects, "main", 5) + "-" + "0" * 20
    objects[key] = enveloped(11, ["main", 5, 37, [[bytes(12)]]])
    assert check(objects, notes) == []
    objects[key] = enveloped(11, intent)
    assert any(v.rule == "history" and what in v.what and v.where == key for v in check(objects, notes))


def test_an_intent_of_what_was_committed_by_then_is_found(history: Any) -> None:
    objects, notes = history
    identifier = id_from_text(notes.transactions["found"].outcome.snapshot)
    objects[record_key(objects, "main", 5) + "-" + "0" * 20] = enveloped(11, ["main", 5, 37, [[identifier]]])
    assert any(v.rule == "history" and "by then" in v.what for v in check(objects, notes))


# -- commits ------------------------------------------------------------------------------------------------------


def _tip(notes: Observations) -> bytes:
    return id_from_text(notes.transactions["more 69"].outcome.snapshot)


def test_an_acknowledged_commit_that_is_lost_is_found() -> None:
    play = founded()
    play.open("lost").write("a", (0,)).commit()
    objects = play.objects()
    del objects[record_key(objects, "main", tip_of(objects))]
    found = check(objects, play.notes)
    assert [v for v in found if v.rule == "commits" and v.where == "lost" and "nothing of it is there" in v.what]


def test_a_refused_commit_that_is_there_is_found(history: Any) -> None:
    objects, notes = history
    notes.transactions["more 5"].attempts[-1].outcome = Refused("RebaseFailedError")
    assert any(v.rule == "commits" and "it was refused" in v.what for v in check(objects, notes))


def test_a_commit_told_under_another_snapshot_is_found(history: Any) -> None:
    objects, notes = history
    attempt = notes.transactions["more 5"].attempts[-1]
    attempt.outcome = notes.transactions["more 6"].outcome
    assert any(v.rule == "commits" and "it is there as" in v.what for v in check(objects, notes))


def test_a_commit_that_nobody_meant_is_found(history: Any) -> None:
    objects, notes = history
    del notes.transactions["more 5"]
    assert any(v.rule == "commits" and "nobody meant to commit 'more 5'" in v.what for v in check(objects, notes))


def test_a_commit_that_is_there_twice_is_found(history: Any) -> None:
    objects, notes = history
    put_commit(objects, "more 69", parent=_tip(notes))
    found = check(objects, notes)
    assert any(v.rule == "commits" and "committed 2 times" in v.what and v.where == "more 69" for v in found)


def test_another_isolation_or_metadata_than_meant_is_found(history: Any) -> None:
    objects, notes = history
    notes.transactions["more 7"].isolation = "serializable"
    notes.transactions["more 8"].metadata = {"by": "somebody"}
    found = [v for v in check(objects, notes) if v.rule == "commits"]
    assert {v.where for v in found} == {"more 7", "more 8"}


def test_a_refusal_because_of_nobody_is_found() -> None:
    play = founded()
    alone = play.open("alone").write("a", (0,))
    alone.noted.attempt(DETECTOR, play.now()).end(play.now(), Refused("ConflictError"))
    found = check(play.objects(), play.notes)
    assert [(v.rule, v.where) for v in found] == [("commits", "alone")]
    assert "nobody has committed since" in found[0].what


def test_a_refusal_because_of_chunks_that_nobody_else_wrote_is_found() -> None:
    play = founded()
    refused = play.open("refused").write("a", (0,))
    play.open("other").write("a", (1,)).commit()
    attempt = refused.noted.attempt(DETECTOR, play.now())
    attempt.end(play.now(), Refused("RebaseFailedError", (("ChunkDoubleUpdate", "/a"),)))
    assert any("nobody else wrote" in v.what for v in check(play.objects(), play.notes))
    play.open("another").write("a", (0,)).commit()
    assert check(play.objects(), play.notes) == []


# -- content ------------------------------------------------------------------------------------------------------


def test_a_pack_that_is_missing_is_found(history: Any) -> None:
    objects, notes = history
    del objects[next(key for key in objects if key.startswith("chunks/"))]
    assert any("which does not exist" in v.what for v in check(objects, notes))


def test_a_pack_that_is_too_short_is_found(history: Any) -> None:
    objects, notes = history
    key = next(key for key in objects if key.startswith("chunks/"))
    objects[key] = objects[key][:-1]
    assert any("the checksum behind" in v.what and v.where == key for v in check(objects, notes))


def test_a_chunk_that_is_not_what_its_checksum_says_is_found(history: Any) -> None:
    objects, notes = history
    key = next(key for key in objects if key.startswith("chunks/"))
    objects[key] = b"?" + objects[key][1:]
    assert any("the checksum behind" in v.what and v.where == key for v in check(objects, notes))


def test_other_bytes_than_were_written_are_found(history: Any) -> None:
    objects, notes = history
    key = next(key for key in objects if key.startswith("chunks/"))
    pack, seed = objects[key], pack_seed(id_from_text(key.removeprefix("chunks/")))
    size = next(n for n in range(1, len(pack)) if pack[n:].startswith(trailer(seed, 0, pack[:n])))
    other = b"?" + pack[1:size]
    objects[key] = other + trailer(seed, 0, other) + pack[padded_size(size) :]
    assert "content" in rules(check(objects, notes))


@pytest.mark.parametrize(
    ("label", "operation"),
    [
        ("more 5", WriteChunk("a", (3,), b"never arrived")),
        ("append 2", Append("s", 0, 2, {(4,): b"never arrived"})),
        ("together 3", WriteChunk("a", (3,), None)),
    ],
)
def test_a_change_that_did_not_come_about_is_found(history: Any, label: str, operation: Any) -> None:
    objects, notes = history
    notes.transactions[label].operations.append(operation)
    found = [v for v in check(objects, notes) if v.rule == "content" and v.where == label]
    if operation != WriteChunk("a", (3,), None):  # which had no chunk anyway
        assert found


def test_a_change_that_nobody_meant_is_found(history: Any) -> None:
    objects, notes = history
    for label in ("together 1", "together 4", "more 9", "append 0", "shrunk"):
        own = copy.deepcopy(notes)
        own.transactions[label].operations.pop(0)
        found = check(objects, own)
        assert any(v.rule == "content" and v.where == label for v in found), label


def test_a_move_to_another_place_than_meant_is_found(history: Any) -> None:
    objects, notes = history
    operations = notes.transactions["together 2"].operations
    operations[0] = replace(operations[0], target="elsewhere")
    operations[1] = replace(operations[1], path="elsewhere")
    assert any(v.rule == "content" and v.where == "together 2" for v in check(objects, notes))


@pytest.mark.parametrize(("label", "solver"), [("late ours", THEIRS), ("late theirs", BASIC)])
def test_the_wrong_side_of_a_conflict_is_found(history: Any, label: str, solver: Solver) -> None:
    objects, notes = history
    attempt = notes.transactions[label].attempts[-1]
    notes.transactions[label].attempts[-1] = replace(attempt, solver=solver)
    assert any(v.rule == "content" and v.where == label and "chunk (1,)" in v.what for v in check(objects, notes))


def test_a_merge_that_did_not_come_about_is_found(history: Any) -> None:
    objects, notes = history
    for label in ("late merge", "rebased and merged"):
        own = copy.deepcopy(notes)
        merges = own.transactions[label].merges
        merges[:] = [replace(merge, data=b"something else") for merge in merges]
        assert any(v.rule == "content" and v.where == label for v in check(objects, own)), label


def merged_file() -> tuple[Play, Actor]:
    """Let a solver merge a file that two wrote; a group has the same path."""
    play = founded()
    play.open("begun").create("notes").file("notes", b"begun").commit()
    late = play.open("late").file("notes", b"late")
    play.open("early").file("notes", b"early").commit()
    late.commit(CUSTOM)
    return play, late


@pytest.mark.parametrize("in_a_rebase", [False, True])
def test_a_merged_file_is_right_and_what_is_written_to_it_after_that_too(in_a_rebase: bool) -> None:
    play, late = merged_file()
    if in_a_rebase:
        late = play.open("rebased").file("notes", b"own")
        play.open("rival").file("notes", b"theirs").commit()
        late.rebase(CUSTOM).read("notes").file("notes", b"written again").read("notes").commit(CUSTOM)
    assert check(play.objects(), play.notes) == []
    assert [merge.coords for merge in late.noted.merges] == [()]
    last = play.repo.readonly_session("main").store.get_sync("notes")
    assert last is not None
    assert last.to_bytes() == (b"written again" if in_a_rebase else late.noted.merges[0].data)


def test_a_merge_of_a_file_that_did_not_come_about_is_found() -> None:
    play, late = merged_file()
    merges = late.noted.merges
    merges[:] = [replace(merge, data=b"something else") for merge in merges]
    found = check(play.objects(), play.notes)
    assert {(v.rule, v.where) for v in found} == {("content", "late")}


def test_bytes_of_ones_own_in_a_file_in_place_of_merged_ones_are_found() -> None:
    play, late = merged_file()
    own = play.open("own").file("notes", b"own")
    theirs = play.open("theirs").file("notes", b"theirs").commit()
    own.commit(BASIC)
    assert check(play.objects(), play.notes) == []
    assert theirs is not None
    own.noted.attempts[-1] = replace(own.noted.attempts[-1], solver=CUSTOM)
    own.noted.merges.append(replace(late.noted.merges[0], data=b"merged", theirs=theirs))
    found = check(play.objects(), play.notes)
    assert [(v.rule, v.where) for v in found] == [("content", "own")]
    assert "none of what its solver answered" in found[0].what


def test_operations_that_cannot_have_succeeded_are_found(history: Any) -> None:
    objects, notes = history
    notes.transactions["more 5"].operations.append(WriteChunk("nowhere", (0,), b"x"))
    assert any("cannot have done what it noted" in v.what for v in check(objects, notes))


# -- reads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", range(8))
def test_a_read_of_something_else_is_found(history: Any, which: int) -> None:
    objects, notes = history
    changed(notes, ValueRead, which, data=b"something else")
    assert "reads" in rules(check(objects, notes))


def test_a_read_that_misses_the_transactions_own_write_is_found(history: Any) -> None:
    objects, notes = history
    own = [s for s in notes.seen if isinstance(s, ValueRead) and s.key == "a/c/2" and s.transaction == "together 0"]
    at = notes.seen.index(own[0])
    notes.seen[at] = replace(own[0], data=None)
    assert any(v.rule == "reads" and v.where == "together 0" for v in check(objects, notes))


def test_a_read_of_a_snapshot_that_never_was_is_found(history: Any) -> None:
    objects, notes = history
    changed(notes, ValueRead, -1, snapshot="0" * 20)
    assert any(v.rule == "reads" and "never committed" in v.what for v in check(objects, notes))


@pytest.mark.parametrize("which", [0, 1])
def test_a_listing_that_leaves_something_out_is_found(history: Any, which: int) -> None:
    objects, notes = history
    listed = [s for s in notes.seen if isinstance(s, ListingRead)][which]
    changed(notes, ListingRead, which, names=listed.names[1:])
    assert any(v.rule == "reads" and "listed" in v.what for v in check(objects, notes))


def test_an_ancestry_that_leaves_something_out_is_found(history: Any) -> None:
    objects, notes = history
    seen = next(s for s in notes.seen if isinstance(s, Ancestry))
    changed(notes, Ancestry, 0, entries=seen.entries[:10] + seen.entries[11:])
    assert any(v.rule == "reads" and "of ancestor 9" in v.what for v in check(objects, notes))


def test_reads_after_a_rebase_are_of_the_snapshot_that_the_changes_are_on_now() -> None:
    play = founded()
    late = play.open("late", "serializable").write("a", (0,)).append("a", array((5,)), 1, {(4,): b"own"})
    play.open("early").append("a", array((5,)), 1, {(4,): b"theirs"}).write("a", (1,)).commit()
    late.rebase().read("a/c/0").read("a/c/1").read("a/c/4").read("a/c/5").list("a/c").commit()
    assert check(play.objects(), play.notes) == []
    reads = [seen for seen in play.notes.seen if isinstance(seen, ValueRead)]
    assert [read.data for read in reads][2:] == [b"theirs", b"own"]
    for which in range(4):
        notes = copy.deepcopy(play.notes)
        changed(notes, ValueRead, which, data=b"stale")
        assert any(v.rule == "reads" and v.where == "late" for v in check(play.objects(), notes))


# -- isolation ----------------------------------------------------------------------------------------------------


def collided(first: Callable[[Actor], Any], second: Callable[[Actor], Any], solver: Solver) -> list[Violation]:
    """Commit two transactions of one base with a solver that allows it, and check them as if it did not."""
    play = founded()
    one, two = play.open("one"), play.open("two")
    first(one)
    second(two)
    one.commit()
    assert two.commit(solver) is not None
    assert check(play.objects(), play.notes) == []
    two.noted.attempts[-1] = replace(two.noted.attempts[-1], solver=DETECTOR)
    return check(play.objects(), play.notes)


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        (lambda a: a.write("a", (1,)), lambda a: a.write("a", (1,)), "both wrote chunks [(1,)] of '/a'"),
        (lambda a: a.erase("a", (1,)), lambda a: a.write("a", (1,)), "both wrote chunks [(1,)] of '/a'"),
        (lambda a: a.write("a", (1,)), lambda a: a.delete("a"), "it deleted '/a', which others changed"),
        (
            lambda a: a.update("g", GROUP.replace(b"{}", b'{"x": 1}')),
            lambda a: a.delete("g"),
            "it deleted '/g', which others changed",
        ),
        (lambda a: a.create("g/new"), lambda a: a.delete("g"), "into which others put '/g/new'"),
    ],
)
def test_what_both_changed_without_leave_is_found(first: Any, second: Any, what: str) -> None:
    found = collided(first, second, BASIC)
    assert any(v.rule == "isolation" and what in v.what and "over one" in v.what for v in found)


def test_a_commit_over_another_one_without_a_solver_is_found(history: Any) -> None:
    objects, notes = history
    attempt = notes.transactions["together 3"].attempts[-1]
    notes.transactions["together 3"].attempts[-1] = replace(attempt, solver=Solver())
    assert any(v.rule == "isolation" and v.where == "together 3" for v in check(objects, notes))


@pytest.mark.parametrize(
    ("first", "change", "what"),
    [
        (lambda a: a.update("a", array((4,), x=1)), ("a", array((4,), x=2)), "both changed the metadata of '/a'"),
        (lambda a: a.write("a", (1,)), ("a", array((4,), units="K")), "changed how chunks of '/a' are read"),
        (lambda a: a.delete("g/b"), ("g/b", array((4, 2), x=2)), "it changed '/g/b', which was deleted"),
    ],
)
def test_metadata_changed_over_a_change_of_others_is_found(first: Any, change: Any, what: str) -> None:
    play = founded()
    base = play.repo.lookup_branch("main")
    one = play.open("one")
    first(one)
    two = play.open("two")
    two.update(*change)
    snapshot = one.commit()
    assert snapshot is not None
    objects = play.objects()
    node = ars.Repository.open(play.storage).readonly_session(snapshot_id=base)._tip.state.nodes[change[0]]
    put_commit(
        objects,
        "two",
        parent=id_from_text(snapshot),
        nodes=[[1, node.id, node.path, 1, {"zarr.json": change[1]}, None]],
    )
    two.noted.attempt(DETECTOR, play.now())
    found = check(objects, play.notes)
    if "deleted" in what:  # the log itself cannot be applied
        assert "history" in rules(found)
    else:
        assert any(v.rule == "isolation" and what in v.what for v in found)


# -- serializability ----------------------------------------------------------------------------------------------


def skewed(isolation: str) -> list[Violation]:
    """Let two transactions read what the other one writes."""
    play = founded()
    one, two = play.open("one"), play.open("two")
    one.read("a/c/0").write("a", (1,))
    two.read("a/c/1").write("a", (0,))
    one.commit()
    two.commit()
    for actor in (one, two):
        actor.noted.isolation = isolation
    return check(play.objects(), play.notes)


def test_write_skew_is_allowed_with_snapshot_isolation_and_found_with_serializability() -> None:
    assert skewed("snapshot") == []
    found = [v.what for v in skewed("serializable") if v.rule == "serializability"]
    assert any("in the snapshot before its own" in what for what in found)
    assert any("in a circle: one -> two -> one" in what or "two -> one -> two" in what for what in found)


def test_a_phantom_in_a_listing_is_found() -> None:
    play = founded()
    one, two = play.open("one"), play.open("two")
    two.list("g").write("a", (3,))
    one.create("g/phantom").commit()
    two.commit()
    assert check(play.objects(), play.notes) == []
    two.noted.isolation = "serializable"
    assert any(v.rule == "serializability" and "listed 'g'" in v.what for v in check(play.objects(), play.notes))


def test_reads_that_a_solver_waives_or_that_do_not_count_are_none_of_its_business() -> None:
    play = founded()
    one, two = play.open("one"), play.open("two")
    two.read("a/c/0").write("a", (3,))
    one.write("a", (0,)).commit()
    two.commit()
    two.noted.isolation = "serializable"
    assert "serializability" in rules(check(play.objects(), play.notes))
    changed(play.notes, ValueRead, 0, counts=False)
    assert "serializability" not in rules(check(play.objects(), play.notes))


# -- hierarchy ----------------------------------------------------------------------------------------------------


def _forged_nodes(history: Any, nodes: Callable[[dict[str, bytes]], list[Any]]) -> list[Violation]:
    objects, notes = history
    state = everything_state()
    put_commit(objects, "forged", parent=_tip(notes), nodes=nodes(state))
    return [v for v in check(objects, notes) if v.where == "forged" and v.rule == "hierarchy"]


@cache
def everything_state() -> dict[str, bytes]:
    """Return the ids of the nodes at the end, by path."""
    objects, _ = _everything()
    from tests.simulation.checker.decoder import Reader

    return {path: node.id for (path, _), node in Reader(objects).replay("main").nodes.items()}


def test_a_node_below_an_array_is_found(history: Any) -> None:
    found = _forged_nodes(history, lambda ids: [[0, b"x" * 12, "a/below", 0, {"zarr.json": GROUP}, None]])
    assert [v.what for v in found] == ["'/a/below' is below '/a', which is no group"]


def test_chunks_outside_of_the_grid_are_found(history: Any) -> None:
    found = _forged_nodes(history, lambda ids: [[1, ids["a"], "a", 1, {"zarr.json": array((2,))}, None]])
    assert "outside of its grid (2,)" in found[0].what


def test_documents_that_make_another_kind_of_node_are_found(history: Any) -> None:
    found = _forged_nodes(history, lambda ids: [[1, ids["a"], "a", 1, {"zarr.json": GROUP}, None]])
    assert "another kind" in found[0].what or "cannot be read" in found[0].what


def test_a_node_that_has_lost_its_group_is_found(history: Any) -> None:
    found = _forged_nodes(history, lambda ids: [[2, ids[""], "", 0, None, None]])
    assert found
    assert all("has lost its group '/'" in v.what for v in found)


def test_two_nodes_at_one_path_are_found(history: Any) -> None:
    objects, notes = history
    put_commit(objects, "f", parent=_tip(notes), nodes=[[0, b"x" * 12, "a", 0, {"zarr.json": GROUP}, None]])
    assert any(v.rule == "history" and "which exists" in v.what for v in check(objects, notes))


# -- real time ----------------------------------------------------------------------------------------------------


def test_a_session_that_does_not_see_what_was_acknowledged_before_is_found(history: Any) -> None:
    objects, notes = history
    late = notes.transactions["late ours"]
    end = notes.transactions["early ours"].attempts[-1].ended
    late.began, late.opened = end + 0.1, end + 0.2
    assert any(v.rule == "real time" and v.where == "late ours" for v in check(objects, notes))


def test_a_look_at_the_tip_that_goes_back_is_found(history: Any) -> None:
    objects, notes = history
    first = next(s for s in notes.seen if isinstance(s, TipLook))
    changed(notes, TipLook, -1, snapshot=first.snapshot)
    found = [v for v in check(objects, notes) if v.rule == "real time"]
    assert found
    assert "it was at record 96 by then" in found[0].what


def test_a_base_that_the_branch_never_had_is_found(history: Any) -> None:
    objects, notes = history
    notes.transactions["too late"].base = "0" * 20
    assert any(v.rule == "real time" and "never had" in v.what for v in check(objects, notes))


# -- derived ------------------------------------------------------------------------------------------------------


def _derived(objects: Objects, notes: Observations) -> list[str]:
    return [v.what for v in check(objects, notes) if v.rule == "derived"]


def _checkpoint_of(objects: Objects, number: int) -> str:
    keys = [key for key in objects if key.startswith("snapshots/")]
    return next(key for key in keys if body(key, objects[key], CHECKPOINT)[1] == number)


def test_a_checkpoint_with_another_message_or_document_than_the_log_is_found(history: Any) -> None:
    objects, notes = history

    def change(checkpoint: Any) -> None:
        checkpoint[5] = msgpack.packb(["another message", None])
        table = checkpoint[6]
        table[9] = table[9].replace(b"plain", b"plaid")

    forged(objects, _checkpoint_of(objects, 64), CHECKPOINT, change)
    found = _derived(objects, notes)
    assert any("its message is 'another message'" in what for what in found)
    assert any("document 'zarr.json'" in what for what in found)


def test_a_checkpoint_of_another_record_than_it_says_is_found(history: Any) -> None:
    objects, notes = history

    def change(checkpoint: Any) -> None:
        checkpoint[1] -= 1

    forged(objects, _checkpoint_of(objects, 64), CHECKPOINT, change)
    assert any("which has another" in what for what in _derived(objects, notes))


def test_a_history_page_with_other_rows_than_the_log_is_found(history: Any) -> None:
    objects, notes = history
    key = next(key for key in objects if "/main/1/" in key)

    def change(page: Any) -> None:
        page[3][6] = page[3][6].replace(b"early ours", b"early hour")

    forged(objects, key, PAGE, change)
    assert any("rows" in what for what in _derived(objects, notes))


def test_a_hint_to_a_checkpoint_of_another_record_is_found(history: Any) -> None:
    objects, notes = history

    def change(hint: Any) -> None:
        hint[1] -= 1

    forged(objects, "hints/main", HINT, change)
    assert any("that of another record" in what for what in _derived(objects, notes))


def test_a_page_may_be_missing_only_while_nothing_leads_to_the_checkpoint_that_names_it(history: Any) -> None:
    objects, notes = history
    for key in [key for key in objects if key.startswith("history/")]:
        del objects[key]
    assert any("does not exist" in what for what in _derived(objects, notes))
    for key in [key for key in objects if key.startswith("hints/")]:
        del objects[key]
    for name in {key.split("/")[3] for key in objects if "/branch/" in key} - {"main"}:
        for key in [key for key in objects if f"/branch/{name}/" in key]:
            del objects[key]
    assert _derived(objects, notes) == []


def test_a_rewrite_that_changes_data_is_found() -> None:
    play = founded()
    play.open("one").write("a", (3,)).commit()
    objects = play.objects()
    state = ars.Repository.open(play.storage).readonly_session("main")._tip.state
    node = state.nodes["a"]
    older = node.layers[0]
    assert older.inline is not None
    layer = [older.id, list(older.box.low), list(older.box.high), older.count, False, 1, older.inline, None]
    put_record(objects, 2, [[[node.id, node.layers[0].id, node.layers[-1].id, len(node.layers), [layer]]], b""])
    found = check(objects, play.notes)
    assert [v.what for v in found if v.rule == "derived"] == ["it changes chunks [(3,)] of '/a'"]


def test_a_rewrite_of_layers_that_are_not_there_is_found(history: Any) -> None:
    objects, notes = history
    put_record(objects, 2, [[[everything_state()["a"], bytes(12), bytes(12), 1, []]], b""])
    assert any(v.rule == "history" and "not there" in v.what for v in check(objects, notes))


# -- references ---------------------------------------------------------------------------------------------------


def test_a_tag_of_another_snapshot_than_its_creator_was_told_is_found(history: Any) -> None:
    objects, notes = history
    changed(notes, RefCreation, 1, snapshot=notes.transactions["more 5"].outcome.snapshot)
    found = [v.what for v in check(objects, notes) if v.rule == "references"]
    assert any("created it at" in what for what in found)
    assert any("nobody created it" in what for what in found)


def test_a_tag_whose_checkpoint_is_that_of_another_snapshot_is_found(history: Any) -> None:
    objects, notes = history

    def change(record: Any) -> None:
        record[3][-1][3] = bytes(12)

    forged(objects, max(key for key in objects if "/repository/" in key), REPOSITORY, change)
    assert any(v.rule == "references" and "another snapshot" in v.what for v in check(objects, notes))


def test_two_creators_of_one_branch_are_found(history: Any) -> None:
    objects, notes = history
    notes.see(replace(next(s for s in notes.seen if isinstance(s, RefCreation)), process="another"))
    assert any(v.rule == "references" and "did not happen" in v.what for v in check(objects, notes))


def test_looks_and_lists_that_miss_what_was_created_are_found(history: Any) -> None:
    objects, notes = history
    late = 10_000.0
    notes.see(RefLook("a", "v1", None, late, late))
    notes.see(RefLook("b", "v1", notes.transactions["more 5"].outcome.snapshot, late, late))
    notes.see(RefListing("c", "branch", ("main",), late, late))
    notes.see(RefListing("d", "tag", ("v1", "v2"), late, late))
    found = [v.what for v in check(objects, notes) if v.rule == "references"]
    assert len(found) == 4
    assert [what.split()[0] for what in found] == ["a", "b", "'side/é'", "'v2'"]


# -- objects ------------------------------------------------------------------------------------------------------


def test_an_object_that_is_changed_or_deleted_is_found(history: Any) -> None:
    objects, notes = history
    intent = record_key(objects, "main", 5) + "-" + "0" * 20
    harmless = [
        Event(0.0, "a", "put", "chunks/1", "written"),
        Event(1.0, "a", "put", "chunks/1", "overwritten, again"),
        Event(1.5, "c", "delete", "chunks/1", "lost"),
        Event(2.0, "a", "put", "hints/main", "written"),
        Event(3.0, "b", "put", "hints/main", "overwritten"),
        Event(4.0, "b", "put_if_absent", "chunks/1", "exists"),
        Event(5.0, "b", "delete", f"{intent} {intent}", "read"),
    ]
    late = [
        Event(5.1, "b", "put", "manifests/1", "written"),
        Event(5.2, "b", "delete", "manifests/1", "read"),  # a fold that came too late
    ]
    assert check(objects, notes, events=harmless + late) == []
    harmful = [Event(6.0, "b", "put", "chunks/1", "overwritten"), Event(7.0, "b", "delete", "chunks/1", "read")]
    found = check(objects, notes, events=harmless + harmful)
    assert [(v.rule, v.where) for v in found] == [("objects", "chunks/1")] * 2


# -- liveness -----------------------------------------------------------------------------------------------------


def test_what_never_ended_is_told(history: Any) -> None:
    objects, notes = history
    notes.see(Unfinished("w1", "commit of t1", 3.0))
    (found,) = check(objects, notes)
    assert str(found) == "[liveness] w1: commit of t1 never ended; it began at 3.000"


def test_every_rule_is_named_and_explained() -> None:
    assert set(RULES) == {
        *("objects", "history", "commits", "content", "reads", "isolation", "serializability", "repeats"),
        *("hierarchy", "real time", "derived", "references", "retention", "liveness"),
    }
    assert enveloped(REPOSITORY, None)[:4] == b"ARST"
