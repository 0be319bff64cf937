"""Directories of history pages that begin where a branch begins to show snapshots."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import zarr

from arraystore import Repository, in_memory_storage
from arraystore._format.refs import decode_hint
from arraystore._format.snapshot import checkpoint_key, decode_checkpoint
from arraystore.storage import MemoryStorage
from tests.commit.support import keys


def _commits(repository: Repository, number: int) -> None:
    for each in range(number):
        session = repository.writable_session("main")
        zarr.open_group(session.store, mode="a").attrs["n"] = each
        session.commit("one more")
    repository.wait_for_maintenance()


def _first_page(storage: MemoryStorage) -> int:
    """Return the index of the first page that the newest checkpoint names."""
    (hint,) = keys(storage, "hints/")
    key = checkpoint_key(decode_hint(hint, asyncio.run(storage.get(hint))).checkpoint)
    return decode_checkpoint(key, asyncio.run(storage.get(key))).pages[0].index


def _delete_hints(storage: MemoryStorage) -> None:
    asyncio.run(storage.delete(keys(storage, "hints/")))


def test_pages_begin_behind_what_has_expired_and_is_deleted_and_nothing_is_found_wrong_or_repaired() -> None:
    storage = in_memory_storage()
    _commits(Repository.create(storage), 150)
    _delete_hints(storage)  # whoever expires knows of no pages
    now = datetime.now(UTC)
    repository = Repository.open(storage)
    repository.expire_snapshots(now, keep_last=1)
    repository.garbage_collect(now, full=True, record_grace=timedelta(0), nobody_writes=True)
    _commits(Repository.open(storage), 80)
    assert _first_page(storage) == 2
    report = Repository.open(storage).verify()
    assert report.ok, report.findings
    _delete_hints(storage)
    repaired = Repository.open(storage)
    repaired.repair()
    assert _first_page(storage) == 2
    assert repaired.verify().ok
    assert len(list(repaired.ancestry(branch="main"))) == 82
