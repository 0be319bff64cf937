"""An amendment whose outcome is unknown: asked about again by either call, and never rebased."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import zarr

from arraystore import ConflictDetector, ConflictError, Repository, in_memory_storage
from arraystore._environment import ENVIRONMENT, current_environment
from arraystore._log.branch_log import AppendUncertainError
from arraystore._session.session import Session
from arraystore.errors import SessionStateError, StorageError
from arraystore.storage import Storage
from arraystore.storage.protocol import BytesLike
from arraystore.storage.wrapper import WrapperStorage


class Failing(WrapperStorage):
    """Fails to write records while told to, before or after they take effect."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.fails = False
        self.takes_effect = False

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        if self.fails and key.startswith("refs/"):
            if self.takes_effect:
                await super().put_if_absent(key, data)
            raise StorageError("no answer, on purpose")
        return await super().put_if_absent(key, data)

    async def put_new(self, key: str, data: BytesLike) -> bool:
        return await self.put_if_absent(key, data)


@pytest.fixture(autouse=True)
def without_pauses() -> Iterator[None]:
    async def sleep(_: float) -> None:
        return

    token = ENVIRONMENT.set(replace(current_environment(), sleep=sleep))
    yield
    ENVIRONMENT.reset(token)


def uncertain_amendment(*, takes_effect: bool) -> tuple[Failing, Session]:
    storage = Failing(in_memory_storage())
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    zarr.create_group(session.store)
    session.commit("group")
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="amended", shape=(1,), dtype="i4")
    storage.fails, storage.takes_effect = True, takes_effect
    with pytest.raises(AppendUncertainError):
        session.amend("amendment")
    storage.fails = False
    return storage, session


def commit_another(storage: Storage) -> None:
    session = Repository.open(storage).writable_session("main")
    zarr.create_array(session.store, name="other", shape=(1,), dtype="i4")
    session.commit("other")


def messages(storage: Storage) -> list[str]:
    return [info.message for info in Repository.open(storage).ancestry(branch="main")][:-1]


ASK: list[Callable[[Session], str]] = [
    lambda session: session.amend("amendment"),
    lambda session: session.commit("amendment"),
    lambda session: session.commit("amendment", rebase_with=ConflictDetector()),
]


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("ask", ASK, ids=["amend", "commit", "commit with a solver"])
def test_an_amendment_is_asked_about_by_either_call(ask: Callable[[Session], str], takes_effect: bool) -> None:
    storage, session = uncertain_amendment(takes_effect=takes_effect)
    snapshot = ask(session)
    assert messages(storage) == ["amendment"]
    assert Repository.open(storage).lookup_branch("main") == snapshot


@pytest.mark.parametrize("ask", ASK, ids=["amend", "commit", "commit with a solver"])
def test_an_amendment_that_did_not_arrive_is_not_put_on_top_of_others(ask: Callable[[Session], str]) -> None:
    storage, session = uncertain_amendment(takes_effect=False)
    commit_another(storage)
    with pytest.raises(ConflictError):
        ask(session)
    assert messages(storage) == ["other", "group"]
    commit_another_name(storage)
    assert messages(storage) == ["third", "other", "group"]


def commit_another_name(storage: Storage) -> None:
    session = Repository.open(storage).writable_session("main")
    zarr.create_array(session.store, name="third", shape=(1,), dtype="i4")
    session.commit("third")


def test_a_commit_whose_outcome_is_unknown_is_not_made_an_amendment() -> None:
    storage = Failing(in_memory_storage())
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    zarr.create_group(session.store)
    session.commit("group")
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(1,), dtype="i4")
    storage.fails = True
    with pytest.raises(AppendUncertainError):
        session.commit("commit")
    storage.fails = False
    with pytest.raises(SessionStateError, match="call commit again"):
        session.amend("amendment")
    session.commit("commit")
    assert messages(storage) == ["commit", "group"]
