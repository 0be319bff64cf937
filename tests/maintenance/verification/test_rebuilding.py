"""A lost record is rebuilt from what later ones repeat of it, where that is all that it held."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import zarr

from arraystore import Repository, in_memory_storage
from arraystore._format.digest import DIGEST_BYTES
from arraystore._format.record import Record, decode_record, encode_record
from arraystore._format.snapshot import checkpoint_key, decode_checkpoint, encode_checkpoint
from arraystore._maintenance.verification.repair import RepairReport, repair
from arraystore._runtime import run
from arraystore.errors import LogHoleError
from arraystore.storage import MemoryStorage, Storage
from tests.commit.support import (
    DistantStorage,
    commit_number,
    commit_rows,
    create_repository,
    delete,
    keys,
    number,
    put,
    put_number,
)
from tests.keys import id_of, log_of, record
from tests.maintenance.verification.support import about, copied, objects_of, verified
from tests.seams import context_of

LAST = 72


@pytest.fixture(scope="module")
def whole() -> MemoryStorage:
    """Return a repository whose records 2 to 72 are there, each with a small change."""
    made = in_memory_storage()
    repository = create_repository(made)
    done = 0
    while _tip(made) < LAST:
        commit_number(repository, done, done)
        done += 1
    repository.wait_for_maintenance()
    return made


def _tip(storage: Storage) -> int:
    return max(int(key[-12:]) for key in keys(storage, log_of(storage)))


def _repaired(storage: Storage, *, dry_run: bool = False) -> RepairReport:
    context = context_of(Repository.open(storage))
    return run(repair(context.storage, context.repository, context.environment, dry_run=dry_run))


def _repeated(number: int, tip: int) -> bool:
    """Tell whether a record up to the tip repeats a body, by the rule as the format has it."""
    if number % 512 == 0:
        return False
    if number % 64 == 0:
        return number // 64 * 64 + 64 <= tip
    return number + (8 - number % 8 if number % 8 == 0 else 1) <= tip


@pytest.mark.parametrize("place", ["probing", "listing"])
def test_each_lost_record_that_others_repeat_is_rebuilt_as_it_was(whole: MemoryStorage, place: str) -> None:
    before, tip = objects_of(whole), _tip(whole)
    rebuilt = 0
    for lost in range(tip):
        storage: Storage = copied(whole)
        key = record(storage, lost)
        delete(storage, key)
        if place == "listing":
            storage = DistantStorage(storage)
        report = _repaired(storage)
        if not _repeated(lost, tip):
            (left,) = [each for each in report.left if each.problem.startswith("the record does not exist")]
            assert left.key == key
            assert "no later record repeats" in left.repair
            assert key not in keys(storage)
            continue
        rebuilt += 1
        assert [action.key for action in report.actions] == [key]
        assert (report.ok, report.left) == (True, ())
        assert objects_of(storage) == before
    assert rebuilt == tip - 2  # all but the birth, and record 64, which record 128 will repeat


@pytest.mark.parametrize("lost", [2, 7, 8, 40, 56, 63, 65, 70, 71])
def test_after_a_rebuilding_the_branch_reads_as_before_and_goes_on(whole: MemoryStorage, lost: int) -> None:
    expected = [info.id for info in Repository.open(copied(whole)).ancestry(branch="main")]
    storage = copied(whole)
    delete(storage, record(storage, lost))
    report = verified(Repository.open(storage))
    (finding,) = [each for each in about(report, record(storage, lost)) if "does not exist" in each.problem]
    assert finding.repair.startswith("run repair")
    planned = _repaired(storage, dry_run=True)
    assert record(storage, lost) in {action.key for action in planned.actions}
    assert record(storage, lost) not in keys(storage)
    assert _repaired(storage).ok
    repository = Repository.open(storage)
    assert verified(repository).findings == ()
    assert [info.id for info in repository.ancestry(branch="main")] == expected
    commit_number(repository, 1000, 5)
    assert number(Repository.open(storage).readonly_session("main"), 1000) == 5


def test_neighbouring_lost_records_are_rebuilt_together(whole: MemoryStorage) -> None:
    storage = copied(whole)
    for lost in (*range(1, 8), *range(33, 40), 57, 58, 60, 66, 67, 68):
        delete(storage, record(storage, lost))
    delete(storage, "hints/")
    assert not verified(Repository.open(storage)).ok
    assert _repaired(storage).ok
    for key, data in objects_of(whole).items():
        assert key.startswith("hints/") or bytes(storage.get_sync(key)) == data, key


def test_the_error_about_a_hole_names_the_repair_that_helps(whole: MemoryStorage) -> None:
    storage = copied(whole)
    delete(storage, record(storage, _tip(storage) - 1))
    with pytest.raises(LogHoleError, match="arraystore repair"):
        Repository.open(DistantStorage(storage)).readonly_session("main")
    assert _repaired(storage).ok
    Repository.open(DistantStorage(storage)).readonly_session("main")


def test_a_lost_tip_shows_nowhere(whole: MemoryStorage) -> None:
    storage = copied(whole)
    delete(storage, record(storage, _tip(storage)))
    assert verified(Repository.open(storage)).ok
    assert _repaired(storage).actions == ()


def test_a_record_with_a_long_message_is_left_and_the_message_named() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    session = repository.writable_session("main")
    put_number(session, 1, 1)
    session.commit("x" * 5000)
    lost = _tip(storage)
    commit_rows(repository, 1, 3)
    delete(storage, record(storage, lost))
    before = objects_of(storage)
    report = _repaired(storage)
    texts = [each.repair for each in report.left if each.key == record(storage, lost)]
    assert any(re.search("attached to it: .*message and metadata", text) for text in texts)
    assert not report.ok
    assert record(storage, lost) not in keys(storage)
    assert {key: data for key, data in objects_of(storage).items() if key in before} == before


def test_a_record_with_attached_manifests_is_left_and_they_are_named() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    session = repository.writable_session("main")
    array = zarr.create_array(session.store, name="many", shape=(4000,), chunks=(1,), dtype="i8", compressors=None)
    array[:] = range(4000)
    session.commit("many")
    lost = _tip(storage)
    here = decode_record(record(storage, lost), storage.get_sync(record(storage, lost)), "main", lost, id_of(storage))
    assert here.attachments
    commit_rows(repository, 1, 3)
    delete(storage, record(storage, lost))
    report = _repaired(storage)
    assert any("attached to it" in each.repair for each in report.left if each.key == record(storage, lost))
    assert record(storage, lost) not in keys(storage)


def test_what_does_not_fit_the_next_record_is_not_written(whole: MemoryStorage) -> None:
    storage = copied(whole)
    key = record(storage, 11)
    other = decode_record(key, storage.get_sync(key), "main", 11, id_of(storage))
    delete(storage, record(storage, 10))
    delete(storage, key)
    forged = Record("main", 11, other.body, (), other.previous, other.repository, bytes(DIGEST_BYTES))
    put(storage, key, encode_record(forged))
    report = _repaired(storage)
    assert not report.ok
    assert record(storage, 10) not in keys(storage)
    (left,) = [each for each in report.left if each.key == record(storage, 10)]
    assert "does not fit" in left.repair


@pytest.mark.parametrize("base", ["with digest", "without"])
@pytest.mark.parametrize(("trimmed", "lost"), [(0, 1), (1, 2), (1, 1)])
def test_no_expired_record_is_rebuilt_and_those_after_it_are_where_the_digest_before_them_is_known(
    whole: MemoryStorage, trimmed: int, lost: int, base: str
) -> None:
    mends = base == "with digest" or (trimmed, lost) != (1, 1)
    storage = copied(whole)
    repository = Repository.open(storage)
    repository.expire_snapshots(datetime.now(UTC))
    commit_rows(repository, 1001, 1020)
    life = run(context_of(repository).tip("main")).state.life
    expired = life.expired
    assert expired > 64
    assert life.base is not None
    if base == "without":  # as of a writer that does not know it
        at = checkpoint_key(life.base)
        found = decode_checkpoint(at, storage.get_sync(at))
        assert found.digest is not None
        put(storage, at, encode_checkpoint(at, replace(found, digest=None)))
    for gone in range(expired + trimmed):
        delete(storage, record(storage, gone))
    assert verified(Repository.open(storage)).findings == ()
    before = objects_of(storage)
    key = record(storage, expired + lost)
    delete(storage, key)
    report = _repaired(storage)
    assert [action.key for action in report.actions] == [key] * mends
    assert report.ok == mends
    assert objects_of(storage) == (before if mends else {other: before[other] for other in before if other != key})
