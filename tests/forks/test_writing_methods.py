"""No public method of a fork, or of a session that only reads, changes a repository: all of them are called.

Methods are found by introspection and their arguments made from the names of their parameters, so that a method that is
new is called too, or fails here until it can be.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype

import arraystore as ars
from arraystore._session import pickling
from arraystore._session.fork import SESSION_ONLY
from arraystore._session.store import ArrayStore
from arraystore.errors import ReadOnlyError, SessionStateError
from tests.commit.support import objects
from tests.forks.support import chunked, fill

ARGUMENTS: dict[str, Any] = {
    "array_path": "a",
    "backward": lambda chunk: chunk,
    "chunk_grid_origin": (0,),
    "chunk_offset": (1,),
    "chunks": [ars.VirtualChunkSpec((0,), "memory://elsewhere/a", 0, 8)],
    "data": {"a": np.ones(1000, "u1")},
    "dim": "x",
    "fork": None,
    "forks": b"",
    "forward": lambda chunk: (chunk[0] + 1,),
    "from_path": "a",
    "key": "a/c/1",
    "length": 8,
    "location": "memory://elsewhere/a",
    "message": "from a fork",
    "offset": 0,
    "path": "a",
    "prefix": "",
    "refusal": "no",
    "requests": [("a", 3)],
    "selection": slice(0, 5),
    "solver": ars.ConflictDetector(),
    "to_path": "b",
    "write data": 7,
}
"""Values for parameters that have no default, by name, or by method and name."""

WRITTEN_BEFORE_A_COMMIT = ("chunks/", "manifests/")
"""What a fork may write: nothing refers to it before its session is committed."""


def public_methods(cls: type) -> list[str]:
    """Return the public methods that this package gives a class, properties left out."""
    names = {
        name
        for base in cls.__mro__
        if base.__module__.startswith("arraystore.")
        for name, value in vars(base).items()
        if not name.startswith("_") and callable(value)
    }
    return sorted(names)


def public_names(cls: type) -> set[str]:
    """Return the public methods and properties that this package gives a class."""
    own = (vars(base) for base in cls.__mro__ if base.__module__.startswith("arraystore."))
    return {name for names in own for name in names if not name.startswith("_")}


FORK_METHODS = public_methods(ars.ForkSession)
SESSION_METHODS = public_methods(ars.Session)
STORE_METHODS = public_methods(ArrayStore)

COMMITTING = {name + twin for name in ("commit", "amend", "flush", "rebase", "merge") for twin in ("", "_async")}
"""What commits to a branch, or goes into what is committed: a fork only merges what goes into itself."""


def call(found: Any, name: str) -> Any:
    """Call a method with arguments of the names of its parameters, and carry through whatever it returns."""
    method = getattr(found, name)
    needed = [
        parameter
        for parameter in inspect.signature(method).parameters.values()
        if parameter.name != "self" and parameter.default is parameter.empty
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    arguments = [_argument(name, parameter.name) for parameter in needed]
    return carry_through(method(*arguments))


def _argument(method: str, name: str) -> Any:
    of_method = f"{method.removesuffix('_async')} {name}"
    if of_method not in ARGUMENTS and name not in ARGUMENTS:
        pytest.fail(f"{method}: say in ARGUMENTS what {name!r} may be")
    return ARGUMENTS.get(of_method, ARGUMENTS.get(name))


def call_store(store: ArrayStore, name: str) -> Any:
    method = getattr(store, name)
    values = ARGUMENTS | {
        "byte_range": None, "chunk": ARGUMENTS["chunks"][0], "chunk_grid_shape": (1,), "key_ranges": [("a/c/1", None)],
        "key_start_values": [("a/c/1", 0, b"1")],
        "keys": ["a/c/1"], "lengths": np.array([8]), "locations": ["memory://elsewhere/a"], "new_store": store,
        "offsets": np.array([0]), "other": store, "prototype": default_buffer_prototype(), "read_only": False,
        "start": 0, "value": default_buffer_prototype().buffer.from_bytes(b"1234"), "values": [],
    }  # fmt: skip
    needed = [
        parameter
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    arguments = {
        p.name: values[p.name] if p.name in values else pytest.fail(f"{name}: say what {p.name!r} may be")
        for p in needed
    }
    keywords = {p.name: arguments[p.name] for p in needed if p.kind is p.KEYWORD_ONLY}
    return carry_through(method(*(arguments[p.name] for p in needed if p.kind is not p.KEYWORD_ONLY), **keywords))


def carry_through(result: Any) -> Any:
    if inspect.isawaitable(result):
        return asyncio.run(_awaited(result))
    if inspect.isasyncgen(result):
        return asyncio.run(_listed(result))
    if isinstance(result, AbstractContextManager):
        with result as inner:
            return inner
    return list(result) if isinstance(result, Iterator) else result


async def _awaited(result: Any) -> Any:
    return await result


async def _listed(result: Any) -> list[Any]:
    return [item async for item in result]


def repository() -> ars.Repository:
    repo = ars.Repository.create(ars.in_memory_storage())
    with repo.transaction("main", message="an array") as store:
        chunked(store, "a", 16, dimension_names=["x"])[:8000] = 1
    return repo


def held(repo: ars.Repository, *without: str) -> dict[str, Any]:
    """Return every object of a repository, but those of some prefixes."""
    repo.wait_for_maintenance()
    return {info.key: info for info in objects(repo.storage) if not info.key.startswith(without)}


def changed_fork(repo: ars.Repository, *, travels: bool) -> ars.ForkSession:
    """Return a fork with changes, of a session with uncommitted nodes."""
    session = repo.writable_session("main")
    chunked(session.store, "new", 4)
    fill(session, 0, 5)
    fork = session.fork()
    if travels:
        fork = pickle.loads(pickle.dumps(fork))
    zarr.open_array(fork.store, path="new", mode="r+").attrs["units"] = "K"
    fill(fork, 1, 7)
    ARGUMENTS["fork"] = fork
    return fork


@pytest.mark.parametrize("travels", [False, True], ids=["here", "unpickled"])
@pytest.mark.parametrize("name", FORK_METHODS)
def test_no_method_of_a_fork_writes_what_others_see(name: str, travels: bool) -> None:
    repo = repository()
    fork = changed_fork(repo, travels=travels)
    before = held(repo, *WRITTEN_BEFORE_A_COMMIT)
    with suppress(ars.ArrayStoreError):
        call(fork, name)
    assert held(repo, *WRITTEN_BEFORE_A_COMMIT) == before
    assert set(ars.Repository.open(repo.storage).readonly_session("main").hierarchy.beneath.nodes) >= {"", "a"}


ONLY_IN_SESSIONS = sorted(public_names(ars.Session) - public_names(ars.ForkSession))


@pytest.mark.parametrize("name", ONLY_IN_SESSIONS)
def test_a_fork_says_what_to_do_in_place_of_what_it_lacks(name: str) -> None:
    fork = repository().writable_session("main").fork()
    with pytest.raises(SessionStateError, match="fork") as caught:
        getattr(fork, name)
    assert isinstance(caught.value, AttributeError)
    assert pickle.loads(pickle.dumps(caught.value)).message == caught.value.message
    assert not hasattr(fork, name)
    assert name not in dir(fork)


def test_a_fork_lacks_what_commits_and_nothing_more_is_said_of_names_that_sessions_lack_too() -> None:
    assert set(ONLY_IN_SESSIONS) >= {name for name in COMMITTING if not name.startswith("merge")}
    assert {name.removesuffix("_async") for name in ONLY_IN_SESSIONS} == set(SESSION_ONLY)
    fork = repository().writable_session("main").fork()
    with pytest.raises(AttributeError, match="no attribute 'nonsense'") as caught:
        fork.nonsense  # type: ignore[attr-defined]  # noqa: B018
    assert not isinstance(caught.value, ars.ArrayStoreError)


def readers() -> dict[str, Callable[[ars.Repository], ars.Session]]:
    def committed(repo: ars.Repository) -> ars.Session:
        session = repo.writable_session("main")
        fill(session, 2, 3)
        session.commit("done")
        return session

    def copied(repo: ars.Repository) -> ars.Session:
        session = repo.writable_session("main")
        fill(session, 2, 3)
        sent = pickle.dumps(session)
        with mock.patch.object(pickling, "_live", {}):  # as in another process
            copy: ars.Session = pickle.loads(sent)
        assert copy is not session
        return copy

    return {"read-only": lambda repo: repo.readonly_session("main"), "committed": committed, "a copy": copied}


@pytest.mark.parametrize("kind", readers())
@pytest.mark.parametrize("name", SESSION_METHODS)
def test_no_method_of_a_session_that_only_reads_writes_anything(name: str, kind: str) -> None:
    repo = repository()
    session = readers()[kind](repo)
    ARGUMENTS["fork"] = changed_fork(repo, travels=False)
    before = held(repo)
    if name in COMMITTING or name.startswith(("fork", "append", "move", "shift", "reindex", "discard")):
        with pytest.raises(ReadOnlyError):
            call(session, name)
    else:
        with suppress(ars.ArrayStoreError):
            call(session, name)
    assert held(repo) == before


@pytest.mark.parametrize("kind", readers())
@pytest.mark.parametrize("name", STORE_METHODS)
def test_no_method_of_a_store_that_only_reads_writes_anything(name: str, kind: str) -> None:
    repo = repository()
    store = readers()[kind](repo).store
    before = held(repo)
    with suppress(ars.ArrayStoreError, ValueError, KeyError, NotImplementedError):
        call_store(store, name)
    assert held(repo) == before


def test_a_flush_after_an_amendment_that_was_refused_amends_nothing() -> None:
    repo = repository()
    session = repo.writable_session("main")
    fill(session, 3, 9)
    with repo.transaction("main", message="meanwhile") as store:
        chunked(store, "meanwhile", 1)
    with pytest.raises(ars.ConflictError):
        session.amend("too late")
    snapshot = session.flush("aside")
    found = repo.readonly_session(snapshot_id=snapshot)
    assert repo.lookup_snapshot(snapshot).parent_id == repo.lookup_snapshot(repo.lookup_branch("main")).parent_id
    assert zarr.open_array(found.store, path="a", mode="r")[3000] == 9


def test_the_walk_meets_all_that_write() -> None:
    shared = set(SESSION_METHODS) - set(ONLY_IN_SESSIONS)
    assert set(FORK_METHODS) == shared | {"changes", "changes_async", "parts_async"}
    assert set(SESSION_METHODS) >= COMMITTING
    writing = {"set", "set_sync", "set_if_not_exists", "delete", "delete_sync", "delete_dir", "clear"}
    assert writing | {"set_virtual_ref", "set_virtual_refs", "set_virtual_refs_arr"} <= set(STORE_METHODS)
