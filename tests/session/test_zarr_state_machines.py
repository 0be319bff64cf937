"""zarr's own stateful tests, as they come, and once more with commits in between."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis.stateful import invariant, rule, run_state_machine_as_test
from zarr.testing.stateful import SyncStoreWrapper, ZarrHierarchyStateMachine, ZarrStoreStateMachine

from arraystore import Repository
from arraystore.storage import ObstoreStorage, Storage

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore:.*Zarr V3 specification.*"),
    pytest.mark.timeout(600),
]


class HierarchyWithCommits(ZarrHierarchyStateMachine):
    """Now and then commits, and goes on in a new session."""

    def __init__(self, repo: Repository) -> None:
        self.repo = repo
        super().__init__(repo.writable_session("main").store)

    @rule()
    def commit(self) -> None:
        self.store.session.commit("step", allow_empty=True)
        self.store = self.repo.writable_session("main").store


class StoreWithCommits(ZarrStoreStateMachine):
    """Now and then commits, and goes on in a new session."""

    def __init__(self, repo: Repository) -> None:
        self.repo = repo
        super().__init__(repo.writable_session("main").store)

    @rule()
    def commit(self) -> None:
        self.store.store.session.commit("step", allow_empty=True)
        self.store = SyncStoreWrapper(self.repo.writable_session("main").store)

    @invariant()
    def sizes_are_those_of_the_model(self) -> None:
        for key, value in self.model.items():
            assert self.store._sync(self.store.store.getsize(key)) == len(value)


def examine(machine: Any, storage: Storage, long_run: bool) -> None:
    """Run a machine; in a default run S3 gets fewer examples, since each step is many requests."""
    settings = hypothesis.settings(
        suppress_health_check=list(hypothesis.HealthCheck),
        max_examples=200 if long_run else 4 if isinstance(storage, ObstoreStorage) else 8,
        stateful_step_count=40,
        deadline=None,
    )
    run_state_machine_as_test(machine, settings=settings)


def test_hierarchies_behave_as_in_memory(storage: Storage, long_run: bool) -> None:
    store = Repository.create(storage).writable_session("main").store
    examine(lambda: ZarrHierarchyStateMachine(store), storage, long_run)


def test_hierarchies_behave_as_in_memory_across_commits(storage: Storage, long_run: bool) -> None:
    repo = Repository.create(storage)
    examine(lambda: HierarchyWithCommits(repo), storage, long_run)


def test_keys_and_values_behave_as_in_a_dictionary(storage: Storage, long_run: bool) -> None:
    store = Repository.create(storage).writable_session("main").store
    examine(lambda: ZarrStoreStateMachine(store), storage, long_run)


def test_keys_and_values_behave_as_in_a_dictionary_across_commits(storage: Storage, long_run: bool) -> None:
    repo = Repository.create(storage)
    examine(lambda: StoreWithCommits(repo), storage, long_run)
