"""Change sets on their way to the driver: in the result of a task, or beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgpack
import numpy as np
import pytest
import zarr

from arraystore import Repository, Session, local_filesystem_storage
from arraystore._format.ids import ID_BYTES, id_from_text
from arraystore._session.change_set_transfer import MOST_INLINE, is_spilled, receive_change_sets, send_change_set
from arraystore.errors import FormatError, SessionExpiredError

WANTED = np.arange(64, dtype="i4").reshape(8, 8)


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = Repository.create(local_filesystem_storage(tmp_path, fsync=False))
    with repo.transaction("main", message="begin") as store:
        zarr.create_array(store, name="a", shape=(8, 8), chunks=(2, 8), dtype="i4")
    return repo


def delivered(session: Session, row: int, most: int = MOST_INLINE) -> bytes:
    fork = session.fork()
    zarr.open_array(fork.store, path="a", mode="r+")[row : row + 2] = WANTED[row : row + 2]
    return send_change_set(fork, most)


def spilled(root: Path) -> set[str]:
    return {path.name for path in (root / "transactions").glob("*")}


def test_small_change_sets_travel_and_large_ones_are_named(repo: Repository, tmp_path: Path):
    session = repo.writable_session("main")
    before = spilled(tmp_path)
    inline = delivered(session, 0)
    assert spilled(tmp_path) == before
    named = delivered(session, 2, most=10)
    (name,) = spilled(tmp_path) - before
    assert (is_spilled(inline), is_spilled(named)) == (False, True)
    identifier, size = msgpack.unpackb(named)
    assert identifier == id_from_text(name)
    assert (tmp_path / "transactions" / name).stat().st_size == size
    assert len(named) < 40


def test_change_sets_of_exactly_as_many_bytes_as_may_travel_do(repo: Repository):
    session = repo.writable_session("main")
    fork = session.fork()
    zarr.open_array(fork.store, path="a", mode="r+")[0] = 1
    size = len(fork.changes())
    assert not is_spilled(send_change_set(fork, size))
    assert is_spilled(send_change_set(fork, size - 1))


def test_both_kinds_are_merged_in_their_order_and_the_spilled_are_garbage_then(repo: Repository, tmp_path: Path):
    session = repo.writable_session("main")
    before = spilled(tmp_path)
    sent = [delivered(session, row, most=10 if row in (0, 4) else MOST_INLINE) for row in (0, 2, 4, 6)]
    named = spilled(tmp_path) - before
    assert len(named) == 2
    received = receive_change_sets(session.context, sent)
    assert [len(changes) for changes in received[1::2]] == [len(msgpack.unpackb(entry)[0]) for entry in sent[1::2]]
    session.merge(*received)
    session.commit("all")
    store = repo.readonly_session("main").store
    assert np.array_equal(zarr.open_array(store, path="a", mode="r")[:], WANTED)

    assert named <= spilled(tmp_path)
    repo.garbage_collect(datetime.now(UTC), full=True)
    assert not named & spilled(tmp_path)
    assert np.array_equal(zarr.open_array(store, path="a", mode="r")[:], WANTED)


def test_many_spilled_change_sets_arrive_in_the_order_of_their_tasks(repo: Repository):
    session = repo.writable_session("main")
    forks = [session.fork() for _ in range(40)]
    for number, fork in enumerate(forks):
        zarr.create_group(fork.store, path=f"g{number}", attributes={"number": number})
    sent = [send_change_set(fork, 0) for fork in forks]
    assert receive_change_sets(session.context, sent) == [
        receive_change_sets(session.context, [entry])[0] for entry in sent
    ]
    assert receive_change_sets(session.context, []) == []


def test_a_change_set_that_a_collection_took_is_told_from_damage(repo: Repository, tmp_path: Path):
    session = repo.writable_session("main")
    before = spilled(tmp_path)
    named = delivered(session, 0, most=10)
    (name,) = spilled(tmp_path) - before
    (tmp_path / "transactions" / name).unlink()
    with pytest.raises(SessionExpiredError, match=f"transactions/{name}.* was deleted: a garbage collection .* again"):
        receive_change_sets(session.context, [named])


@pytest.mark.parametrize("change", [-1, 1])
def test_a_change_set_of_another_size_is_damaged(repo: Repository, tmp_path: Path, change: int):
    session = repo.writable_session("main")
    before = spilled(tmp_path)
    named = delivered(session, 0, most=10)
    (name,) = spilled(tmp_path) - before
    path = tmp_path / "transactions" / name
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1] if change < 0 else data + b"\0")
    with pytest.raises(FormatError, match=f"holds {len(data) + change} bytes where the task has written {len(data)}"):
        receive_change_sets(session.context, [named])


@pytest.mark.parametrize(
    "found",
    [
        (),
        (1,),
        ("text",),
        (b"x", b"y"),
        (b"../../etc/passwd", 5),
        (bytes(ID_BYTES), 0),
        (bytes(ID_BYTES), -1),
        (bytes(ID_BYTES), 1.5),
        (bytes(ID_BYTES - 1), 5),
        (bytes(ID_BYTES), 5, 5),
        {"a": 1},
        None,
        msgpack.Timestamp(5),
    ],
)
def test_what_no_task_delivers_is_refused(repo: Repository, found: object):
    with pytest.raises(FormatError, match="change set of a task"):
        receive_change_sets(repo.writable_session("main").context, [msgpack.packb(found)])


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x92\xc4", b"\x80\x04N.", b"\xdd\xff\xff\xff\xff"])
def test_bytes_that_are_no_delivery_are_refused(data: bytes):
    with pytest.raises(FormatError, match="cannot be read"):
        is_spilled(data)
