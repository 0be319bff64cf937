"""Every checkpoint holds the digest of the log up to its record, whoever writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import zarr

from arraystore import Repository, in_memory_storage
from arraystore._format.digest import DIGEST_BYTES
from arraystore._format.record import decode_record
from arraystore._format.snapshot import Checkpoint, decode_checkpoint, encode_checkpoint
from arraystore._maintenance.collection import retire
from arraystore._maintenance.verification.repair import repair
from arraystore._runtime import run
from arraystore.storage import MemoryStorage
from tests.commit.support import commit_rows, create_repository, delete, keys, put, put_number
from tests.keys import id_of, log_of, record
from tests.maintenance.verification.support import verified
from tests.seams import context_of


def _checkpoints(storage: MemoryStorage) -> dict[str, Checkpoint]:
    return {key: decode_checkpoint(key, storage.get_sync(key)) for key in keys(storage, "snapshots/")}


def _digest(storage: MemoryStorage, branch: str, number: int) -> bytes:
    key = record(storage, number, branch)
    return decode_record(key, storage.get_sync(key), branch, number, id_of(storage)).digest


def _tag(repository: Repository) -> None:
    repository.create_tag("old", list(repository.ancestry(branch="main"))[5].id)


def _branch(repository: Repository) -> None:
    repository.create_branch("old", list(repository.ancestry(branch="main"))[5].id)


def _branch_of_a_survivor(repository: Repository) -> None:
    _tag(repository)
    _expire(repository)
    for number in range(3):
        delete(repository.storage, record(repository.storage, number))
    fresh = Repository.open(repository.storage)
    fresh.create_branch("again", fresh.lookup_tag("old"))


def _reset(repository: Repository) -> None:
    repository.reset_branch("main", list(repository.ancestry(branch="main"))[5].id)


def _flush(repository: Repository) -> None:
    put_number(session := repository.writable_session("main"), 7, 7)
    session.flush("nowhere")


def _large(repository: Repository) -> None:
    session = repository.writable_session("main")
    for number in range(50):
        zarr.create_array(session.store, name=f"array {number}", shape=(1,), dtype="i8")
    session.commit("with an attached change log")


def _expire(repository: Repository) -> None:
    repository.expire_snapshots(datetime.now(UTC))


def _retire(repository: Repository) -> None:
    repository.create_branch("done", repository.lookup_branch("main"))
    for number in range(3):
        put_number(session := repository.writable_session("done"), number, 1)
        session.commit(str(number))
    repository.delete_branch("done")
    repository.garbage_collect(datetime.now(UTC))


def _repair(repository: Repository) -> None:
    storage = repository.storage
    _tag(repository)
    delete(storage, next(iter(_checkpoints(storage))))
    context = context_of(Repository.open(storage))
    assert run(repair(context.storage, context.repository, context.environment)).ok


@pytest.mark.parametrize(
    "write", [_tag, _branch, _branch_of_a_survivor, _reset, _flush, _large, _expire, _retire, _repair]
)
def test_every_checkpoint_holds_the_digest_of_its_record(
    write: Callable[[Repository], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retire, "FEW_RECORDS", 0)
    storage = in_memory_storage()
    repository = create_repository(storage)
    commit_rows(repository, 1, 9)
    digests = {number: _digest(storage, "main", number) for number in range(len(keys(storage, log_of(storage))))}
    repository.wait_for_maintenance()
    before = _checkpoints(storage)
    write(repository)
    repository.wait_for_maintenance()
    made = {key: found for key, found in _checkpoints(storage).items() if key not in before}
    assert made
    for found in made.values():
        known = digests.get(found.sequence) if found.branch == "main" else None
        assert found.digest == known or found.digest == _digest(storage, found.branch, found.sequence)


def test_a_checkpoint_with_the_digest_of_another_log_is_found_and_written_anew() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commit_rows(repository, 1, 9)
    _tag(repository)
    ((key, found),) = _checkpoints(storage).items()
    put(storage, key, encode_checkpoint(key, replace(found, digest=bytes(DIGEST_BYTES))))
    (finding,) = verified(repository).errors
    assert "digest of another log" in finding.problem
    context = context_of(Repository.open(storage))
    assert run(repair(context.storage, context.repository, context.environment)).ok
    assert _checkpoints(storage)[key].digest == found.digest
    assert verified(repository).findings == ()
