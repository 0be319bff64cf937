"""What the checker finds wrong with snapshots on no branch, with what undoes and repeats others, and with repeats."""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.simulation.actors.documents import UNIQUE_DIMENSION, coordinate_document
from tests.simulation.checker import Violation, check
from tests.simulation.observations import (
    Append,
    Committed,
    Observations,
    Refused,
    Repeated,
    Solver,
    Transaction,
    Transplant,
)
from tests.simulation.play import Actor, Play, array


def _flushed(play: Play, actor: Actor) -> str:
    actor.noted.flushes = True
    attempt = actor.noted.attempt(Solver(), play.now())
    snapshot = actor.session.flush(actor.noted.label)
    attempt.end(play.now(), Committed(snapshot))
    return snapshot


def _transplanted(play: Play, label: str, way: str, snapshot: str, branch: str) -> str:
    wanted, now = Transplant(way, snapshot), play.now()
    noted = play.notes.transaction(
        label, process=label, branch=branch, base="", began=now, opened=now, metadata=wanted.metadata
    )
    noted.transplants = wanted
    attempt = noted.attempt(Solver("detector"), now)
    make = play.repo.revert if way == "revert" else play.repo.cherry_pick
    found = make(snapshot, branch=branch, message=label)
    attempt.end(play.now(), Committed(found))
    return found


def _appended(actor: Actor, *values: int) -> Actor:
    node = actor.session.hierarchy.writable().node("when")
    assert node is not None
    length = sum(len(o.unique) for o in actor.noted.operations if isinstance(o, Append)) + _length(actor)
    actor.session.append({"when": np.array(values, dtype="int64")}, UNIQUE_DIMENSION, unique="when")
    chunks = {(length + at,): struct.pack("<q", value) for at, value in enumerate(values)}
    actor.noted.operations.append(Append("when", 0, len(values), chunks, values))
    return actor


def _length(actor: Actor) -> int:
    return {"one": 0, "two": 2, "rival": 0}[actor.noted.label]


@cache
def _played() -> tuple[dict[str, bytes], Observations]:
    """Return objects and notes of a history with all of it."""
    play = Play()
    play.open("found").create("").create("a", array((4,))).create("when", coordinate_document()).commit()
    side = play.repo.lookup_branch("main")
    made = play.open("made").write("a", (0,)).create("g").commit()
    assert made is not None
    _flushed(play, play.open("flushed").write("a", (1,), 100))
    play.open("later").write("a", (2,)).commit()
    undone = _transplanted(play, "undone", "revert", made, "main")
    _transplanted(play, "redone", "revert", undone, "main")
    play.repo.create_branch("side", side)
    _transplanted(play, "picked", "cherry_pick", made, "side")
    rival = _appended(play.open("rival"), 8)
    _appended(play.open("one"), 5, 6).commit()
    assert _appended(play.open("two"), 7, 8).commit() is not None
    assert rival.commit() is None
    return play.objects(), play.notes


def _wrong(change: Callable[[Observations], None]) -> list[Violation]:
    objects, notes = _played()
    changed = copy.deepcopy(notes)
    change(changed)
    return [each for each in check(objects, changed) if each.rule != "references"]  # nobody noted the branch


def _with(label: str, **changes: object) -> Callable[[Observations], None]:
    def change(notes: Observations) -> None:
        for name, value in changes.items():
            setattr(notes.transactions[label], name, value)

    return change


def test_nothing_is_wrong_with_what_came_about() -> None:
    assert _wrong(lambda notes: None) == []


def _drop_last(notes: Observations, label: str) -> None:
    notes.transactions[label].operations.pop()


def _refused(transaction: Transaction) -> None:
    transaction.attempts[-1].outcome = Refused("RebaseFailedError", (("DuplicateAppend", "/when"),))


def _other_values(notes: Observations) -> None:
    _refused(notes.transactions["rival"])
    own = notes.transactions["rival"].operations
    own[:] = [replace(each, unique=(99,)) for each in own if isinstance(each, Append)]


def _values_that_were_there(notes: Observations) -> None:
    own = notes.transactions["two"].operations
    own[:] = [replace(each, unique=(5, 8)) for each in own if isinstance(each, Append)]


def _told_in_vain(notes: Observations) -> None:
    notes.see(Repeated("two", "two", 0, "when", (42,), 1.0, 2.0))


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("content", lambda notes: _drop_last(notes, "flushed")),
        ("content", _with("flushed", metadata={"more": 1})),
        ("commits", _with("flushed", flushes=False)),
        ("commits", _with("later", flushes=True)),
        ("content", _with("undone", transplants=Transplant("cherry_pick", "0" * 19 + "4"))),
        ("content", _with("picked", transplants=Transplant("revert", "0" * 20))),
        ("commits", _with("picked", metadata={"reverts": "another"})),
        ("commits", lambda notes: _refused(notes.transactions["undone"])),
        ("repeats", _other_values),
        ("repeats", _values_that_were_there),
        ("repeats", _told_in_vain),
    ],
)
def test_what_is_otherwise_than_it_was_meant_is_found(rule: str, change: Callable[[Observations], None]) -> None:
    assert rule in {each.rule for each in _wrong(change)}


def test_what_undoes_another_snapshot_than_was_asked_for_is_found() -> None:
    _, notes = _played()
    later = notes.transactions["later"].outcome
    assert isinstance(later, Committed)
    found = _wrong(_with("undone", transplants=Transplant("revert", later.snapshot)))
    assert ("content", "undone") in {(each.rule, each.where) for each in found}
