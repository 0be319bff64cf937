"""Sessions that are pickled, spawned, forked and used from inside event loops."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu, default_buffer_prototype

from arraystore import InvalidInputError, MergeConflictError, Repository, Session
from tests.packs import pack_keys
from tests.session import workers
from tests.session.conftest import FarMemory
from tests.storage.workers import call_in_process, call_in_processes
from tests.tiers import mostly_thorough

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

METHODS = ["spawn", "fork"]
QUICK_FIRST = mostly_thorough(["fork", "spawn"])

COMMITTED = np.arange(100) + 1


@pytest.fixture
def repo(local_repo: Repository) -> Repository:
    """An array of 100 values, ten a chunk, committed."""
    session = local_repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(100,), chunks=(10,), dtype="i8", compressors=None)[:] = COMMITTED
    session.commit("a hundred")
    return local_repo


def changed(repo: Repository) -> tuple[Session, Any]:
    """A session with changes of every kind, and what the array then holds."""
    session, expected = repo.writable_session("main"), COMMITTED.copy()
    array = zarr.open_array(session.store, path="a", mode="r+")
    array[5:25] = expected[5:25] = -1
    array.resize((45,))
    array.resize((110,))
    expected = np.concatenate([expected[:45], expected[45:50], np.zeros(60, dtype="i8")])
    array[70:90] = expected[70:90] = 9
    array.store_path.store.delete_sync("a/c/3")  # type: ignore[attr-defined]
    expected[30:40] = 0
    return session, expected


@pytest.mark.parametrize("method", METHODS)
def test_what_only_reads_travels_to_other_processes(repo: Repository, method: str) -> None:
    session = repo.readonly_session("main")
    readers: list[tuple[Callable[..., Any], Any]] = [
        (workers.read_store, session.store),
        (workers.read_session, session),
        (workers.read_repository, repo),
        (workers.read_again_pickled, session),
    ]
    for reader, thing in readers:
        np.testing.assert_array_equal(call_in_process(method, reader, thing), COMMITTED)


def test_a_read_only_session_that_was_pickled_is_equal_and_reads_the_same(repo: Repository) -> None:
    session = repo.readonly_session("main")
    copy = pickle.loads(pickle.dumps(session))
    assert copy == session
    assert copy.store == session.store
    assert hash(copy) == hash(session)
    assert pickle.loads(pickle.dumps(repo)) == repo
    writer = repo.writable_session("main")
    zarr.open_array(writer.store, path="a")[:] = 0
    writer.commit("zeros")
    np.testing.assert_array_equal(workers.read_session(copy), COMMITTED)


def test_a_writable_session_pickled_in_its_own_process_stays_the_same_session(repo: Repository) -> None:
    session, _ = changed(repo)
    store = pickle.loads(pickle.dumps(session.store))
    assert store.session is session
    zarr.open_array(store, path="a", mode="r+")[:] = 3
    session.commit("through the copy")
    np.testing.assert_array_equal(workers.read_repository(repo), 3)


def test_a_writable_session_of_a_memory_storage_is_pickled_in_its_own_process(session: Session) -> None:
    session.store.set_sync("x", cpu.Buffer.from_bytes(b"x" * 600))
    copy = pickle.loads(pickle.dumps(session))
    copy.store.set_sync("y", cpu.Buffer.from_bytes(b"y"))
    assert copy is session


@pytest.mark.parametrize("method", QUICK_FIRST)
def test_elsewhere_a_writable_session_is_a_copy_to_read(repo: Repository, method: str) -> None:
    session, expected = changed(repo)
    np.testing.assert_array_equal(workers.read_session(session), expected)
    data = pickle.dumps(session)
    for reader in (workers.read_session, workers.read_again_pickled):
        found = call_in_process(method, _unpickled, data, reader)
        np.testing.assert_array_equal(found, expected)
    read_only, refusals = call_in_process(method, _unpickled, data, workers.refusal)
    assert read_only or method == "fork"
    assert all("fork()" in text for text in refusals), refusals
    assert all(text.startswith(("SessionStateError", "ReadOnlyError")) for text in refusals)


def _unpickled(data: bytes, function: Callable[[Session], Any]) -> Any:
    return function(pickle.loads(data))


@pytest.mark.parametrize("method", QUICK_FIRST)
def test_a_copy_shows_what_was_written_before_it_was_pickled(repo: Repository, method: str) -> None:
    """A process that is older than the writes must not show its own idea of the session."""
    session = repo.writable_session("main")
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        pool.apply(len, ([],))
        zarr.open_array(session.store, path="a", mode="r+")[:] = 5
        found = pool.apply(workers.read_session, (session,))
    np.testing.assert_array_equal(found, 5)


@pytest.mark.thorough
def test_a_copy_with_uncommitted_changes_is_not_equal_to_a_session_without(repo: Repository) -> None:
    session, _ = changed(repo)
    data = pickle.dumps(session)
    assert call_in_process("spawn", _equal, data, data) is True
    assert call_in_process("spawn", _equal, data, pickle.dumps(repo.readonly_session("main"))) is False


def _equal(first: bytes, second: bytes) -> bool:
    return bool(pickle.loads(first) == pickle.loads(second))


def test_a_forked_child_reads_a_writable_session_but_does_not_write(repo: Repository) -> None:
    session, expected = changed(repo)
    np.testing.assert_array_equal(call_in_process("fork", lambda: workers.read_session(session)), expected)
    _, refusals = call_in_process("fork", lambda: workers.refusal(session))
    assert all("fork()" in text for text in refusals), refusals
    zarr.open_array(session.store, path="a", mode="r+")[0] = 77
    session.commit("the parent goes on")
    assert workers.read_repository(repo)[0] == 77


def test_a_forked_child_does_not_hang_on_what_threads_of_its_parent_held(repo: Repository) -> None:
    session, expected = changed(repo)
    assert session._changes is not None
    packs = session._changes.packs
    reader = session.hierarchy.reader
    with packs._lock, reader.blocks._lock, reader.manifests._lock, session._lock:
        held = threading.Thread(target=session._changes.lock.acquire)
        held.start()
        held.join()
        found = call_in_process("fork", lambda: workers.read_session(session))
    np.testing.assert_array_equal(found, expected)


def test_a_forked_child_fetches_what_its_parent_was_fetching() -> None:
    """Blocks that are on their way belong to a thread or a loop that the child does not have."""
    storage = FarMemory()
    repo = Repository.create(storage)
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(4000,), chunks=(1000,), dtype="i8", compressors=None)
    array[:] = np.arange(4000)
    session.commit("numbers")
    session = repo.readonly_session("main")
    assert session.store.get_sync("a/c/9") is None
    pack = pack_keys(storage)[0]
    session.hierarchy.reader.blocks._plan(pack, 0, 8000, 32000, in_thread=True)
    found = call_in_process("fork", lambda: workers.read_session(session))
    np.testing.assert_array_equal(found, np.arange(4000))


# -- forks of sessions ----------------------------------------------------------------------------------------


def commit_parts(session: Session, payloads: list[Any]) -> None:
    session.merge(*payloads)
    session.commit("merged")


@pytest.mark.parametrize("method", QUICK_FIRST)
def test_forks_write_in_other_processes(repo: Repository, method: str) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+").resize((200,))  # uncommitted, travels along
    parts = [(session.fork(), start, start + 50) for start in range(0, 200, 50)]
    commit_parts(session, call_in_processes(method, workers.write_part, parts))
    np.testing.assert_array_equal(workers.read_repository(repo), np.arange(200) + 1)


@pytest.mark.parametrize("method", QUICK_FIRST)
def test_one_fork_serves_a_pool(repo: Repository, method: str) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+").resize((200,))
    fork = session.fork()
    with multiprocessing.get_context(method).Pool(2) as pool:
        parts = [(fork, start, start + 20) for start in range(0, 200, 20)]
        payloads = pool.starmap(workers.write_part, parts, chunksize=1)  # tasks sent together share what they unpickle
    commit_parts(session, payloads)
    np.testing.assert_array_equal(workers.read_repository(repo), np.arange(200) + 1)


def test_forks_write_in_threads(repo: Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+").resize((200,))
    forks = [session.fork() for _ in range(10)]
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda n: workers.write_part(forks[n], 20 * n, 20 * n + 20), range(10)))
    commit_parts(session, forks)
    np.testing.assert_array_equal(workers.read_repository(repo), np.arange(200) + 1)


@pytest.mark.thorough
def test_forks_create_arrays_in_other_processes(repo: Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_group(session.store, mode="a")
    payloads = call_in_processes("spawn", workers.make_group, [(session.fork(), name) for name in ("x", "y")])
    commit_parts(session, payloads)
    for name in ("x", "y"):
        np.testing.assert_array_equal(workers.read_repository(repo, f"{name}/b"), 7)


def test_forks_that_wrote_the_same_chunk_are_refused_and_nothing_is_merged(repo: Repository) -> None:
    session = repo.writable_session("main")
    payloads = [workers.write_part(session.fork(), 0, 30), workers.write_part(session.fork(), 25, 60)]
    with pytest.raises(MergeConflictError) as caught:
        session.merge(*payloads)
    assert caught.value.path == "a"
    assert caught.value.chunks == ((2,),)
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("method", QUICK_FIRST)
def test_a_fork_shows_the_uncommitted_state_of_its_session(repo: Repository, method: str) -> None:
    session, expected = changed(repo)
    np.testing.assert_array_equal(call_in_process(method, workers.read_session, session.fork()), expected)


def test_what_is_no_fork_is_not_merged(repo: Repository) -> None:
    session = repo.writable_session("main")
    for thing in ("a text", 5, [["deep"]], {"x": 1}):
        with pytest.raises(InvalidInputError, match="neither a fork"):
            session.merge(thing)  # type: ignore[arg-type]


def test_forks_stay_small_however_large_the_session_is(local_repo: Repository) -> None:
    session = local_repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(20_000,), chunks=(1,), dtype="i8", compressors=None)
    zarr.open_array(session.store, path="a")[:5000] = 1
    session.commit("many chunks")
    assert len(pickle.dumps(local_repo.writable_session("main").fork())) < 2000


# -- event loops ----------------------------------------------------------------------------------------------


def test_the_synchronous_interface_works_inside_a_running_loop(repo: Repository) -> None:
    async def notebook() -> None:
        session = repo.writable_session("main")
        zarr.open_array(session.store, path="a", mode="r+")[:10] = 0
        fork = session.fork()
        session.merge(workers.write_part(fork, 90, 100))
        pickle.loads(pickle.dumps(session))
        session.commit("from a loop")
        assert next(iter(repo.ancestry(branch="main"))).message == "from a loop"

    asyncio.run(notebook())
    assert workers.read_repository(repo)[:10].tolist() == [0] * 10


def test_the_asynchronous_interface_works_in_any_loop(repo: Repository) -> None:
    async def program() -> None:
        session = await repo.writable_session_async("main")
        store = session.store
        await store.set("a/c/0", cpu.Buffer.from_bytes(np.zeros(10, dtype="i8").tobytes()))
        fork = await session.fork_async()
        zarr.open_array(fork.store, path="a", mode="r+")[90:] = 1
        await session.merge_async(await fork.changes_async())
        await session.commit_async("asynchronous")
        found = await (await repo.readonly_session_async("main")).store.get("a/c/9", default_buffer_prototype())
        assert found is not None
        assert np.frombuffer(found.to_bytes(), dtype="i8").tolist() == [1] * 10

    for _ in range(2):
        asyncio.run(program())
