"""Compaction next to writers, collections and other compactions, and stopped at any request."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import numpy as np
import pytest
import zarr

from arraystore import Repository
from arraystore._chunks.pack_writer import pack_key
from arraystore._format.ids import ID_BYTES
from arraystore._format.lifecycle import Fence
from arraystore._format.record import Rewrite
from arraystore._maintenance import rewrite
from arraystore.errors import ObjectNotFoundError, StorageError
from arraystore.storage import CountingStorage, Fault, FaultyStorage
from tests.commit.support import entries, keys
from tests.maintenance.worlds import (
    COLUMNS,
    Meanwhile,
    append,
    layer_counts,
    manifests_unnamed,
    packs_ever_used,
    packs_used,
    run_alone,
    same,
    tip_of,
    values_of,
    with_rows,
)

# -- others meanwhile ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "prefix"),
    [("put", "manifests/"), ("put", "chunks/"), ("get_ranges", "chunks/"), ("put_if_absent", "/branch/main/")],
)
def test_a_chunk_that_is_written_meanwhile_wins(operation: str, prefix: str) -> None:
    world = with_rows()
    storage = Meanwhile(world.storage, operation, prefix, lambda: world.write_row(7))
    summary = Repository.open(storage).compact()
    assert storage.happened
    assert summary.complete
    world.check()
    assert len(layer_counts(world.storage)) == 1


@pytest.mark.parametrize("prefix", ["manifests/", "chunks/"])
def test_what_is_prepared_for_an_array_that_is_deleted_meanwhile_is_deleted_too(prefix: str) -> None:
    world = with_rows(names=("a", "b"))

    def delete(group: zarr.Group, _: np.random.Generator) -> None:
        del group["b"]

    storage = Meanwhile(world.storage, "put", prefix, lambda: world.write(delete))
    assert Repository.open(storage).compact().complete
    assert storage.happened
    world.check()
    assert set(keys(world.storage, "chunks/")) == packs_ever_used(world)
    assert manifests_unnamed(world) == set()


def test_two_compactions_at_a_time_leave_the_data_and_nothing_behind() -> None:
    world = with_rows()
    storage = Meanwhile(world.storage, "put", "chunks/", world.repository.compact)
    assert Repository.open(storage).compact().complete
    assert storage.happened
    world.check()
    assert set(keys(world.storage, "chunks/")) == packs_ever_used(world)
    assert manifests_unnamed(world) == set()


def test_a_layer_of_the_same_id_that_says_something_else_is_not_replaced() -> None:
    """A layer that was moved keeps its id: a rewrite of what it was would put chunks where they were before."""
    world = with_rows(rows=2)
    node = tip_of(world.storage).state.nodes["a"]
    first, second = node.layers
    moved = type(first)(first.id, first.box.shifted((1, 0)), first.count, first.deletions, shift=(1, 0))
    item = rewrite.Exchange(node.id, (moved,), (second,))
    assert not item.fits(tip_of(world.storage).state)
    assert rewrite.Exchange(node.id, (first,), (second,)).fits(tip_of(world.storage).state)


@pytest.mark.parametrize(
    ("operation", "prefix"),
    [("put", "manifests/"), ("put", "chunks/"), ("get_ranges", "chunks/"), ("put_if_absent", "/branch/main/")],
)
def test_what_a_collection_has_overtaken_is_thrown_away_and_done_again(operation: str, prefix: str) -> None:
    world = with_rows(rows=12)
    marks: list[bytes] = []

    def collect() -> None:
        mark = (2**46).to_bytes(6, "big") + bytes(6)  # by a clock that is far ahead
        marks.append(mark)
        append(world.storage, Fence(mark, 0))

    storage = Meanwhile(world.storage, operation, prefix, collect)
    summary = Repository.open(storage).compact()
    assert storage.happened
    assert summary.complete
    log = entries(world.storage)
    fence = next(number for number, entry in log.items() if isinstance(entry, Fence))
    known: set[bytes] = set()
    for number, entry in log.items():
        if isinstance(entry, Rewrite):
            added = {layer.id for item in entry.replacements for layer in item.added}
            packs = entry.packs or b""
            added |= {packs[at : at + ID_BYTES] for at in range(0, len(packs), ID_BYTES)}
            if number > fence:
                assert all(identifier > marks[0] for identifier in added - known)
            known |= added
    assert any(number > fence for number, entry in log.items() if isinstance(entry, Rewrite))
    world.check()
    assert set(keys(world.storage, "chunks/")) == packs_ever_used(world)
    assert manifests_unnamed(world) == set()


def test_every_new_pack_is_named_by_the_record_that_brings_it_in() -> None:
    world = with_rows()
    before = set(keys(world.storage, "chunks/"))
    world.repository.compact()
    named: set[str] = set()
    for entry in entries(world.storage).values():
        if isinstance(entry, Rewrite):
            packs = entry.packs
            assert packs is not None
            named |= {pack_key(packs[at : at + ID_BYTES]) for at in range(0, len(packs), ID_BYTES)}
    assert named == set(keys(world.storage, "chunks/")) - before


# -- crashes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_compaction_that_stops_at_any_request_leaves_a_repository_that_the_next_one_completes(when: str) -> None:
    begin = with_rows(rows=6)
    requests = CountingStorage(begin.copy().storage)
    Repository.open(requests).compact()
    for first in range(1, len(requests.log) + 1):
        world = begin.copy()
        faulty = FaultyStorage(world.storage, [Fault("*", when=when, first=first, times=None)])  # type: ignore[arg-type]
        with contextlib.suppress(StorageError):  # nobody is told of leftovers that are not deleted
            Repository.open(faulty).compact()
        assert faulty.injected
        world.check()
        assert world.repository.compact().complete
        assert layer_counts(world.storage) == [6 * COLUMNS]
        world.check([])


# -- with expiry and collection -----------------------------------------------------------------------------------


def test_after_expiry_a_collection_deletes_the_packs_that_were_given_up_and_nothing_that_is_needed() -> None:
    world = with_rows(names=("a", "b"))
    reader = world.repository.readonly_session("main")
    world.repository.compact()
    world.repository.garbage_collect(datetime.now(UTC))
    world.check(list(world.held))
    same(values_of(zarr.open_group(reader.store, mode="r")), list(world.held.values())[-1])
    for _ in range(2):
        world.write(lambda group, random: group.attrs.update(step=random.random()))
    world.repository.expire_snapshots(datetime.now(UTC))
    world.repository.garbage_collect(datetime.now(UTC))
    assert set(keys(world.storage, "chunks/")) == packs_used(world.storage)
    assert len(keys(world.storage, "chunks/")) == 4
    assert len(keys(world.storage, "manifests/")) <= 2
    world.check([])


@pytest.mark.parametrize(
    ("operation", "prefix"),
    [("put", "manifests/"), ("put", "chunks/"), ("get_ranges", "chunks/"), ("put_if_absent", "/branch/main/")],
)
def test_a_collection_up_to_now_that_comes_between_takes_nothing_that_is_needed(operation: str, prefix: str) -> None:
    world = with_rows(rows=12)
    storage = Meanwhile(world.storage, operation, prefix, lambda: world.repository.garbage_collect(datetime.now(UTC)))
    assert Repository.open(storage).compact().complete
    assert storage.happened
    world.check()
    assert layer_counts(world.storage) == [12 * COLUMNS]
    world.repository.garbage_collect(datetime.now(UTC))
    world.check()


@pytest.mark.parametrize(
    ("operation", "prefix"), [("put", "manifests/"), ("put", "chunks/"), ("get_ranges", "chunks/")]
)
def test_what_is_replaced_expired_and_deleted_while_it_is_read_is_looked_for_anew(operation: str, prefix: str) -> None:
    world = with_rows(rows=12)

    def replace_all() -> None:
        for row in range(12):
            world.write_row(row)
        world.repository.compact()
        for _ in range(2):
            world.write_row(30)
        world.repository.expire_snapshots(datetime.now(UTC))
        world.repository.garbage_collect(datetime.now(UTC))

    storage = Meanwhile(world.storage, operation, prefix, replace_all)
    assert Repository.open(storage).compact().complete
    assert storage.happened
    world.check([])


def test_a_pack_that_is_missing_is_an_error_that_names_it() -> None:
    world = with_rows(rows=12)
    lost = sorted(packs_used(world.storage))[3]
    storage = Meanwhile(world.storage, "get_ranges", lost, lambda: run_alone(world.storage.delete([lost])))
    with pytest.raises(ObjectNotFoundError, match=lost.removeprefix("chunks/")):
        Repository.open(storage).compact()
    assert len(packs_used(world.storage)) == 12
    assert len(keys(world.storage, "chunks/")) == 11
