"""What a worker returns is small, and any number of payloads is merged in one pass."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore._chunks.chunk_table import ChunkTable
from arraystore._forks.merge import decode_payload
from arraystore._format.fork_payload import encode_changes
from arraystore.errors import FormatError
from tests.forks.support import chunked, fill, values
from tests.session.conftest import FarMemory
from tests.tiers import mostly_thorough

BYTES_A_REFERENCE = 4


def _session(shape: tuple[int, ...], chunk: int, **options: object) -> ars.Session:
    repo = ars.Repository.create(FarMemory(), config=ars.RepositoryConfig(pack_target_bytes=1 << 20))
    session = repo.writable_session("main")
    zarr.create_array(
        session.store, name="group/temperature", shape=shape, chunks=(1,) * (len(shape) - 1) + (chunk,), dtype="f4"
    )
    session.commit("an array")
    return repo.writable_session("main")


@pytest.mark.parametrize(("rows", "columns"), [(1, 100), (20, 50), (4, 500)])
def test_a_reference_takes_at_most_four_bytes_in_a_dense_region(rows: int, columns: int) -> None:
    """Compressed chunks of different sizes, in several packs, written by several threads at once."""
    session = _session((rows * 3, columns * 600), 600)
    fork = session.fork()
    values = np.random.default_rng(0).normal(size=(rows, columns * 600)).astype("f4")
    values[:, ::2] = values[:, ::2].round()  # compresses, to another size each
    zarr.open_array(fork.store, path="group/temperature", mode="r+")[rows : 2 * rows] = values
    payload = fork.changes()
    (packs,) = {len(manifest.packs) // 12 for manifest in decode_payload(payload).manifests}
    assert packs > (1 if rows > 1 else 0)
    assert len(payload) <= BYTES_A_REFERENCE * rows * columns
    session.merge(payload)
    found = zarr.open_array(session.store, path="group/temperature", mode="r")[rows : 2 * rows]
    np.testing.assert_array_equal(found, values)


def test_payloads_that_are_combined_take_no_more_than_alone() -> None:
    session = _session((10, 60_000), 600)
    payloads = []
    for row in range(10):
        fork = session.fork()
        zarr.open_array(fork.store, path="group/temperature", mode="r+")[row] = np.arange(60_000) * 1.5
        payloads.append(fork.changes())
    assert len(ars.merge_sessions(payloads)) <= sum(map(len, payloads))


@pytest.mark.parametrize("combined", mostly_thorough([False, True]))
def test_many_payloads_are_put_into_the_table_at_once(monkeypatch: pytest.MonkeyPatch, combined: bool) -> None:
    """The session's table of an array is sorted once, however many forks are merged."""
    repo = ars.Repository.create(ars.in_memory_storage())
    session = repo.writable_session("main")
    for name in ("a", "b"):
        chunked(session.store, name, 400)
    payloads = []
    for number in range(200):
        fork = session.fork()
        for name in ("a", "b"):
            fill(fork, 2 * number, number % 200 + 1, name)
            fill(fork, 2 * number + 1, number % 200 + 1, name)
        payloads.append(fork.changes())
    calls: list[int] = []
    original = ChunkTable.put_numbered

    def put_numbered(table: ChunkTable, numbers: np.ndarray, found: np.ndarray) -> None:
        if type(table) is ChunkTable:
            calls.append(len(numbers))
        original(table, numbers, found)

    monkeypatch.setattr(ChunkTable, "put_numbered", put_numbered)
    session.merge([ars.merge_sessions(payloads)] if combined else payloads)
    assert calls == [400, 400]
    assert values(session, "b") == [number // 2 % 200 + 1 for number in range(400)]


def test_payloads_that_come_home_one_by_one_mean_the_same() -> None:
    repo = ars.Repository.create(ars.in_memory_storage())
    session = repo.writable_session("main")
    chunked(session.store, "a", 60)
    for number in range(60):
        fork = session.fork()
        fill(fork, 59 - number, number + 1)
        session.merge(fork.changes())
    assert values(session) == [60 - number for number in range(60)]


def test_a_payload_with_chunks_of_a_group_or_of_other_dimensions_is_refused() -> None:
    repo = ars.Repository.create(ars.in_memory_storage())
    session = repo.writable_session("main")
    chunked(session.store, "a", 4)
    zarr.create_array(session.store, name="b", shape=(4, 4), chunks=(1, 1), dtype="i4")
    fork = session.fork()
    fill(fork, 0, 1)
    payload = decode_payload(fork.changes())
    for path in ("", "b"):
        node = session.hierarchy.node(path)
        if node is None:
            zarr.create_group(session.store, path="")
            node = session.hierarchy.node(path)
        assert node is not None
        wrong = encode_changes(type(payload)(payload.session, payload.forks, ((node.id, path),), *_rest(payload)))
        with pytest.raises(FormatError, match=r"group|dimensions"):
            session.merge(wrong)


def _rest(payload: object) -> tuple[object, ...]:
    return (payload.parts, payload.order, payload.manifests)  # type: ignore[attr-defined]
