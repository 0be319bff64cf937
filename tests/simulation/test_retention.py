"""What is taken from a snapshot that is kept, what stays for nothing, who is refused for nothing: all found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from arraystore.simulation.trace import Event
from tests.simulation.checker import check
from tests.simulation.checker.decoder import Reader
from tests.simulation.checker.decoding import id_text
from tests.simulation.checker.retained import needs_of
from tests.simulation.checker.violations import Violation
from tests.simulation.forging import CHECKPOINT, forged, put_commit, put_record, record_key
from tests.simulation.observations import (
    Attempt,
    Missing,
    Observations,
    RefChange,
    RefCreation,
    Refused,
    Solver,
    Upkeep,
)
from tests.simulation.runs import run
from tests.simulation.runs.run import simulate

LATE = 1e9


@dataclass
class Left:
    """All that a run has left."""

    objects: dict[str, bytes]
    gone: dict[str, bytes]
    events: list[Event]
    notes: Observations

    def check(self, rule: str) -> list[Violation]:
        """Return what breaks a rule."""
        found = check(self.objects, self.notes, events=self.events, gone=self.gone)
        return [violation for violation in found if violation.rule == rule]

    def reader(self) -> Reader:
        """Return a reader of what is there."""
        return Reader({**self.gone, **self.objects})


def _left_by(seed: int) -> Left:
    """Run a seed, and keep what the checker gets."""
    kept: list[Left] = []

    def look(objects: dict[str, bytes], notes: Observations, _: Any, *, events: Any, gone: Any, lag: float) -> Any:
        kept.append(Left(dict(objects), dict(gone), list(events), notes))
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "check", look)
        simulate(seed, profile="lifecycle")
    return kept[0]


@cache
def _eventful() -> Left:
    """Return what a run has left in which snapshots have expired and been collected, and a tag is there."""
    for seed in range(200):
        left = _left_by(seed)
        expired = any(isinstance(seen, Upkeep) and seen.expired for seen in left.notes.seen)
        packs = [key for key, _ in needs_of(left.reader().branch("main").states[-1]) if key.startswith("chunks/")]
        tagged = any(isinstance(seen, RefCreation) and seen.kind == "tag" for seen in left.notes.seen)
        based = left.reader().branch("main").lives[-1].base is not None
        if expired and packs and tagged and based and any(key.startswith("chunks/") for key in left.gone):
            return left
    raise AssertionError("no seed does what these tests are about")


@pytest.fixture
def left() -> Left:
    found = _eventful()
    return Left(dict(found.objects), dict(found.gone), list(found.events), copy.deepcopy(found.notes))


def test_nothing_is_wrong_with_what_is_changed_below(left: Left) -> None:
    assert check(left.objects, left.notes, events=left.events, gone=left.gone) == []


def test_a_pack_that_is_taken_away_from_the_newest_snapshot_is_found(left: Left) -> None:
    tip = left.reader().branch("main").states[-1]
    pack = next(key for key, _ in needs_of(tip) if key.startswith("chunks/"))
    left.gone[pack] = left.objects.pop(pack)
    left.events.append(Event(LATE, "g0", "delete", pack, "read"))
    (found,) = left.check("retention")
    assert found.where == pack
    assert "needs it in the end" in found.what


def test_what_is_missing_is_found_without_a_trace(left: Left) -> None:
    tip = left.reader().branch("main").states[-1]
    pack = next(key for key, _ in needs_of(tip) if key.startswith("chunks/"))
    left.gone[pack] = left.objects.pop(pack)
    left.events.clear()
    assert pack in [violation.where for violation in left.check("retention")]


def test_a_record_that_is_taken_away_is_found(left: Left) -> None:
    key = record_key(left.objects, "main", left.reader().tip("main"))
    left.gone[key] = left.objects.pop(key)
    left.events.append(Event(LATE, "g0", "delete", key, "read"))
    assert [violation.where for violation in left.check("retention")] == [key]


def test_what_nothing_needs_is_found(left: Left) -> None:
    key = "chunks/" + id_text(bytes([1, *bytes(10), 1]))
    left.objects[key] = b"nobody's"
    assert [(v.where, v.what.partition(",")[0]) for v in left.check("retention")] == [(key, "nothing needs it")]


def test_who_misses_what_is_there_is_found(left: Left) -> None:
    tip = id_text(left.reader().branch("main").states[-1].id)
    left.notes.see(Missing("r9", "snapshot", tip, "SnapshotExpiredError", LATE, LATE))
    left.notes.see(Missing("r9", "branch", "main", "RefNotFoundError", LATE, LATE))
    assert [v.where for v in left.check("retention")] == [f"snapshot {tip}", "branch 'main'"]


def test_a_snapshot_that_has_expired_may_be_missed(left: Left) -> None:
    gone = next(iter(seen for seen in left.notes.seen if isinstance(seen, Upkeep) and seen.expired)).expired
    for snapshot in gone:
        left.notes.see(Missing("r9", "snapshot", snapshot, "SnapshotExpiredError", LATE, LATE))
    assert left.check("retention") == []


@pytest.mark.parametrize("error", ["SessionExpiredError", "ReadOnlyError", "RefNotFoundError"])
def test_who_is_refused_for_nothing_is_found(left: Left, error: str) -> None:
    base = id_text(left.reader().branch("main").states[-1].id)
    one = left.notes.transaction("late", process="w9", branch="main", base=base, began=LATE, opened=LATE)
    one.attempts.append(Attempt(Solver(), LATE, -1.0 if error == "ReadOnlyError" else LATE, Refused(error)))
    assert [v.where for v in left.check("retention")] == ["late"]


def test_an_expiry_that_nobody_asked_for_is_found(left: Left) -> None:
    left.notes.seen = [seen for seen in left.notes.seen if not (isinstance(seen, Upkeep) and seen.what == "expire")]
    assert any("nobody asked for" in v.what for v in left.check("retention"))


def test_a_tag_that_nobody_deleted_is_missed(left: Left) -> None:
    ended = RefChange("o9", "tag", "another", None, LATE)
    ended.end(LATE, Refused("RefNotFoundError"))
    left.notes.see(ended)
    created = next(seen for seen in left.notes.seen if isinstance(seen, RefCreation) and seen.kind == "tag")
    left.notes.see(replace(created, name="another", began=LATE, ended=LATE, outcome=Refused("AlreadyExistsError")))
    assert [v.where for v in left.check("references")] == ["tag 'another'"]


def test_a_commit_of_what_is_below_the_watermark_is_found(left: Left) -> None:
    tip = left.reader().branch("main").states[-1].id
    number = put_commit(left.objects, "forged", parent=tip, packs=bytes([1, *bytes(11)]))
    assert [(v.where, v.what.rpartition(", ")[2]) for v in left.check("history")] == [
        (record_key(left.objects, "main", number), "which is below the watermark of a collection")
    ]


def test_a_commit_to_a_closed_branch_is_found(left: Left) -> None:
    put_record(left.objects, 5, [bytes(12), 0, True])
    number = put_commit(left.objects, "forged", parent=left.reader().branch("main").states[-1].id)
    assert [v.where for v in left.check("history")] == [record_key(left.objects, "main", number)]


def _says(which: int, value: object) -> Callable[[Any], None]:
    def change(checkpoint: Any) -> None:
        checkpoint[8][which] = value

    return change


def test_a_checkpoint_that_says_something_else_of_its_branch_is_found(left: Left) -> None:
    identifier = left.reader().branch("main").lives[-1].base
    assert identifier is not None
    key = "snapshots/" + id_text(identifier)
    forged(left.objects, key, CHECKPOINT, _says(3, value=True))
    assert key in [violation.where for violation in left.check("derived")]


def test_a_collector_may_not_touch_the_repository_log(left: Left) -> None:
    collector = next(seen.process for seen in left.notes.seen if isinstance(seen, Upkeep) and seen.what == "collect")
    key = left.reader().repository_key(1)
    left.events.append(Event(LATE, collector, "delete", key, "read"))
    assert [violation.where for violation in left.check("objects")] == [key]
