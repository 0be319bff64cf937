"""Sessions that are opened again where nothing but their handoff is known."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import zarr

from arraystore import ConflictDetector, Repository, local_filesystem_storage
from arraystore._session.handoff import hand_off
from arraystore.errors import (
    ConflictError,
    InvalidInputError,
    MergeConflictError,
    RepositoryGoneError,
    SessionStateError,
)
from arraystore.spark.fork_job import pickle_new_fork
from tests.spark.support import messages, read_array


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = Repository.create(local_filesystem_storage(tmp_path / "r", fsync=False))
    with repo.transaction("main", message="begin") as store:
        zarr.create_array(store, name="a", shape=(8,), chunks=(2,), dtype="i4")
    return repo


def written(fork_bytes: bytes, at: int, value: int) -> bytes:
    fork = pickle.loads(fork_bytes)
    zarr.open_array(fork.store, path="a", mode="r+")[at : at + 2] = value
    return fork.changes()


def in_another_process(tmp_path: Path, sent: object, body: str) -> str:
    """Run statements in a process that has nothing but what is sent."""
    (tmp_path / "sent").write_bytes(pickle.dumps(sent))
    code = "import pathlib, pickle, sys\nsent = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
    command = [sys.executable, "-c", code + textwrap.dedent(body), str(tmp_path / "sent")]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_forks_of_a_session_are_merged_and_committed_in_another_process(repo: Repository, tmp_path: Path):
    session = repo.writable_session("main")
    fork_bytes, handoff = pickle_new_fork(session), hand_off(session)
    sent = handoff, [written(fork_bytes, 0, 1), written(fork_bytes, 4, 3)]
    snapshot = in_another_process(
        tmp_path,
        sent,
        """
        handoff, payloads = sent
        session = handoff.open()
        session.merge(payloads)
        print(session.commit("elsewhere"))
        """,
    )
    assert read_array(repo).tolist() == [1, 1, 0, 0, 3, 3, 0, 0]
    assert messages(repo) == ["elsewhere", "begin"]
    assert next(iter(repo.ancestry(branch="main"))).id == snapshot


def test_a_handoff_is_small(repo: Repository):
    data = pickle.dumps(hand_off(repo.writable_session("main")))
    assert len(data) < 2000


def test_a_handoff_stays_at_its_snapshot_when_the_branch_moves(repo: Repository):
    session = repo.writable_session("main")
    fork_bytes, handoff = pickle_new_fork(session), pickle.loads(pickle.dumps(hand_off(session)))
    payload = written(fork_bytes, 0, 1)
    with repo.transaction("main", message="other") as store:
        zarr.open_array(store, path="a")[6:8] = 9
    opened = handoff.open()
    opened.merge(payload)
    with pytest.raises(ConflictError):
        opened.commit("behind")
    opened.commit("on top", rebase_with=ConflictDetector())
    assert read_array(repo).tolist() == [1, 1, 0, 0, 0, 0, 9, 9]
    assert messages(repo) == ["on top", "other", "begin"]


def test_forks_that_wrote_the_same_collide_after_a_handoff_too(repo: Repository):
    session = repo.writable_session("main")
    fork_bytes, handoff = pickle_new_fork(session), hand_off(session)
    opened = handoff.open()
    with pytest.raises(MergeConflictError, match="a"):
        opened.merge(written(fork_bytes, 0, 1), written(fork_bytes, 0, 2))
    assert not opened.has_uncommitted_changes


def test_forks_of_another_session_have_no_place_in_it(repo: Repository):
    handoff = hand_off(repo.writable_session("main"))
    foreign = written(pickle_new_fork(repo.writable_session("main")), 0, 1)
    with pytest.raises(MergeConflictError):
        handoff.open().merge(foreign)


def test_what_was_changed_before_forking_is_changed_again(repo: Repository):
    """The tasks of an overwrite see an array that was cleared; so must the session that they come handoff to."""
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[:] = 7
    handoff, payload = hand_off(session), written(pickle_new_fork(session), 0, 1)
    opened = handoff.open()
    zarr.open_array(opened.store, path="a")[:] = 7
    opened.merge(payload, on_overlap="last")
    opened.commit("both")
    assert read_array(repo).tolist() == [1, 1, 7, 7, 7, 7, 7, 7]


def test_isolation_is_kept(repo: Repository):
    assert hand_off(repo.writable_session("main", isolation="serializable")).open().isolation == "serializable"
    assert hand_off(repo.writable_session("main")).open().isolation == "snapshot"


def test_only_writable_sessions_of_a_branch_are_handed_off(repo: Repository):
    session = repo.writable_session("main")
    for other in (repo.readonly_session("main"), session.fork()):
        with pytest.raises(InvalidInputError, match="must be a writable session of a branch"):
            hand_off(other)


def test_a_session_into_which_forks_were_merged_is_not_handed_off(repo: Repository):
    session = repo.writable_session("main")
    session.merge(written(pickle_new_fork(session), 0, 1))
    with pytest.raises(SessionStateError, match="forks have been merged into this session already"):
        hand_off(session)


def test_a_repository_that_was_made_anew_takes_no_handoff(repo: Repository, tmp_path: Path):
    import shutil

    session = repo.writable_session("main")
    handoff = pickle.dumps(hand_off(session))
    shutil.rmtree(tmp_path / "r")
    with Repository.create(local_filesystem_storage(tmp_path / "r", fsync=False)).transaction("main", message="x") as s:
        zarr.create_array(s, name="b", shape=(8,), chunks=(2,), dtype=np.int8)
    with pytest.raises(RepositoryGoneError, match="was created in its place"):
        pickle.loads(handoff).open()
