"""What a torture must have left: compared with the journals of its actors, and with what is in the storage."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from arraystore import ArrayStoreError, ObjectNotFoundError, RefNotFoundError, Repository
from arraystore._environment import ENVIRONMENT, current_environment
from arraystore._format.ids import ID_BYTES, id_to_text
from arraystore._format.lifecycle import BranchLife
from arraystore._format.repository_log import RepositoryTable
from arraystore._format.snapshot import checkpoint_key
from arraystore._log.loading import load_checkpoint
from arraystore._maintenance.verification.verify import Verification
from arraystore._repository.scope import scope_of
from arraystore._runtime import run
from arraystore.storage import Storage
from tests.fuzz.mutate import open_envelope
from tests.seams import context_of
from tests.torture.actors import values_at
from tests.torture.places import DAY, Clock, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Outcome", "check_all"]

_SLACK = 1.0
"""Seconds between the time that an expiry was asked for and the one that it compares."""

_SAMPLED = 60
"""Snapshots of a history whose values are read one by one; the chunks of all others are checked by verify."""


@dataclass
class Outcome:
    """What came of it.

    Parameters
    ----------
    problems
        What must not be; empty if all is well.
    counts
        How often what happened.
    """

    problems: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])


@dataclass
class _Check:
    """A check of one place."""

    place: Place
    outcome: Outcome
    chance: random.Random

    def problem(self, what: str) -> None:
        if what not in self.outcome.problems:
            self.outcome.problems.append(what)

    @cached_property
    def tried(self) -> dict[int, dict[str, Any]]:
        """Every commit that was begun, by its value."""
        return {note["tried"]: note for note in self.place.notes("writer") if "tried" in note}

    @cached_property
    def done(self) -> list[dict[str, Any]]:
        """Every commit that was acknowledged, in order."""
        return sorted((note for note in self.place.notes("writer") if "done" in note), key=lambda note: note["done"])

    @cached_property
    def cut(self) -> float:
        """The latest moment of an expiry: what was committed before it may have expired."""
        return max([note["before"] for note in self.place.notes("expired")], default=0.0)

    @cached_property
    def moved(self) -> set[str]:
        """Branches that their owners have reset or deleted, or have tried to."""
        return {note["branch"] for note in self.place.notes("moved")}

    def open(self) -> Repository:
        return Repository.open(self.place.open_directly())

    # -- histories

    def histories(self) -> None:
        """Look for all that was acknowledged, on every branch."""
        repository = self.open()
        branches = repository.list_branches()
        self._main(repository)
        for branch in sorted({note["branch"] for note in self.done} - {"main"}):
            self._side(repository, branch, branch in branches and _opens(repository, branch))
        for note in self.place.notes("tag"):
            self._readable(repository, f"tag {note['tag']}", tag=note["tag"])
        self.outcome.counts["branches left"] = len(branches)

    def _main(self, repository: Repository) -> None:
        history = [info for info in repository.ancestry(branch="main") if "value" in info.metadata]
        values = [info.metadata["value"] for info in history]
        if len(set(values)) != len(values) or not set(values) <= self.tried.keys():
            self.problem("the history of main holds what nobody has written, or something twice")
        ids = {info.id for info in history}
        for note in self.done:
            if note["branch"] == "main" and note["clock"] - _SLACK > self.cut and note["snapshot"] not in ids:
                self.problem(f"commit {note['snapshot']} of {note['done']} was acknowledged and is not there")
        found = self._readable(repository, "main", branch="main")
        if found is not None:
            self._newest(found, "main")
            self._counters(found)
        sampled = sorted(self.chance.sample(range(len(history)), min(_SAMPLED, len(history))))
        self._in_order(repository, [history[index] for index in sampled])
        counts = self.outcome.counts
        counts["tried"], counts["acknowledged"], counts["in the history"] = len(self.tried), len(self.done), len(ids)

    def _side(self, repository: Repository, branch: str, there: bool) -> None:
        """Check a branch that one actor has made: it is there unless it could expire, and holds what was committed."""
        if branch in self.moved:
            return
        notes = [note for note in self.done if note["branch"] == branch]
        if not there:
            if notes[-1]["clock"] - _SLACK > self.cut:
                self.problem(f"branch {branch} is gone, with the acknowledged commit {notes[-1]['snapshot']}")
            return
        ids = {info.id for info in repository.ancestry(branch=branch)}
        for note in notes:
            if note["clock"] - _SLACK > self.cut and note["snapshot"] not in ids:
                self.problem(f"commit {note['snapshot']} of {branch} was acknowledged and is not there")
        found = self._readable(repository, branch, branch=branch)
        if found is not None:
            self._newest(found, branch)

    def _newest(self, found: dict[str, Any], branch: str) -> None:
        """Check that the newest snapshot of a branch has every acknowledged value, or a later one."""
        newest = self.place.newest_values(branch)
        wrong = {row: int(found["rows"][row]) for row, value in newest.items() if found["rows"][row] < value}
        if wrong:
            self.problem(f"acknowledged values are lost on {branch}: {wrong}")
        logged = {note["done"] for note in self.done if note["branch"] == branch and note["log"]}
        lost = logged - set(found["log"].tolist())
        if lost:
            self.problem(f"acknowledged lines of the log are lost on {branch}: {sorted(lost)}")

    def _counters(self, found: dict[str, Any]) -> None:
        """Check that no increment is lost, and that no two were taken from the same base."""
        seen: Counter[tuple[int, int]] = Counter()
        for note in self.done:
            if note["branch"] == "main" and note["counter"]:
                seen[note["counter"][0], note["counter"][1]] += 1
        if twice := [counter for counter, times in seen.items() if times > 1]:
            self.problem(f"two acknowledged commits made the same step of a counter: {twice}")
        for number, value in seen:
            if found["counters"][number] < value:
                self.problem(f"counter {number} is {found['counters'][number]}, and {value} was acknowledged")

    # -- values

    def _in_order(self, repository: Repository, history: list[Any]) -> None:
        """Read snapshots of one history, newest first: each holds what its writer says, and nothing goes back."""
        later: dict[str, Any] | None = None
        for info in history:
            found = self._readable(repository, f"snapshot {info.id}", snapshot_id=info.id)
            if found is None:
                continue
            self.outcome.counts["snapshots read"] += 1
            self._holds(found, info)
            if later is not None and any((found[name] > later[name]).any() for name in ("rows", "big", "counters")):
                self.problem(f"snapshot {info.id} is older than what was read before, and holds newer values")
            later = found

    def _holds(self, found: dict[str, Any], info: Any) -> None:
        what = info.metadata
        value = what["value"]
        holds = all(found["rows"][row] == value for row in what["rows"])
        holds &= not what["log"] or value in found["log"].tolist()
        holds &= not what["big"] or value in found["big"].tolist()
        holds &= what["counter"] is None or found["counters"][what["counter"][0]] == what["counter"][1]
        if not holds:
            self.problem(f"snapshot {info.id} does not hold what its writer says")

    def _readable(self, repository: Repository, what: str, **where: Any) -> dict[str, Any] | None:
        """Read a snapshot, and check that it holds whole commits of somebody, and nothing else."""
        try:
            found = values_at(repository.readonly_session(**where))
        except (ArrayStoreError, AssertionError) as error:
            self.problem(f"{what} cannot be read: {error!r}")
            return None
        if (found["rows"] != found["tiny"]).any():
            self.problem(f"{what} holds halves of commits: {np.flatnonzero(found['rows'] != found['tiny'])}")
        for value in np.unique(found["rows"]).tolist():
            if value != -1 and not self._whole(found, value):
                self.problem(f"{what} holds {value}, which nobody has written so, or only a part of it")
        lines = found["log"].tolist()
        meant = {line for line in lines if self.tried.get(line, {}).get("log")}
        if len(set(lines)) != len(lines) or meant != set(lines):
            self.problem(f"{what} has lines in its log that nobody has written, or that are there twice")
        return found

    def _whole(self, found: dict[str, Any], value: int) -> bool:
        note = self.tried.get(value)
        if note is None or not set(np.flatnonzero(found["rows"] == value).tolist()) <= set(note["rows"]):
            return False
        return bool((found["rows"][note["rows"]] >= value).all()) and (not note["log"] or value in found["log"])

    # -- what is left

    def collected(self, clock: Clock) -> None:
        """Collect everything that may go by the clock; it must succeed, and leave nothing to those that follow."""
        moment = clock.now()
        for number, full in enumerate((True, False, True)):
            try:
                with _at(clock):
                    repository = self.open()
                    before = _keys(repository)
                    repository.garbage_collect(moment, full=full, record_grace=timedelta(0), nobody_writes=True)
                    gone = sorted(before - _keys(repository))
            except ArrayStoreError as error:
                self.problem(f"the last collection fails by a clock {clock.ahead:+.0f} s off: {error!r}")
                return
            if number and gone:
                self.problem(f"collection {number + 1} of one moment deletes what the first has left: {gone[:5]}")

    def verified(self) -> None:
        """Verify every chunk, and that nothing is there but what a snapshot that is kept, or a log, still names."""
        repository = self.open()
        report = repository.verify(level="chunks")
        for finding in report.errors:
            self.problem(f"verify: {finding}")
        # A page of history, written by a process that was stopped meanwhile, may name a checkpoint that is gone.
        self.outcome.counts["warnings of verify"] += len(report.findings) - len(report.errors)
        verification, named = run(_traced(repository))
        self.outcome.counts["objects in the end"] = sum(len(shelf) for shelf in verification.inventory.shelves.values())
        for prefix, shelf in verification.inventory.shelves.items():
            for identifier in {each.ljust(ID_BYTES, b"\0") for each in shelf.ids[~shelf.reached].tolist()} - named:
                self.problem(
                    f"after the last collection {prefix}{id_to_text(identifier)} is there, and nothing needs it"
                )
        left = [info.key for info in verification.left_behind] + [info.key for info in verification.inventory.strays]
        if left:
            self.problem(f"after the last collection {left} are there, and nothing needs them")


def _opens(repository: Repository, branch: str) -> bool:
    """Tell whether a branch that is listed can be opened: its own log may have ended before the list knows of it."""
    try:
        repository.lookup_branch(branch)
    except RefNotFoundError:
        return False
    return True


def _keys(repository: Repository) -> set[str]:
    """Return all keys but those that each collection makes anew."""

    async def listed() -> list[str]:
        return [info.key async for page in repository.storage.list("") for info in page]

    return {key for key in run(listed()) if not key.startswith("collections/") and "/repository/" not in key}


async def _origins(storage: Storage, table: RepositoryTable, lives: list[BranchLife]) -> set[bytes]:
    """Return the checkpoints that histories lead through from one log to another."""
    origins = [tag.origin for tag in table.tags.values()] + [life.origin for life in lives]
    found: set[bytes] = set()
    while origins:
        origin = origins.pop()
        if origin is not None and origin.checkpoint not in found:
            found.add(origin.checkpoint)
            with suppress(ObjectNotFoundError):  # of a deleted branch, which needs it no more
                origins.append((await load_checkpoint(storage, origin.checkpoint)).life.origin)
    return found


async def _traced(repository: Repository) -> tuple[Verification, set[bytes]]:
    """Return what a verification has reached, and ids that logs name besides: every twelve bytes that may be one.

    Where logs begin, also those of deleted branches; where readers of histories begin; and what records say that no
    snapshot shows by itself.
    """
    storage = repository.storage
    verification = Verification(storage, context_of(repository).repository, current_environment())
    await verification.run()
    scope = scope_of(repository.context)
    table = await scope.repository_log.table()
    tips = await scope.tips(table)
    bodies = [*await _origins(storage, table, [tip.state.life for tip in tips.values()])]
    for name, tip in tips.items():
        life, log = tip.state.life, scope.log(name)
        origin = None if life.origin is None else life.origin.checkpoint
        bodies += [each for each in (life.base, origin) if each is not None]
        if life.base is not None:
            bodies.append(bytes(await storage.get(checkpoint_key(life.base))))
        keys = [info.key for page in [p async for p in storage.list(log.prefix)] for info in page]
        numbers = [int(key[-12:]) for key in keys if "-" not in key.rpartition("/")[2]]  # intents are no records
        bodies += [(await log.read(number)).body for number in numbers]
    for prefix in ("hints/", "history/"):
        bodies += [bytes(await storage.get(info.key)) async for page in storage.list(prefix) for info in page]
    shelves = verification.inventory.shelves.values()
    there = {each.ljust(ID_BYTES, b"\0") for shelf in shelves for each in shelf.ids[~shelf.reached].tolist()}
    opened = [(open_envelope(body) or (0, body))[1] for body in bodies]
    return verification, {each for each in there if any(each in body for body in opened)}


@contextmanager
def _at(clock: Clock) -> Iterator[None]:
    """Open repositories by a clock."""
    token = ENVIRONMENT.set(clock.environment())
    try:
        yield
    finally:
        ENVIRONMENT.reset(token)


def check_all(place: Place, seed: int, told: Callable[[str], None]) -> Outcome:
    """Check what is there, collect garbage by today's clock and by one above all others, and check again."""
    outcome = Outcome([note["what"] for note in place.notes("problem")])
    for note in place.notes("count"):
        outcome.counts[note["what"]] += 1
        for what in ("objects", "records", "snapshots"):
            outcome.counts[f"{what} deleted or expired"] += note.get(what, 0)
    check = _Check(place, outcome, random.Random(seed))
    steps: list[tuple[str, Callable[[], None]]] = [
        ("histories as they are", check.histories),
        ("collection by today's clock", lambda: check.collected(Clock())),
        ("collection by the latest clock", lambda: check.collected(Clock(2 * DAY))),
        ("histories after it", check.histories),
        ("every chunk", check.verified),
    ]
    for name, step in steps:
        told(f"checking: {name}")
        try:
            step()
        except ArrayStoreError as error:
            check.problem(f"{name}: {error!r}")
    return outcome
