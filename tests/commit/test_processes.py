"""Many processes on one repository: nothing acknowledged is lost, nothing else is half there."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from arraystore import Repository, Storage, local_filesystem_storage
from arraystore._format.record import Birth, Commit
from arraystore._session.session import Session
from tests.commit.support import create_repository, entries, keys, number
from tests.commit.workers import PACKED, commit_for_ever, commit_rows_of, create, make_ref, value
from tests.keys import log_of
from tests.s3server import S3Server
from tests.storage.conftest import obstore_on
from tests.storage.workers import call_in_processes

WRITERS, COMMITS = 8, 12

multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.commit.workers", "tests.storage.workers"])

_ID = "[0-9A-HJKMNP-TV-Z]{20}"
_KEYS = re.compile(
    rf"repo|refs/{_ID}/branch/main/\d{{12}}|hints/main|history/{_ID}/main/\d+/\d{{12}}|(chunks|manifests|snapshots)/{_ID}"
)


def _local(request: pytest.FixtureRequest) -> Storage:
    path: Path = request.getfixturevalue("tmp_path")
    return local_filesystem_storage(path / "repository")


def _s3(request: pytest.FixtureRequest) -> Storage:
    server: S3Server = request.getfixturevalue("s3_server")
    return obstore_on(server)


@pytest.fixture(params=[_local, _s3], ids=["local", "s3"])
def storage(request: pytest.FixtureRequest) -> Storage:
    make: Callable[[pytest.FixtureRequest], Storage] = request.param
    return make(request)


def _check_log(storage: Storage) -> None:
    """Check, from the records themselves, that the log has no gaps and that each commit follows the one before."""
    log = entries(storage)
    listed = sorted(int(key.rsplit("/", 1)[1]) for key in keys(storage, log_of(storage)))
    assert listed == list(range(len(listed))) == list(log)
    assert isinstance(log[0], Birth)
    newest = log[0].snapshot
    for entry in log.values():
        for transaction in entry.transactions if isinstance(entry, Commit) else ():
            assert transaction.parent == newest
            newest = transaction.id


def _packed(session: Session, row: int) -> bytes | None:
    found = session.store.get_sync(f"a/c/{row}")
    return None if found is None else found.to_bytes()


def test_many_processes_that_commit_lose_nothing(storage: Storage) -> None:
    create_repository(storage)
    results = call_in_processes("forkserver", commit_rows_of, [(storage, who, COMMITS) for who in range(WRITERS)])
    assert [len(result) for result in results] == [COMMITS] * WRITERS, results
    acknowledged = [snapshot for result in results for snapshot in result]
    repository = Repository.open(storage)
    history = list(repository.ancestry(branch="main"))
    assert Counter(info.id for info in history[:-2]) == Counter(acknowledged)
    assert [info.parent_id for info in history] == [info.id for info in history[1:]] + [None]
    for who, result in enumerate(results):
        mine = [info.id for info in history if info.message.startswith(f"{who}/")]
        assert mine[::-1] == result
    _check_log(storage)
    reader = repository.readonly_session("main")
    for row in (who * 1000 + turn for who in range(WRITERS) for turn in range(COMMITS)):
        assert number(reader, row) == row
        assert _packed(reader, row + 500) == value(PACKED, row)
    assert [key for key in keys(storage) if not _KEYS.fullmatch(key)] == []


def test_of_many_processes_that_create_a_repository_one_does_and_all_can_use_it(storage: Storage) -> None:
    results = call_in_processes("forkserver", create, [(storage,)] * WRITERS)
    (created,) = [found for found in results if found is not None]
    repository = Repository.open(storage)
    assert repository.id == created
    assert len(list(repository.ancestry(branch="main"))) == 1


@pytest.mark.parametrize("kind", ["create_branch", "create_tag"])
def test_of_two_processes_that_make_the_same_name_one_does(storage: Storage, kind: str) -> None:
    repository = create_repository(storage)
    snapshots = [info.id for info in repository.ancestry(branch="main")]
    results = call_in_processes(
        "forkserver", make_ref, [(storage, kind, "contested", snapshot) for snapshot in snapshots]
    )
    assert sorted(results) == [False, True]
    look = repository.lookup_branch if kind == "create_branch" else repository.lookup_tag
    assert look("contested") == snapshots[results.index(True)]


def _acknowledged(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def _wait_for_more(path: Path, known: int, deadline: float) -> None:
    while len(_acknowledged(path)) <= known:
        assert time.monotonic() < deadline, "no writer commits"
        time.sleep(0.002)


def test_writers_killed_at_any_moment_lose_nothing_acknowledged_and_leave_nothing_half_done(
    tmp_path: Path, long_run: bool
) -> None:
    storage = local_filesystem_storage(tmp_path / "repository")
    create_repository(storage)
    acknowledgements = tmp_path / "acknowledgements"
    context = multiprocessing.get_context("forkserver")
    seeded = random.Random(0)
    for turn in range(100 if long_run else 10):
        first = turn * 10_000
        writers = [
            context.Process(target=commit_for_ever, args=(storage, who, first, acknowledgements), daemon=True)
            for who in (1, 2)
        ]
        known = len(_acknowledged(acknowledgements))
        for writer in writers:
            writer.start()
        _wait_for_more(acknowledgements, known, time.monotonic() + 60)
        for writer in writers:
            time.sleep(seeded.uniform(0, 0.05))
            writer.kill()
        for writer in writers:
            writer.join()
        _check_after_kill(storage, _acknowledged(acknowledgements))
    _check_log(storage)
    assert [key for key in keys(storage) if not _KEYS.fullmatch(key)] == []


def _check_after_kill(storage: Storage, acknowledged: list[str]) -> None:
    repository = Repository.open(storage)
    history = [info.message for info in repository.ancestry(branch="main")][-3::-1]
    assert len(set(history)) == len(history)
    assert set(acknowledged) <= set(history)
    reader = repository.readonly_session("main")
    for who, messages in itertools.groupby(sorted(history, key=lambda text: text[0]), key=lambda text: text[0]):
        newest = int(list(messages)[-1].split("/")[1])
        rows = int(who) * 1000
        assert (number(reader, rows), number(reader, rows + 1)) == (newest, newest)
        assert _packed(reader, rows + 2) == value(PACKED, newest)


def test_a_repository_is_used_after_a_fork_as_before(tmp_path: Path) -> None:
    storage = local_filesystem_storage(tmp_path / "repository")
    repository = create_repository(storage)
    results = call_in_processes("fork", commit_rows_of, [(storage, who, 3) for who in (1, 2)])
    assert [len(result) for result in results] == [3, 3], results
    assert len(list(repository.ancestry(branch="main"))) == 8
    assert repository.readonly_session("main").base_tip.sequence == 7
