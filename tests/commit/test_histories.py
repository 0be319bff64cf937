"""Random histories by several processes' worth of repositories, against a model: every snapshot is what it was."""

from __future__ import annotations

import random

import pytest
import zarr

from arraystore import ConflictError, Repository, Storage, in_memory_storage
from arraystore._maintenance.fold import fold
from arraystore._session.session import Session
from tests.commit.support import (
    DistantStorage,
    commits_in,
    create_repository,
    delete,
    number,
    put_number,
    rewrites_in,
    run_alone,
    tip_of,
)
from tests.seams import context_of

ROWS = 24
Model = dict[int, int]


def _visible(session: Session) -> Model:
    found = {row: number(session, row) for row in range(ROWS)}
    return {row: value for row, value in found.items() if value is not None}


class _Run:
    """Some repositories on one storage, and what each snapshot of it has to show."""

    def __init__(self, storage: Storage, seed: int) -> None:
        self.storage = storage
        self.random = random.Random(seed)
        create_repository(storage)
        session = Repository.open(storage).writable_session("main")
        zarr.open_array(session.store, path="a").resize((ROWS,))
        self.snapshots: dict[str, Model] = {session.commit("shrink"): {}}
        self.newest = session.snapshot_id
        self.repositories = [Repository.open(storage) for _ in range(3)]
        self.values = 0

    def change(self) -> None:
        session = self.random.choice(self.repositories).writable_session("main")
        assert session.snapshot_id == self.newest
        model = dict(self.snapshots[self.newest])
        for _ in range(self.random.randint(1, 3)):
            self._change_something(session, model)
        assert _visible(session) == model
        if self.random.random() < 0.2:
            self._fold()
        if self.random.random() < 0.1:
            self._lose_to_another(session)
            return
        self.newest = session.commit("random", allow_empty=True)
        self.snapshots[self.newest] = model
        assert _visible(session) == model

    def _change_something(self, session: Session, model: Model) -> None:
        kind = self.random.choice(["write", "write", "write", "delete", "resize"])
        array = zarr.open_array(session.store, path="a")
        row = self.random.randrange(ROWS)
        if kind == "resize":
            size = self.random.randint(1, ROWS)
            array.resize((size,))
            for gone in [row for row in model if row >= size]:
                del model[gone]
        elif row < array.shape[0]:
            if kind == "write":
                self.values += 1
                put_number(session, row, self.values)
                model[row] = self.values
            else:
                session.store.delete_sync(f"a/c/{row}")
                model.pop(row, None)

    def _lose_to_another(self, loser: Session) -> None:
        winner = self.random.choice(self.repositories).writable_session("main")
        put_number(winner, 0, 1_000_000)
        self.newest_model = {**self.snapshots[self.newest], 0: 1_000_000}
        self.newest = winner.commit("first")
        self.snapshots[self.newest] = self.newest_model
        with pytest.raises(ConflictError):
            loser.commit("second", allow_empty=True)

    def _fold(self) -> None:
        repository = self.random.choice(self.repositories)
        run_alone(fold(context_of(repository).log("main"), tip_of(repository), context_of(repository).reader))

    def check(self) -> None:
        reader = Repository.open(self.storage)
        history = [info.id for info in reader.ancestry(branch="main")][:-2]
        assert history == list(self.snapshots)[::-1]
        for snapshot, model in self.snapshots.items():
            assert _visible(reader.readonly_session(snapshot_id=snapshot)) == model


@pytest.mark.parametrize("seed", range(4))
def test_every_snapshot_of_a_random_history_reads_as_it_was_written(seed: int, long_run: bool) -> None:
    inner = in_memory_storage()
    run = _Run(DistantStorage(inner) if seed % 2 else inner, seed)
    for step in range(1000 if long_run else 100):
        run.change()
        if step % 50 == 49:
            run.repositories[step % 3] = Repository.open(run.storage)
        if step % 70 == 69:
            delete(inner, run.random.choice(["hints/", "history/", "snapshots/"]))
    for repository in run.repositories:
        repository.wait_for_maintenance()
    assert rewrites_in(inner)
    assert len(commits_in(inner)) == len(run.snapshots) + 1
    run.check()
