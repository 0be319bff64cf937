"""Sessions with forks, merges, rebases, amends and flushes, at random, against numpy arrays."""

from __future__ import annotations

import itertools
import pickle
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import (
    ArrayStoreError,
    BasicConflictSolver,
    ConflictDetector,
    ConflictError,
    ForkSession,
    MergeConflictError,
    RebaseFailedError,
    Repository,
    Session,
    SessionStateError,
    VersionSelection,
    in_memory_storage,
)

FILL = -1
CHUNK = 4
SOLVERS = {
    "detector": ConflictDetector(),
    "ours": BasicConflictSolver(on_chunk_conflict=VersionSelection.UseOurs),
    "theirs": BasicConflictSolver(on_chunk_conflict=VersionSelection.UseTheirs),
}


@dataclass
class Seen:
    """What a session or fork sees, and when it touched which chunk last."""

    values: np.ndarray
    touched: dict[int, int] = field(default_factory=dict)
    grown: bool = False
    taken: int = 0
    rebased: int = 0

    def chunk(self, number: int) -> slice:
        return slice(number * CHUNK, (number + 1) * CHUNK)


@dataclass
class World:
    """A repository, a session, its forks, and the model of each."""

    rng: random.Random
    repo: Repository
    committed: np.ndarray
    base: np.ndarray
    theirs: set[int] = field(default_factory=set)
    moved: bool = False
    session: Session = None  # type: ignore[assignment]
    mine: Seen = None  # type: ignore[assignment]
    forks: list[tuple[ForkSession, Seen]] = field(default_factory=list)
    clock: int = 0
    fresh: Any = field(default_factory=lambda: itertools.count(1000))

    def begin(self) -> None:
        self.session = self.repo.writable_session("main")
        self.base, self.mine = self.committed.copy(), Seen(self.committed.copy())
        self.theirs, self.moved, self.forks = set(), False, []

    def tick(self) -> int:
        self.clock += 1
        return self.clock


def opened(session: Session) -> Any:
    return zarr.open_array(session.store, path="a")


def write(world: World, session: Session, seen: Seen, *, grows: bool) -> None:
    array = opened(session)
    if grows:
        more = world.rng.randint(1, 5)
        array.resize((len(seen.values) + more,))
        seen.values = np.concatenate([seen.values, np.full(more, FILL, "i4")])
        seen.grown = True
    low = world.rng.randrange(len(seen.values))
    high = min(len(seen.values), low + world.rng.randint(1, 6))
    values = np.array([next(world.fresh) for _ in range(high - low)], "i4")
    array[low:high] = values
    seen.values[low:high] = values
    at = world.tick()
    seen.touched |= dict.fromkeys(range(low // CHUNK, (high - 1) // CHUNK + 1), at)


def check(world: World) -> None:
    """Look at everything with fresh eyes."""
    np.testing.assert_array_equal(opened(world.session)[:], world.mine.values)
    for fork, seen in world.forks:
        np.testing.assert_array_equal(opened(fork)[:], seen.values)
    reader = Repository.open(world.repo.storage).readonly_session("main")
    np.testing.assert_array_equal(opened(reader)[:], world.committed)


def overlaid(first: np.ndarray, second: np.ndarray, chunks: Any) -> np.ndarray:
    """Return an array with some chunks of another one, as far as that one reaches."""
    length = max(len(first), len(second))
    found = np.concatenate([first, np.full(length - len(first), FILL, "i4")])
    for number in chunks:
        part = second[number * CHUNK : (number + 1) * CHUNK]
        found[number * CHUNK : number * CHUNK + len(part)] = part
    return found


# -- what a world may do -------------------------------------------------------------------------------------------


def writes(world: World) -> None:
    write(world, world.session, world.mine, grows=world.rng.random() < 0.3)


def rival(world: World) -> None:
    other = world.repo.writable_session("main")
    seen = Seen(world.committed.copy())
    write(world, other, seen, grows=world.rng.random() < 0.3 and not world.mine.grown)
    if world.rng.random() < 0.3 and world.repo.lookup_snapshot(world.repo.lookup_branch("main")).parent_id:
        other.amend("amended by a rival")
    else:
        other.commit("a rival's")
    world.committed = seen.values
    world.theirs |= set(seen.touched)
    world.moved = True


def forks(world: World) -> None:
    fork = world.session.fork()
    if world.rng.random() < 0.4:
        fork = pickle.loads(pickle.dumps(fork))
    world.forks.append((fork, Seen(world.mine.values.copy(), taken=world.tick(), rebased=world.mine.rebased)))


def writes_to_a_fork(world: World) -> None:
    if world.forks:
        fork, seen = world.rng.choice(world.forks)
        write(world, fork, seen, grows=world.rng.random() < 0.15)


def sends_a_fork(world: World) -> None:
    if world.forks:
        at = world.rng.randrange(len(world.forks))
        fork, seen = world.forks[at]
        world.forks[at] = pickle.loads(pickle.dumps(fork)), seen


def merges_a_fork_of_a_fork(world: World) -> None:
    if world.forks:
        fork, seen = world.rng.choice(world.forks)
        second = fork.fork()
        if world.rng.random() < 0.5:
            second = pickle.loads(pickle.dumps(second))
        write(world, second, seen, grows=False)
        fork.merge(pickle.loads(pickle.dumps(second)) if world.rng.random() < 0.5 else second)


def asks_a_fork_for_too_much(world: World) -> None:
    if world.forks:
        fork, _ = world.rng.choice(world.forks)
        act = world.rng.choice(
            [
                lambda: fork.amend("no"),
                lambda: fork.flush("no"),
                lambda: fork.commit("no"),
                lambda: fork.rebase(ConflictDetector()),
            ]
        )
        with pytest.raises(SessionStateError):
            act()


def merges(world: World) -> None:
    some = world.rng.sample(world.forks, world.rng.randint(0, len(world.forks)))
    if not some:
        return
    last = world.rng.random() < 0.5
    result, touched = world.mine.values, dict(world.mine.touched)
    grown, own = world.mine.grown, dict(world.mine.touched)
    collides = any(seen.rebased != world.mine.rebased for _, seen in some)
    unclear, first = False, len(world.mine.values)
    for _, seen in some:
        late = [n for n in seen.touched if own.get(n, 0) > seen.taken]
        collides |= bool(late) and not last
        unclear |= bool(late) or seen.grown  # metadata may collide as well; then it is an error, and nothing changes
        result = overlaid(result, seen.values, seen.touched)
        own |= dict.fromkeys(seen.touched, world.clock + 1)
        grown |= seen.grown
    assert first <= len(result)
    try:
        world.session.merge([fork for fork, _ in some], on_overlap="last" if last else "error")
    except MergeConflictError:
        assert collides or unclear
    else:
        assert not collides
        at = world.tick()
        for _, seen in some:
            touched |= dict.fromkeys(seen.touched, at)
        world.mine.values, world.mine.touched, world.mine.grown = result, touched, grown
    world.forks = [each for each in world.forks if all(each is not other for other in some)]


def put_together(world: World, solver: str) -> np.ndarray | None:
    """Return what the session is on top of what is committed; None where nobody may decide."""
    ours, theirs = world.mine.values, world.committed
    both = set(world.mine.touched) & world.theirs
    if solver == "detector" and both:
        return None
    found = overlaid(theirs, ours, set(world.mine.touched) - both)
    if len(ours) > len(world.base):
        found = overlaid(found, ours, set())
    for number in both:
        chosen, other = (ours, theirs) if solver == "ours" else (theirs, ours)
        found = overlaid(overlaid(found, other, [number]), chosen, [number])
    return found


def rebases(world: World) -> None:
    solver = world.rng.choice(list(SOLVERS))
    expected = put_together(world, solver)
    both = set(world.mine.touched) & world.theirs
    grew = len(world.mine.values) > len(world.base), len(world.committed) > len(world.base)
    try:
        world.session.rebase(SOLVERS[solver])
    except RebaseFailedError:
        assert (expected is None) or all(grew)
        return
    assert expected is not None
    dropped = {n for n in both if solver == "theirs" and not _is_edge(world, n)}
    world.mine.touched = {n: at for n, at in world.mine.touched.items() if n not in dropped}
    world.mine.values, world.base = expected, world.committed.copy()
    world.mine.rebased += world.moved
    world.mine.grown = len(expected) > len(world.base)
    world.theirs, world.moved = set(), False


def _is_edge(world: World, number: int) -> bool:
    """Tell whether theirs knows only a part of a chunk that ours has let the array grow into."""
    return len(world.committed) < min((number + 1) * CHUNK, len(world.mine.values))


def commits(world: World) -> None:
    solver = world.rng.choice([None, *SOLVERS])
    expected = put_together(world, solver or "detector")
    grew = len(world.mine.values) > len(world.base), len(world.committed) > len(world.base)
    try:
        world.session.commit("the session's", rebase_with=None if solver is None else SOLVERS[solver], allow_empty=True)
    except RebaseFailedError:
        assert expected is None or all(grew)
        return
    except ConflictError:
        assert solver is None
        assert world.moved
        return
    assert expected is not None
    world.committed = expected
    world.begin()


def amends(world: World) -> None:
    try:
        world.session.amend("amended", allow_empty=True)
    except ConflictError:
        assert world.moved
        return
    assert not world.moved
    world.committed = world.mine.values
    world.begin()


def flushes(world: World) -> None:
    if world.session.has_uncommitted_changes:
        snapshot = world.session.flush("aside")
        np.testing.assert_array_equal(opened(world.repo.readonly_session(snapshot_id=snapshot))[:], world.mine.values)
        world.begin()


ACTS = {writes: 6, rival: 4, forks: 4, writes_to_a_fork: 6, sends_a_fork: 2,
    merges_a_fork_of_a_fork: 2, asks_a_fork_for_too_much: 2, merges: 4, rebases: 3,
        commits: 2, amends: 1, flushes: 1}  # fmt: skip


def play(seed: int, steps: int = 25) -> None:
    rng = random.Random(seed)
    length = rng.randint(3, 18)
    repo = Repository.create(in_memory_storage())
    values = np.arange(length, dtype="i4")
    with repo.transaction("main", message="create") as store:
        zarr.create_array(store, name="a", shape=(length,), chunks=(CHUNK,), dtype="i4", fill_value=FILL)[:] = values
    world = World(rng, repo, values, values)
    world.begin()
    for step in range(steps):
        (act,) = rng.choices(list(ACTS), list(ACTS.values()))
        try:
            act(world)
            check(world)
        except (AssertionError, ArrayStoreError) as error:
            raise AssertionError(f"seed {seed}, step {step}: {act.__name__}: {error}") from error


@pytest.mark.filterwarnings("ignore::arraystore.UnmergedForksWarning")
@pytest.mark.parametrize("start", range(0, 40, 10))
def test_random_sessions_do_what_numpy_does(start: int, long_run: bool) -> None:
    for seed in range(start, start + (10 if long_run else 5)):
        play(seed)
