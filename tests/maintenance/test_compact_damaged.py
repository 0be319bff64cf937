"""Compaction of a repository with damaged packs: those stay as they are, and are named; all the rest is compacted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import zarr

from arraystore import Repository, UpkeepOptions, in_memory_storage
from arraystore.copying import export_zarr
from arraystore.errors import ChunkDamagedError, FormatError, ObjectNotFoundError, StorageError
from arraystore.storage import Storage
from tests.commit.support import DistantStorage, delete, keys, objects
from tests.maintenance.worlds import World, packs_used, with_rows
from tests.simulation.mutations.patching import all_outside
from tests.tiers import mostly_thorough

Damage = Callable[[bytes], bytes]


def _flip(data: bytes) -> bytes:
    return data[:700] + bytes([data[700] ^ 1]) + data[701:]


def _truncate(data: bytes) -> bytes:
    return data[: len(data) - 100]


def _flip_late(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def _truncate_half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _zero(data: bytes) -> bytes:
    return bytes(len(data))


def _damaged(damage: Damage, *, distant: bool = False, at: tuple[int, ...] = (9,)) -> tuple[World, dict[str, bytes]]:
    """Return a repository of which some packs, of one row each, are damaged, and these packs."""
    world = with_rows(DistantStorage(in_memory_storage()) if distant else None)
    packs = keys(world.storage, "chunks/")
    changed = {packs[number]: damage(bytes(world.storage.get_sync(packs[number]))) for number in at}
    for key, data in changed.items():
        world.storage.put_sync(key, data)
    return world, changed


def _values(repository: Repository) -> dict[int, np.ndarray | None]:
    """Return each row, None for one that cannot be read."""
    array = zarr.open_array(repository.readonly_session("main").store, path="a", mode="r")
    found: dict[int, np.ndarray | None] = {}
    for row in range(array.shape[0]):
        try:
            found[row] = np.asarray(array[row])
        except (ChunkDamagedError, StorageError):
            found[row] = None
    return found


@pytest.mark.parametrize("distant", [False, True])
@pytest.mark.parametrize("damage", mostly_thorough([_flip, _truncate, _zero]))
@pytest.mark.parametrize("at", [(9,), (0, 9, 31)])
def test_damaged_packs_stay_as_they_are_and_are_named_and_the_rest_is_compacted(
    damage: Damage, distant: bool, at: tuple[int, ...]
) -> None:
    world, changed = _damaged(damage, distant=distant, at=at)
    before = _values(world.repository)
    summary = world.repository.compact()
    assert {pack.object for pack in summary.damaged} == set(changed)
    assert all(pack.reason for pack in summary.damaged)
    assert summary.packs_rewritten == 32 - len(at)
    assert set(changed) <= packs_used(world.storage)
    assert len(packs_used(world.storage)) == len(at) + summary.packs_written <= len(at) + 2
    assert {key: bytes(world.storage.get_sync(key)) for key in changed} == changed
    after = _values(world.repository)
    assert [row for row in after if after[row] is None] == [row for row in before if before[row] is None] == list(at)
    expected = list(world.held.values())[-1]["a"]
    assert all(values is None or np.array_equal(values, expected[row]) for row, values in after.items())


def test_a_compaction_with_a_damaged_pack_comes_to_an_end() -> None:
    world, changed = _damaged(_flip)
    world.repository.compact()
    there = set(objects(world.storage))
    summary = world.repository.compact()
    assert summary.records == summary.packs_written == 0
    assert set(objects(world.storage)) == there
    assert set(changed) <= packs_used(world.storage)


def test_a_pack_that_is_restored_is_compacted_by_the_next_run() -> None:
    world = with_rows()
    packs = keys(world.storage, "chunks/")[:4]
    whole = {key: bytes(world.storage.get_sync(key)) for key in packs}
    for key, data in whole.items():
        world.storage.put_sync(key, _flip(data))
    assert len(world.repository.compact().damaged) == 4
    for key, data in whole.items():
        world.storage.put_sync(key, data)
    assert world.repository.compact().damaged == ()
    assert not set(packs) & packs_used(world.storage)
    world.check()


def test_maintenance_of_a_repository_with_a_damaged_pack_does_all_steps_and_says_so() -> None:
    world, changed = _damaged(_flip)
    report = world.repository.maintain(UpkeepOptions(verify_sample=0))
    assert (report.status, report.exit_code, report.errors) == ("damaged", 1, {})
    (named,) = report.to_dict()["steps"]["compact"]["main"]["damaged"]
    assert named["object"] in changed
    assert {"compact", "collect"} <= set(report.steps)


def _expire(repository: Repository) -> object:
    return repository.expire_snapshots(datetime.now(UTC))


def _collect(repository: Repository) -> object:
    return repository.garbage_collect(datetime.now(UTC), record_grace=timedelta(0), nobody_writes=True)


@pytest.mark.parametrize("damage", [_flip, _truncate])
@pytest.mark.parametrize(
    "care",
    [
        lambda repository: repository.rewrite_manifests("fold", branch="main"),
        lambda repository: repository.statistics(),
        _expire,
        _collect,
    ],
    ids=["fold", "statistics", "expire", "collect"],
)
def test_other_care_goes_on_past_a_damaged_pack_and_leaves_it(
    care: Callable[[Repository], object], damage: Damage
) -> None:
    world, changed = _damaged(damage)
    care(world.repository)
    assert {key: bytes(world.storage.get_sync(key)) for key in changed} == changed
    assert [row for row, values in _values(world.repository).items() if values is None] == [9]


def test_an_export_refuses_what_is_damaged() -> None:
    world, _ = _damaged(_flip)
    with pytest.raises(ChunkDamagedError, match="do not match their checksum"):
        export_zarr(world.repository, in_memory_storage(), branch="main")


def test_a_storage_that_fails_is_not_taken_for_damage() -> None:
    class Failing(DistantStorage):
        async def get_ranges(self, key: str, ranges: object) -> list[bytes]:
            raise StorageError("the storage is away")

    world = with_rows()
    failing: Storage = Failing(world.storage)
    with pytest.raises(StorageError, match="away"):
        Repository.open(failing).compact()
    assert len(packs_used(world.storage)) == len(world.held) - 1


@pytest.mark.parametrize("damage", [_flip_late, _truncate_half, None], ids=["flipped", "truncated", "missing"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_damaged_manifest_ends_a_compaction_with_an_error_that_names_it_and_what_to_do(
    damage: Damage | None, dry_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name, value in all_outside():
        monkeypatch.setattr(owner, name, value)
    world = with_rows(names=("a", "b"), rows=6)
    key = keys(world.storage, "manifests/")[5]
    data = bytes(world.storage.get_sync(key))
    delete(world.storage, key)
    if damage is not None:
        world.storage.put_sync(key, damage(data))
    packs = {info.key: bytes(world.storage.get_sync(info.key)) for info in objects(world.storage, "chunks/")}
    with pytest.raises((FormatError, ObjectNotFoundError), match=key) as caught:
        Repository.open(world.storage).compact(dry_run=dry_run)
    assert "restore the object" in caught.value.__notes__[0]
    assert {info.key: bytes(world.storage.get_sync(info.key)) for info in objects(world.storage, "chunks/")} == packs
    world.storage.put_sync(key, data)
    assert Repository.open(world.storage).compact().complete
    world.check()
