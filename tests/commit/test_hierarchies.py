"""Random transactions of several operations: what commits makes a valid hierarchy, with what each one meant."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from zarr.errors import ZarrUserWarning

from arraystore import ConflictDetector, RebaseFailedError
from arraystore._session.session import Session
from arraystore.errors import ArrayStoreError, InvalidInputError
from tests.commit.bench import Bench, check
from tests.commit.expected import expected
from tests.commit.model import Model, raw
from tests.commit.operations import (
    Operation,
    array_operations,
    hierarchy_operations,
    moving,
    written,
)

pytestmark = pytest.mark.filterwarnings(
    f"ignore:Object at .* is not recognized as a component:{ZarrUserWarning.__module__}.{ZarrUserWarning.__name__}",
)

OPERATIONS = [
    *array_operations("g/a"),
    *array_operations("a"),
    *hierarchy_operations(),
    moving("swap away", "move the array `/a` to `/g/b`", "a", "g/b"),
    moving("swap back", "move the array `/g/u` to `/a`", "g/u", "a"),
    moving("hoist", "move the nested group `/g/s` to `/s`", "g/s", "s"),
    moving("sink", "move the group `/g` into the group `/s`", "g", "s/g"),
]
CREATING = {o.name for o in hierarchy_operations()[:9]}
LONG_ENOUGH = {"write": 2, "write2": 4, "new chunk": 8, "shrink": 4, "erase": 1}
OF_GROUPS = {"g attrs": "g", "sub attrs": "g/s"}


@dataclass
class Writer:
    """A session, and a model of what it sees."""

    session: Session
    label: str
    view: Model
    done: list[tuple[Operation, Model]]

    def do(self, operation: Operation) -> bool:
        """Do something where it makes sense after what was done before; tell whether it was done."""
        before, after = self.view.copy(), self.view.copy()
        if not _fits(operation, before):
            return False
        try:
            operation.happens(after, before, self.label)
        except (AssertionError, KeyError, StopIteration):
            return False  # what it is about is gone, or its place is taken
        if not _possible(after) or _token_twice(after):
            return False
        try:
            operation.run(self.session, self.label)
        except InvalidInputError:
            return False  # refused before anything was changed, which the check of what the session shows finds out
        self.view = after
        self.done.append((operation, before))
        return True

    def replay(self, model: Model) -> None:
        """Do to a model what was done, as it was meant."""
        for operation, view in self.done:
            operation.happens(model, view, self.label)


def _fits(operation: Operation, model: Model) -> bool:
    """Tell whether what an operation is about is there, and of its kind."""
    on, of_group = model.things.get(operation.on), model.things.get(OF_GROUPS.get(operation.name, ""))
    if of_group is not None and of_group.kind != "group":
        return False
    if not operation.on:
        return True
    return on is not None and on.kind == "array" and LONG_ENOUGH.get(operation.name, 0) <= on.length


def _possible(model: Model) -> bool:
    """Tell whether every node is below groups only, and under a group if it is below anything."""
    for path, thing in model.things.items():
        above = path.rpartition("/")[0]
        if path and thing.kind != "file" and path != "n/x/y" and above not in model.things:
            return False
        while above:
            if above in model.things and model.things[above].kind != "group":
                return False
            above = above.rpartition("/")[0]
    return True


def _token_twice(model: Model) -> bool:
    tokens = [thing.token for thing in model.things.values()]
    return len(tokens) != len(set(tokens))


def writer(bench: Bench, branch: str, label: str, operations: Sequence[Operation]) -> Writer:
    found = Writer(bench.repository.writable_session(branch), label, bench.base.copy(), [])
    for operation in operations:
        found.do(operation)
    return found


def draw(rng: random.Random) -> list[Operation]:
    # each at most once: done twice, an operation would make a second thing of the same name
    return rng.sample(OPERATIONS, rng.randint(2, 5))


@pytest.mark.parametrize("seed", range(8))
def test_what_commits_is_valid_and_is_theirs_and_then_ours(seed: int, long_run: bool) -> None:
    rng, bench = random.Random(seed), Bench()
    verdicts = {True: 0, False: 0}
    for number in range(40 if long_run else 20):
        branch = f"random-{number}"
        bench.repository.create_branch(branch, bench.snapshot)
        theirs = writer(bench, branch, "theirs", draw(rng))
        ours = writer(bench, branch, "ours", draw(rng)[: rng.randint(1, 5)])
        if not theirs.session.has_uncommitted_changes or not ours.session.has_uncommitted_changes:
            continue
        story = f"{branch}: ours {_names(ours)} after theirs {_names(theirs)}"
        check_told(ours.session, ours.view, story)
        verdicts[commits(bench, ours, theirs, branch, story, by_rebase=rng.random() < 0.5)] += 1
    assert min(verdicts.values()) >= 3, f"the transactions are no test: {verdicts}"


def _names(found: Writer) -> list[str]:
    return [operation.name for operation, _ in found.done]


def check_told(session: Session, model: Model, story: str) -> None:
    try:
        check(session, model)
    except AssertionError as error:
        raise AssertionError(f"{story}: {error}") from None


def commits(bench: Bench, ours: Writer, theirs: Writer, branch: str, story: str, *, by_rebase: bool) -> bool:
    """Commit theirs, then ours, and check what came of it; tell whether ours was committed."""
    theirs.session.commit("theirs")
    result, before = raw(theirs.session), raw(ours.session)
    try:
        if by_rebase:
            ours.session.rebase(ConflictDetector())
        ours.session.commit("ours", rebase_with=ConflictDetector())
    except RebaseFailedError:
        assert raw(bench.fresh(branch)) == result, story
        assert raw(ours.session) == before, story
        check_told(bench.fresh(branch), theirs.view, story)
        return False
    except ArrayStoreError as error:
        raise AssertionError(f"{story}: {error!r}") from error
    model = bench.base.copy()
    theirs.replay(model)
    ours.replay(model)
    check_told(bench.fresh(branch), model, story)
    assert raw(ours.session) == raw(bench.fresh(branch)), story
    return True


@pytest.mark.parametrize("seed", range(4))
def test_three_writers_in_a_row_and_the_last_one_rebases_over_both(seed: int) -> None:
    rng, bench = random.Random(1000 + seed), Bench()
    committed = 0
    for number in range(25):
        branch = f"row-{number}"
        bench.repository.create_branch(branch, bench.snapshot)
        first, second = rng.sample([o for o in OPERATIONS if o.name in CREATING], 2)
        if expected(second.name, first.name):
            continue
        theirs = [writer(bench, branch, "theirs", [first]), writer(bench, branch, "ours", [second])]
        last = writer(bench, branch, "third", [_writing(rng)])
        for each in theirs:
            each.session.commit(each.label, rebase_with=ConflictDetector())
        last.session.commit("third", rebase_with=ConflictDetector())
        model = bench.base.copy()
        for each in [*theirs, last]:
            each.replay(model)
        check_told(bench.fresh(branch), model, f"{branch}: {first.name}, {second.name}")
        committed += 1
    assert committed >= 10


def _writing(rng: random.Random) -> Operation:
    """Return an operation that nothing that is created can collide with."""
    names = {"write", "append", "attrs", "new chunk", "delete"}
    found = rng.choice([o for o in array_operations("g/a") if o.name in names])
    return Operation(
        found.name,
        found.says,
        lambda session, _: found.run(session, "ours"),
        lambda model, view, _: found.happens(model, view, "ours"),
    )


def test_no_two_sessions_write_the_same_value() -> None:
    assert not set(written("ours", 100)) & set(written("theirs", 100))
