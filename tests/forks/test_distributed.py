"""Changes of many forks are combined on their way home, and mean the same as if each had come alone."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore._format.references import VIRTUAL
from arraystore._runtime import run
from arraystore.distributed import merge_sessions_async
from arraystore.errors import FormatError, InvalidInputError, MergeConflictError
from tests.forks.support import CHUNK, chunked, counted, fill, values


@pytest.fixture
def repo() -> ars.Repository:
    return counted(ars.in_memory_storage(), 64)[0]


def rich_forks(session: ars.Session, count: int) -> list[ars.ForkSession]:
    """Return forks that changed chunks of two arrays in no order, large, tiny, virtual and deleted ones, and nodes."""
    chunked(session.store, "b", 64)
    zarr.create_array(session.store, name="tiny", shape=(64,), chunks=(1,), dtype="u1", compressors=None)
    forks = [session.fork() for _ in range(count)]
    rng = random.Random(5)
    for number, fork in enumerate(forks):
        mine = list(range(number, 64, count))
        rng.shuffle(mine)
        for chunk in mine:
            fill(fork, chunk, number + 2)
            if rng.random() < 0.5:
                fill(fork, chunk, number + 100, "b")
        zarr.open_array(fork.store, path="tiny", mode="r+")[number] = number + 1
        fork.store.delete_sync(f"a/c/{number}")
        spec = ars.VirtualChunkSpec([number], f"s3://bucket/{number}", 0, CHUNK)
        fork.store.set_virtual_refs("b", [spec], validate_containers=False, checksum=None)
        chunked(fork.store, f"made{number}", 2)[:] = number
    return forks


def locations(session: ars.Session, path: str) -> list[str]:
    """Return the URLs of all virtual chunks of an array that the session has set, in order of the chunks."""
    node = session.hierarchy.node(path)
    assert node is not None
    changes = session.hierarchy.writable()
    references = changes.references(changes.array(node))
    return [references.locations.url(n - VIRTUAL) for n in references.source.tolist() if n >= VIRTUAL]


def everything(session: ars.Session) -> dict[str, object]:
    found: dict[str, object] = {}
    group = zarr.open_group(session.store, mode="r")
    for name, array in sorted(group.arrays()):
        found[name] = session.chunk_coordinates(name).tolist()
        if name != "b":
            found[name + " values"] = np.asarray(array[:]).tolist()
    if not session.read_only:
        found["b locations"] = locations(session, "b")
    return found


@pytest.mark.parametrize("shape", ["flat", "tree", "one by one", "mixed"])
def test_combined_changes_mean_what_they_meant_alone(repo: ars.Repository, shape: str) -> None:
    alone = repo.writable_session("main")
    for fork in rich_forks(alone, 8):
        alone.merge(fork)
    session = repo.writable_session("main")
    forks = rich_forks(session, 8)
    payloads = [fork.changes() for fork in forks]
    if shape == "flat":
        session.merge(ars.merge_sessions(payloads))
    elif shape == "tree":
        pairs = [ars.merge_sessions(payloads[i : i + 2]) for i in range(0, 8, 2)]
        session.merge(ars.merge_sessions(ars.merge_sessions(pairs[:2]), ars.merge_sessions(pairs[2:])))
    elif shape == "one by one":
        found = payloads[0]
        for payload in payloads[1:]:
            found = ars.merge_sessions(found, payload)
        session.merge(found)
    else:
        session.merge(ars.merge_sessions(forks[0], payloads[1:3]), [forks[3]], ars.merge_sessions(iter(payloads[4:])))
    assert everything(session) == everything(alone)
    assert locations(session, "b") == [f"s3://bucket/{number}" for number in range(8)]
    session.commit("combined")
    committed = everything(repo.readonly_session("main"))
    assert committed == {key: value for key, value in everything(alone).items() if key != "b locations"}


def test_siblings_that_overlap_are_found_on_the_way(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    forks = [session.fork() for _ in range(4)]
    for number, fork in enumerate(forks):
        fill(fork, number, 2)
        fill(fork, number + 1, 2)
    first, second = ars.merge_sessions(forks[0], forks[2]), ars.merge_sessions(forks[1], forks[3])
    with pytest.raises(MergeConflictError) as caught:
        ars.merge_sessions(first, second)
    assert (caught.value.path, caught.value.chunks) == ("a", ((1,), (2,), (3,)))
    assert pickle.loads(pickle.dumps(caught.value)).chunks == caught.value.chunks


def test_of_siblings_that_overlap_the_later_argument_wins_if_asked_for(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    forks = [session.fork() for _ in range(3)]
    for number, fork in enumerate(forks):
        for chunk in range(3):
            fill(fork, number + chunk, number + 2)
    session.merge(
        ars.merge_sessions(forks[2], ars.merge_sessions(forks[0], forks[1], on_overlap="last"), on_overlap="last")
    )
    assert values(session)[:6] == [2, 3, 3, 3, 4, 1]


def test_siblings_that_make_or_change_the_same_node_are_found_on_the_way(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    one, two, three, four = (session.fork() for _ in range(4))
    for fork in (one, two):
        chunked(fork.store, "new", 2)
    with pytest.raises(MergeConflictError, match="created 'new'"):
        ars.merge_sessions(one, two)
    del zarr.open_group(three.store)["a"]
    fill(four, 0, 2)
    for pair in ((three, four), (four, three)):
        with pytest.raises(MergeConflictError, match="deleted 'a'"):
            ars.merge_sessions(*pair, on_overlap="last")


def test_forks_of_different_sessions_are_not_combined(repo: ars.Repository) -> None:
    with pytest.raises(MergeConflictError, match="different sessions"):
        ars.merge_sessions(repo.writable_session("main").fork(), repo.writable_session("main").fork())


def test_of_several_states_of_a_fork_the_newest_counts_on_the_way_too(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    one, two = session.fork(), session.fork()
    fill(one, 0, 2)
    early = ars.merge_sessions(one, two)
    fill(one, 0, 3)
    fill(one, 1, 3)
    fill(two, 2, 4)
    late = ars.merge_sessions(two, one)
    session.merge(ars.merge_sessions(late, early))
    assert values(session)[:3] == [3, 3, 4]
    with pytest.raises(MergeConflictError, match="already"):
        session.merge(early)


@pytest.mark.parametrize("things", [(), ([],), (1,), ("text",), ({"a": 1},)])
def test_what_is_no_fork_is_not_combined(things: tuple[object, ...]) -> None:
    with pytest.raises(InvalidInputError, match="fork"):
        ars.merge_sessions(*things)  # type: ignore[arg-type]


def test_a_damaged_payload_is_not_combined(repo: ars.Repository) -> None:
    fork = repo.writable_session("main").fork()
    fill(fork, 0, 2)
    payload = bytearray(fork.changes())
    payload[-1] ^= 1
    with pytest.raises(FormatError):
        ars.merge_sessions(payload)


def test_forks_are_combined_within_a_loop(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    fill(fork, 0, 2)
    session.merge(run(merge_sessions_async(fork)))
    assert values(session)[0] == 2


def test_the_session_behind_an_array_or_a_group_is_found(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    for found in (session, session.fork(), repo.readonly_session("main")):
        mode = "r" if found.read_only else "r+"
        assert ars.extract_session(zarr.open_array(found.store, path="a", mode=mode)) is found
        assert ars.extract_session(zarr.open_group(found.store, mode=mode)) is found
        assert ars.extract_session(found.store) is found
        assert ars.extract_session(zarr.storage.LoggingStore(found.store)) is found


def test_an_array_elsewhere_has_no_session() -> None:
    for thing in (zarr.create_array({}, shape=(1,), dtype="i4"), 5, "text"):
        with pytest.raises(InvalidInputError, match="session"):
            ars.extract_session(thing)
