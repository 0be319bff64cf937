"""What was appended into a chunk that both wrote is neither lost nor padded, whichever side a solver chooses."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictType,
    InvalidInputError,
    RebaseFailedError,
    Repository,
    Session,
    Solution,
    VersionSelection,
    in_memory_storage,
)
from arraystore._commit.edge_chunks import only_chunk, open_in_memory
from tests.commit.rivals import Outrun
from tests.commit.sides import OURS, THEIRS, By
from tests.tiers import mostly_thorough

CHOICES = pytest.mark.parametrize("choice", [OURS, THEIRS], ids=["ours", "theirs"])
FILL = -1
LENGTH = 7
KINDS: dict[str, dict[str, Any]] = {
    "compressed": {"chunks": (4,)},
    "sharded": {"chunks": (2,), "shards": (4,)},
    "zarr 2": {"chunks": (4,), "zarr_format": 2},
}


def repository(length: int = LENGTH, **options: Any) -> Repository:
    """Return a repository with an array of numbers whose end lies within a chunk."""
    repo = Repository.create(in_memory_storage())
    options = {"chunks": (4,), "dtype": "i4", "fill_value": FILL} | options
    names = {} if options.get("zarr_format") == 2 else {"dimension_names": ["x"]}
    with repo.transaction("main", message="create") as store:
        zarr.create_array(store, name="a", shape=(length,), **names, **options)[:] = np.arange(length)
    return repo


def opened(session: Session) -> Any:
    return zarr.open_array(session.store, path="a")


def write(session: Session, first: int, *values: int) -> None:
    opened(session)[first : first + len(values)] = np.array(values)


def grow(session: Session, *values: int) -> None:
    array = opened(session)
    start = array.shape[0]
    array.resize((start + len(values),))
    array[start:] = np.array(values)


def append(session: Session, *values: int) -> None:
    session.append({"a": np.array(values, dtype="i4")}, "x")


def latest(repo: Repository) -> list[int]:
    return [int(value) for value in opened(Repository.open(repo.storage).readonly_session("main"))[:]]


def race(repo: Repository, ours: Callable[[Session], None], theirs: Callable[[Session], None]) -> Session:
    session = repo.writable_session("main")
    ours(session)
    other = repo.writable_session("main")
    theirs(other)
    other.commit("theirs")
    return session


@pytest.mark.parametrize("kind", ["compressed", "sharded", "zarr 2"])
@pytest.mark.parametrize("grows", [grow, append], ids=["resize", "append"])
@CHOICES
def test_what_ours_appended_stays_and_the_old_part_is_of_the_side_chosen(
    choice: VersionSelection, grows: Callable[..., None], kind: str
) -> None:
    if kind == "zarr 2" and grows is append:
        grows = grow  # without names of dimensions
    repo = repository(**KINDS[kind])

    def ours(session: Session) -> None:
        write(session, 6, 60)
        grows(session, 107, 108, 109)

    session = race(repo, ours, lambda session: write(session, 4, 44, 45))
    session.commit("ours", rebase_with=BasicConflictSolver(on_chunk_conflict=choice))
    old = [4, 5, 60] if choice is OURS else [44, 45, 6]
    assert latest(repo) == [0, 1, 2, 3, *old, 107, 108, 109]


@pytest.mark.parametrize("kind", ["compressed", "sharded", "zarr 2"])
@CHOICES
def test_what_theirs_appended_stays_and_the_old_part_is_of_the_side_chosen(choice: VersionSelection, kind: str) -> None:
    repo = repository(**KINDS[kind])

    def theirs(session: Session) -> None:
        write(session, 6, 60)
        grow(session, 107, 108, 109)

    session = race(repo, lambda session: write(session, 4, 44, 45), theirs)
    session.commit("ours", rebase_with=BasicConflictSolver(on_chunk_conflict=choice))
    old = [44, 45, 6] if choice is OURS else [4, 5, 60]
    assert latest(repo) == [0, 1, 2, 3, *old, 107, 108, 109]


@CHOICES
def test_a_chunk_that_one_deleted_is_the_fill_value_in_its_old_part_only(choice: VersionSelection) -> None:
    repo = repository()
    session = race(repo, lambda session: session.store.delete_sync("a/c/1"), lambda session: grow(session, 107, 108))
    session.commit("ours", rebase_with=BasicConflictSolver(on_chunk_conflict=choice))
    old = [FILL] * 3 if choice is OURS else [4, 5, 6]
    assert latest(repo) == [0, 1, 2, 3, *old, 107, 108]


@CHOICES
def test_a_chunk_that_neither_side_has_is_not_made(choice: VersionSelection) -> None:
    repo = repository()

    def ours(session: Session) -> None:
        opened(session).resize((4,))
        opened(session).resize((8,))

    session = race(repo, ours, lambda session: session.store.delete_sync("a/c/1"))
    session.commit("ours", rebase_with=BasicConflictSolver(on_chunk_conflict=choice))
    fresh = Repository.open(repo.storage).readonly_session("main")
    assert latest(repo) == [0, 1, 2, 3, *[FILL] * 4]
    assert fresh.store.get_sync("a/c/1") is None


@CHOICES
def test_what_ours_cut_off_for_a_while_takes_nothing_from_what_theirs_appended(choice: VersionSelection) -> None:
    repo = repository()

    def ours(session: Session) -> None:
        opened(session).resize((2,))
        opened(session).resize((LENGTH,))

    session = race(repo, ours, lambda session: grow(session, 107, 108, 109))
    session.commit("ours", rebase_with=BasicConflictSolver(on_chunk_conflict=choice))
    found = latest(repo)
    assert found[LENGTH:] == [107, 108, 109]
    assert found[4:LENGTH] == ([FILL] * 3 if choice is OURS else [4, 5, 6])


@pytest.mark.parametrize("grower", ["ours", "theirs"])
@CHOICES
def test_each_of_several_races_takes_the_old_part_of_the_side_chosen(choice: VersionSelection, grower: str) -> None:
    inner = repository().storage
    rivals = iter(range(1, 4))

    def rival(number: int) -> None:
        other = Repository.open(inner).writable_session("main")
        write(other, 4, 10 * number)
        if grower == "theirs":
            grow(other, 100 * number)
        other.commit("theirs")

    async def outrun() -> None:
        number = next(rivals, None)
        if number is not None:
            await asyncio.to_thread(rival, number)

    session = Repository.open(Outrun(inner, outrun)).writable_session("main")
    write(session, 5, 55)
    if grower == "ours":
        grow(session, 107, 108)
    session.commit("ours", rebase_with=BasicConflictSolver(on_chunk_conflict=choice))
    old = [4, 55, 6] if choice is OURS else [30, 5, 6]
    new = [107, 108] if grower == "ours" else [100, 200, 300]
    assert latest(Repository.open(inner)) == [0, 1, 2, 3, *old, *new]
    assert next(rivals, None) is None


def test_without_a_choice_the_edge_is_a_conflict_and_nothing_is_committed() -> None:
    repo = repository()
    session = race(repo, lambda session: grow(session, 107, 108), lambda session: write(session, 4, 44))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=ConflictDetector())
    (conflict,) = caught.value.conflicts
    assert conflict.conflict_type is ConflictType.ChunkDoubleUpdate
    assert latest(repo) == [0, 1, 2, 3, 44, 5, 6]


@pytest.mark.parametrize("grower", ["ours", "theirs"])
def test_values_that_a_solver_merges_reach_to_the_end_that_the_array_will_have(grower: str) -> None:
    repo = repository()
    steps = [lambda session: grow(session, 107, 108), lambda session: write(session, 4, 44)]
    ours, theirs = steps if grower == "ours" else steps[::-1]
    short = By(lambda *_: Solution(chunks={(1,): np.array([44, 5, 6], dtype="i4")}))
    with pytest.raises(InvalidInputError, match=r"shape \(4,\), not \(3,\)"):
        race(repo, ours, theirs).commit("ours", rebase_with=short)
    repo = repository()
    whole = By(lambda *_: Solution(chunks={(1,): np.array([44, 5, 6, 107], dtype="i4")}))
    race(repo, ours, theirs).commit("ours", rebase_with=whole)
    assert latest(repo) == [0, 1, 2, 3, 44, 5, 6, 107, 108]


def test_a_chunk_that_cannot_be_merged_is_a_conflict_that_says_so() -> None:
    repo = repository(compressors=None)

    def theirs(session: Session) -> None:
        session.hierarchy.set_sync("a/c/1", memoryview(b"not four numbers"[:7]))

    session = race(repo, lambda session: grow(session, 107, 108), theirs)
    with pytest.raises(RebaseFailedError, match="cannot be merged") as caught:
        session.commit("ours", rebase_with=BasicConflictSolver(on_chunk_conflict=THEIRS))
    assert [c.conflicted_chunks.tolist() for c in caught.value.conflicts] == [[[1]]]  # type: ignore[union-attr]
    assert session.has_uncommitted_changes


# -- against a model of items --------------------------------------------------------------------------------------


@dataclass
class Side:
    """What a session sees of an array, item by item, and the chunks that it has touched."""

    values: np.ndarray
    touched: set[tuple[int, ...]] = field(default_factory=set)

    def copy(self) -> Side:
        return Side(self.values.copy())

    def cells(self, chunk: tuple[int, ...]) -> list[tuple[int, ...]]:
        return list(np.ndindex(*(-(-n // side) for n, side in zip(self.values.shape, chunk, strict=True))))


def box(cell: tuple[int, ...], chunk: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(c * side, (c + 1) * side) for c, side in zip(cell, chunk, strict=True))


def put(side: Side, array: Any, chunk: tuple[int, ...], where: tuple[slice, ...], value: np.ndarray) -> None:
    array[where] = value
    side.values[where] = value
    spans = [range(part.start // n, (part.stop - 1) // n + 1) for part, n in zip(where, chunk, strict=True)]
    side.touched |= set(itertools.product(*spans))


def change(rng: random.Random, side: Side, session: Session, chunk: tuple[int, ...], *, grows: bool) -> None:
    """Write some boxes, erase a chunk perhaps, and grow along one dimension or not at all."""
    array, fresh = opened(session), itertools.count(rng.randrange(1, 1 << 29))
    if grows:
        axis = rng.randrange(len(chunk))
        longer = [n + (rng.randint(1, 5) if i == axis else 0) for i, n in enumerate(side.values.shape)]
        array.resize(tuple(longer))
        values = np.full(longer, FILL, "i4")
        values[tuple(map(slice, side.values.shape))] = side.values
        side.values = values
    for _ in range(rng.randint(1, 3)):
        low = [rng.randrange(n) for n in side.values.shape]
        where = tuple(slice(a, rng.randint(a + 1, n)) for a, n in zip(low, side.values.shape, strict=True))
        shape = side.values[where].shape
        values = np.array([next(fresh) for _ in range(int(np.prod(shape)))], dtype="i4").reshape(shape)
        put(side, array, chunk, where, values)
    if rng.random() < 0.2:
        cell = rng.choice(side.cells(chunk))
        session.store.delete_sync("a/c/" + "/".join(map(str, cell)))
        side.values[box(cell, chunk)] = FILL
        side.touched.add(cell)


def merged(ours: Side, theirs: Side, chunk: tuple[int, ...], choice: VersionSelection) -> Side:
    """Return what must be there: chunk by chunk, and item by item where one side does not know all of a chunk."""
    shape = tuple(map(max, ours.values.shape, theirs.values.shape))
    result = Side(np.full(shape, FILL, "i4"), set(ours.touched))
    known = [np.zeros(shape, bool), np.zeros(shape, bool)]
    parts = []
    for side, mask in zip((ours, theirs), known, strict=True):
        mask[tuple(map(slice, side.values.shape))] = True
        padded = np.full(shape, FILL, "i4")
        padded[tuple(map(slice, side.values.shape))] = side.values
        parts.append(padded)
    for cell in result.cells(chunk):
        at = box(cell, chunk)
        both = cell in ours.touched and cell in theirs.touched
        first = (0 if choice is OURS else 1) if both else 0 if cell in ours.touched else 1
        second = 1 - first
        result.values[at] = parts[first][at]
        if both:
            rest = known[second][at] & ~known[first][at]
            result.values[at][rest] = parts[second][at][rest]
            if first == 1 and not rest.any():
                result.touched.discard(cell)
    return result


def check_random_race(seed: int) -> None:
    rng = random.Random(seed)
    chunk = rng.choice([(4,), (3,), (4, 3), (2, 5)])
    shape = tuple(rng.randint(1, 9) for _ in chunk)
    repo = Repository.create(in_memory_storage())
    base = Side(np.arange(int(np.prod(shape)), dtype="i4").reshape(shape))
    with repo.transaction("main", message="create") as store:
        zarr.create_array(store, name="a", shape=shape, chunks=chunk, dtype="i4", fill_value=FILL)[...] = base.values
    choice = rng.choice([OURS, THEIRS])
    solver = BasicConflictSolver(on_chunk_conflict=choice)
    session, ours = repo.writable_session("main"), base.copy()
    grower = rng.choice(["ours", "theirs", "nobody"])
    change(rng, ours, session, chunk, grows=grower == "ours")
    tip = base
    for _ in range(rng.randint(1, 3)):
        other, theirs = repo.writable_session("main"), tip.copy()
        change(rng, theirs, other, chunk, grows=grower == "theirs")
        other.commit("theirs")
        tip = Side(theirs.values, theirs.touched | tip.touched)
        if rng.random() < 0.5:
            session.rebase(solver)
            ours, tip = merged(ours, tip, chunk, choice), Side(tip.values)
            np.testing.assert_array_equal(opened(session)[...], ours.values)
            if rng.random() < 0.5:
                change(rng, ours, session, chunk, grows=False)
    session.commit("ours", rebase_with=solver, allow_empty=True)
    found = opened(Repository.open(repo.storage).readonly_session("main"))[...]
    np.testing.assert_array_equal(found, merged(ours, tip, chunk, choice).values)


@pytest.mark.parametrize("start", mostly_thorough(range(0, 60, 10), every=3))
def test_random_races_leave_what_a_model_of_items_says(start: int) -> None:
    for seed in range(start, start + 10):
        check_random_race(seed)


def test_arrays_in_memory_change_no_setting_that_threads_share() -> None:
    """With zarr's configuration two threads left `write_empty_chunks` set for the whole process, now and then."""
    store: dict[str, Any] = {}
    zarr.create_array(zarr.storage.MemoryStore(store), shape=4, chunks=4, dtype="i4", compressors=None)
    documents = {"zarr.json": store["zarr.json"].to_bytes()}
    with ThreadPoolExecutor(8) as pool:
        arrays = list(pool.map(lambda _: open_in_memory(documents, {}), range(400)))
    assert zarr.config.get("array.write_empty_chunks") is False
    kept: dict[str, Any] = {}
    open_in_memory(documents, kept)[:] = 0
    assert only_chunk(documents, kept) == bytes(16)
    assert len(arrays) == 400
