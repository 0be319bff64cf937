"""Random writes, appends, resizes and metadata of the same few arrays, and solvers that answer anything.

Whatever is committed can be read and verified, and nothing but a conflict is raised.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import ConflictDetector, RebaseFailedError, Repository, RepositoryConfig, Session, in_memory_storage
from arraystore.errors import ArrayStoreError
from tests.commit.random_steps import Anything, search
from tests.commit.rivals import latest
from tests.tiers import mostly_thorough

PATHS = ("a", "b", "g/c")
SHAPE, CHUNKS = (8, 4), (2, 2)
PROGRAMS = 30
Step = tuple[str, str, Any]


def create(store: Any, path: str, shape: tuple[int, int]) -> zarr.Array[Any]:
    return zarr.create_array(
        store,
        name=path,
        shape=shape,
        chunks=CHUNKS,
        dtype="i4",
        fill_value=-1,
        dimension_names=("t", "x"),
        overwrite=True,
    )


def draw(rng: random.Random) -> Step:
    """Choose a step; it may be an impossible one."""
    row, column, value = rng.randrange(8), rng.randrange(4), rng.randrange(1000)
    choices: dict[str, Any] = {
        "write": (slice(row, min(8, row + rng.randint(1, 4))), slice(column, min(4, column + 3)), value),
        "append": (rng.choice([1, 2, 4]), value),
        "resize": (rng.choice([2, 3, 4, 6, 9, 10, 12]), rng.choice([4, 4, 2, 6])),
        "attribute": (rng.choice("uv"), value),
        "create": rng.choice([(8, 4), (6, 4), (4, 2)]),
        "move": rng.choice(["d", "g/e", *PATHS]),
        "delete": None,
        "erase": f"c/{row // 2}/{column // 2}",
    }
    kind = rng.choice([*choices, "write", "write", "append", "resize"])
    return kind, rng.choice(PATHS), choices[kind]


def do(session: Session, step: Step) -> None:
    kind, path, value = step
    if kind == "create":
        create(session.store, path, value)
    elif kind == "move":
        session.move(path, value)
    elif kind == "delete":
        del zarr.open_group(session.store)[path]
    elif kind == "erase":
        session.store.delete_sync(f"{path}/{value}")
    else:
        _change(session, zarr.open_array(session.store, path=path, mode="r+"), kind, path, value)


def _change(session: Session, array: zarr.Array[Any], kind: str, path: str, value: Any) -> None:
    if kind == "write":
        array[value[0], value[1]] = value[2]
    elif kind == "append":
        session.append({path: np.full((value[0], array.shape[1]), value[1], "i4")}, "t")
    elif kind == "resize":
        array.resize(value)
    else:
        array.attrs[value[0]] = value[1]


def play(rng: random.Random, session: Session, most: int) -> list[Step]:
    """Do some steps, and return those that were possible."""
    done = []
    for _ in range(rng.randint(1, most)):
        step = draw(rng)
        with contextlib.suppress(ArrayStoreError, ValueError, KeyError, FileNotFoundError):
            do(session, step)
            done.append(step)
    return done


def arrays_of(session: Session) -> dict[str, Any]:
    """Return shapes, attributes and values of all arrays."""
    found = zarr.open_group(session.store, mode="r").members(max_depth=None)
    return {p: (n.shape, dict(n.attrs), np.asarray(n[...]).tolist()) for p, n in found if isinstance(n, zarr.Array)}


def meet(rng: random.Random) -> str:
    """Let two writers change arrays, and tell what came of the second one."""
    storage = in_memory_storage()
    repository = Repository.create(storage, RepositoryConfig(inline_chunk_threshold_bytes=rng.choice([0, 512])))
    with repository.transaction("main", message="arrays") as store:
        zarr.create_group(store, path="g")
        for value, path in enumerate(PATHS):
            create(store, path, SHAPE)[:6] = value
    ours, theirs = repository.writable_session("main"), repository.writable_session("main")
    mine, others = play(rng, ours, 4), play(rng, theirs, 3)
    theirs.commit("theirs", allow_empty=True)
    seen, later = arrays_of(latest(storage)), repository.writable_session("main")
    try:
        ours.commit("ours", rebase_with=ConflictDetector(), allow_empty=True)
    except RebaseFailedError:
        assert arrays_of(latest(storage)) == seen
    else:
        if {kind for kind, _, _ in others} <= {"write", "attribute"}:
            for step in mine:
                do(later, step)
            assert arrays_of(latest(storage)) == arrays_of(later)
        return "rebased"
    try:
        ours.commit("ours", rebase_with=Anything(rng), allow_empty=True)
    except RebaseFailedError:
        assert arrays_of(latest(storage)) == seen
        return "refused"
    arrays_of(latest(storage))
    assert Repository.open(storage).verify(level="chunks").ok
    return "solved"


@pytest.mark.parametrize("first", mostly_thorough([number * PROGRAMS for number in range(20)]))
def test_whatever_two_writers_do_to_arrays_and_a_solver_answers_they_can_be_read(first: int, long_run: bool) -> None:
    search(meet, range(first, first + PROGRAMS * (20 if long_run else 1)))
