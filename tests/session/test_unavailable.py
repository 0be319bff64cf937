"""A pickle is always opened; a session whose storage cannot be read there fails when it is used."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zarr

from arraystore import ForkSession, Repository, Session, StorageError, in_memory_storage, local_filesystem_storage
from arraystore._session import pickling
from arraystore._session.unavailable import UnavailableSession
from arraystore.errors import RepositoryGoneError

REMEDY = "memory of another process.*use local_filesystem_storage"


@pytest.fixture
def session() -> Session:
    repo = Repository.create(in_memory_storage())
    with repo.transaction("main", message="begun") as store:
        zarr.create_array(store, name="a", shape=(4,), chunks=(2,), dtype="i4")[:] = 1
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+")[0] = 2
    return session


def unpickle_elsewhere(sent: bytes) -> Any:
    """Unpickle as another process does."""
    pid = os.getpid() + 1
    with (
        mock.patch.object(os, "getpid", return_value=pid),
        mock.patch.object(pickling, "_live", {}),
        mock.patch.object(pickling, "_states", {}),
    ):
        return pickle.loads(sent)


def repository_of(session: Session) -> Repository:
    return Repository.open(session.context.storage)


SENT: dict[str, tuple[Callable[[Session], Any], Callable[[Any], object]]] = {
    "session": (lambda session: session, lambda each: each.read("a")),
    "read-only session": (lambda session: repository_of(session).readonly_session("main"), lambda each: each.read("a")),
    "fork": (lambda session: session.fork(), lambda each: each.changes()),
    "store": (lambda session: session.store, lambda each: zarr.open_array(each, path="a", mode="r")),
    "store of a fork": (lambda session: session.fork().store, lambda each: zarr.open_group(each, mode="r")),
    "array": (lambda session: zarr.open_array(session.store, path="a"), lambda each: each[0]),
    "array to write": (lambda session: zarr.open_array(session.store, path="a"), lambda each: each.__setitem__(0, 1)),
    "repository": (repository_of, lambda each: each.readonly_session("main")),
}


@pytest.mark.parametrize("kind", SENT)
def test_what_is_pickled_of_memory_is_unpickled_elsewhere_and_names_the_remedy_when_it_is_used(
    session: Session, kind: str
) -> None:
    send, use = SENT[kind]
    arrived = unpickle_elsewhere(pickle.dumps(send(session)))
    repr(arrived)
    for _ in range(2):
        with pytest.raises(StorageError, match=REMEDY):
            use(arrived)


@pytest.mark.filterwarnings("ignore::arraystore.UnmergedForksWarning")
def test_a_session_that_comes_home_is_what_it_was(session: Session) -> None:
    home = pickle.loads(pickle.dumps(unpickle_elsewhere(pickle.dumps(session))))
    assert home is session
    fork = pickle.loads(pickle.dumps(unpickle_elsewhere(pickle.dumps(session.fork()))))
    assert isinstance(fork, ForkSession)
    np.testing.assert_array_equal(fork.read("a"), [2, 1, 1, 1])
    once = session.fork()
    assert pickle.loads(pickle.dumps(unpickle_elsewhere(pickle.dumps(once.store)))).session is once
    reader = repository_of(session).readonly_session("main")
    again = pickle.loads(pickle.dumps(unpickle_elsewhere(pickle.dumps(reader))))
    assert again == reader


def test_an_unavailable_session_looks_like_none_of_private_names(session: Session) -> None:
    arrived = unpickle_elsewhere(pickle.dumps(session))
    assert isinstance(arrived, UnavailableSession)
    assert not hasattr(arrived, "_repr_html_")
    assert "memory of another process" in repr(arrived)


def test_a_session_of_a_repository_that_is_gone_fails_when_it_is_used(tmp_path: Path) -> None:
    storage = local_filesystem_storage(tmp_path / "repo", fsync=False)
    sent = pickle.dumps(Repository.create(storage).readonly_session("main"))
    for key in sorted((tmp_path / "repo").rglob("*"), reverse=True):
        key.unlink() if key.is_file() else key.rmdir()
    arrived = unpickle_elsewhere(sent)
    with pytest.raises(RepositoryGoneError):
        arrived.read("a")
