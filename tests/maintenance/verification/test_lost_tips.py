"""Newest records that are lost, and what else tells of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from arraystore import Repository
from arraystore._format.ids import SnapshotId
from arraystore._format.intent import intent_key
from tests.commit.support import commit_number, create_repository, delete, keys, put, put_number, run_alone
from tests.maintenance.verification.support import about, verified
from tests.seams import context_of


def _collect(repository: Repository) -> None:
    repository.garbage_collect(datetime.now(UTC))


def _flush(repository: Repository) -> None:
    session = repository.writable_session("dev")
    put_number(session, 1, 1)
    session.flush("on no branch")


def _propose(repository: Repository) -> None:
    context = context_of(repository)
    log = context.log("dev")
    newest = int(keys(repository.storage, log.prefix)[-1][-12:])
    put(repository.storage, intent_key(log.prefix, newest, SnapshotId(context.environment.new_id())), b"a proposal")


def _delete_branch(repository: Repository) -> None:
    repository.delete_branch("dev")


def _newest(repository: Repository) -> str:
    """Return the key of the newest record of the branch."""
    return [key for key in keys(repository.storage, context_of(repository).log("dev").prefix) if key[-13] == "/"][-1]


@pytest.fixture
def repository() -> Repository:
    repository = create_repository()
    repository.create_branch("dev", commit_number(repository, 0, 1))
    commit_number(repository, 1, 2, "dev")
    return repository


@pytest.mark.parametrize(
    ("leave", "severity", "witness"),
    [
        (_collect, "warning", "a collection has read record 2"),
        (_propose, "error", "on top of record 1"),
        (_delete_branch, "error", "that the branch was deleted"),
        (_flush, "warning", "is a checkpoint of record 1"),
    ],
)
def test_a_lost_newest_record_is_found_where_another_object_tells_of_it(
    repository: Repository, leave: Callable[[Repository], None], severity: str, witness: str
) -> None:
    leave(repository)
    assert verified(repository).findings == ()
    lost = _newest(repository)
    run_alone(repository.storage.delete([lost]))  # and not the proposal on top of it
    (finding,) = about(verified(repository), lost)
    assert finding.severity == severity
    assert witness in finding.problem


def test_all_records_of_a_branch_are_missed_that_a_collection_has_read(repository: Repository) -> None:
    _collect(repository)
    log = context_of(repository).log("dev")
    delete(repository.storage, log.prefix)
    (finding,) = about(verified(repository), log.key(0))
    assert "a collection has read record 2" in finding.problem


def test_a_full_collection_settles_that_records_are_lost_for_good(repository: Repository) -> None:
    _collect(repository)
    delete(repository.storage, _newest(repository))
    repository = Repository.open(repository.storage)
    commit_number(repository, 2, 3, "dev")
    repository.garbage_collect(datetime.now(UTC), full=True)
    assert verified(repository).findings == ()
