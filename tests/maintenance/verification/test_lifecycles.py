"""Whatever is done to a repository, nothing is found to be wrong, and nothing is left that a collection can take."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import zarr

from arraystore import Repository, in_memory_storage
from arraystore._format.ids import ID_CHARS
from arraystore._log.loading import INITIAL_MESSAGE
from arraystore.errors import ArrayStoreError
from tests.commit.support import objects
from tests.keys import history_of
from tests.maintenance.verification.support import SMALL, commit_all, create_arrays, damage, empty, missing, verified


def _now() -> datetime:
    return datetime.now(UTC)


class History:
    """Does things to a repository, at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.repository = Repository.create(in_memory_storage(), SMALL)
        session = self.repository.writable_session("main")
        create_arrays(session)
        session.commit("create")
        self.names = 0

    @property
    def branch(self) -> str:
        return self.random.choice(sorted(self.repository.list_branches()))

    @property
    def snapshot(self) -> str:
        infos = [info for info in self.repository.ancestry(branch=self.branch) if info.message != INITIAL_MESSAGE]
        return self.random.choice(infos).id

    def name(self) -> str:
        self.names += 1
        return f"name {self.names}"

    def commit(self) -> None:
        branch = self.branch
        for _ in range(self.random.randrange(1, 12)):
            commit_all(self.repository, self.random.randrange(100), branch)

    def many(self) -> None:
        branch = self.branch
        for number in range(70):
            session = self.repository.writable_session(branch)
            zarr.open_array(session.store, path="tiny", mode="r+")[number % 64] = self.random.randrange(1000)
            session.commit(f"tiny {number}")

    def amend(self) -> None:
        session = self.repository.writable_session(self.branch)
        zarr.open_array(session.store, path="packed", mode="r+")[self.random.randrange(64)] = 7
        session.amend("amended")

    def flush(self) -> None:
        session = self.repository.writable_session(self.branch)
        zarr.open_array(session.store, path="packed", mode="r+")[self.random.randrange(64)] = 8
        self.repository.create_tag(self.name(), session.flush("on no branch"))

    def attributes(self) -> None:
        session = self.repository.writable_session(self.branch)
        zarr.open_group(session.store, mode="r+").attrs["text"] = "x" * self.random.randrange(40_000)
        session.commit("attributes")

    def move(self) -> None:
        session = self.repository.writable_session(self.branch)
        session.move("/below", "/moved")
        session.move("/moved", "/below")
        zarr.open_group(session.store, mode="r+").create_group(self.name())
        session.commit("moved")

    def tag(self) -> None:
        self.repository.create_tag(self.name(), self.snapshot)

    def untag(self) -> None:
        for tag in sorted(self.repository.list_tags())[:1]:
            self.repository.delete_tag(tag)

    def fork(self) -> None:
        self.repository.create_branch(self.name(), self.snapshot)

    def reset(self) -> None:
        self.repository.reset_branch(self.branch, self.snapshot)

    def delete(self) -> None:
        branch = self.branch
        if branch != "main":
            self.repository.delete_branch(branch)

    def expire(self) -> None:
        self.repository.expire_snapshots(_now(), keep_last=self.random.randrange(1, 6))

    def collect(self) -> None:
        self.repository.garbage_collect(_now(), full=self.random.random() < 0.5)

    def compact(self) -> None:
        self.repository.compact(branch=self.branch, min_live=0.9)

    def step(self) -> str:
        do: Callable[[], None] = self.random.choice(
            [self.commit, self.commit, self.many, self.amend, self.flush, self.attributes, self.move, self.tag,
             self.untag, self.fork, self.reset, self.delete, self.expire, self.expire, self.collect, self.collect,
             self.compact]
        )  # fmt: skip
        try:
            do()
        except ArrayStoreError as error:  # a move of what is not there any more, for instance
            return f"{do.__name__}: {error}"
        return do.__name__


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_wrong_after_whatever_was_done(seed: int) -> None:
    history = History(seed)
    done: list[str] = []
    for _ in range(14):
        done.append(history.step())
        history.repository.wait_for_maintenance()
        report = verified(history.repository)
        assert report.findings == (), done
    assert verified(history.repository, "chunks").findings == (), done


@pytest.mark.parametrize("seed", range(4))
def test_a_full_collection_leaves_nothing_that_verification_does_not_reach(seed: int) -> None:
    history = History(seed + 100)
    done = [history.step() for _ in range(10)]
    history.repository.wait_for_maintenance()
    history.repository.expire_snapshots(_now(), keep_last=2)
    history.repository.garbage_collect(_now(), full=True)
    leaks = verified(history.repository).leaks
    assert {kind: leak.objects for kind, leak in leaks.items() if leak.objects} == {}, done


def test_damage_is_found_after_expiry_and_collection() -> None:
    history = History(3)
    for _ in range(20):
        history.commit()
    history.repository.create_tag("old", history.snapshot)
    history.repository.wait_for_maintenance()
    history.repository.expire_snapshots(_now(), keep_last=3)
    history.repository.garbage_collect(_now(), full=True)
    storage = history.repository.storage
    assert verified(history.repository).findings == ()
    for prefix in ("chunks/", "manifests/", "snapshots/", history_of(storage) + "kept/"):
        for info in objects(storage, prefix)[::7]:
            data = bytes(storage.get_sync(info.key))
            for how in (missing, empty):
                damage(storage, info.key, how)
                report = verified(history.repository)
                text = info.key[-ID_CHARS:]  # of a checkpoint that is gone, the hint that names it is told
                assert any(text in finding.key + finding.problem for finding in report.findings), (info.key, how)
                storage.put_sync(info.key, data)
    assert verified(history.repository).findings == ()


def test_what_a_branch_began_with_before_it_was_reset_may_be_collected() -> None:
    history = History(0)
    repository = history.repository
    repository.create_branch("side", repository.lookup_branch("main"))
    for _ in range(2):
        commit_all(repository, 1, "side")
    commit_all(repository, 2)
    repository.reset_branch("side", repository.lookup_branch("main"))
    for _ in range(2):
        Repository.open(repository.storage).garbage_collect(_now(), full=True)
    assert verified(repository, "chunks").findings == ()
