"""What a ref names, and sessions that stay on it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import (
    InvalidInputError,
    RefNotFoundError,
    Repository,
    RepositoryNotFoundError,
    SnapshotNotFoundError,
    StorageError,
    in_memory_storage,
    local_filesystem_storage,
    s3_storage,
)
from arraystore.spark.snapshots import check_reachable, pinned_session


@pytest.fixture
def place(tmp_path: Path) -> Path:
    Repository.create(local_filesystem_storage(tmp_path / "repo"))
    return tmp_path / "repo"


def opened(place: Path) -> Repository:
    return Repository.open(local_filesystem_storage(place))


def commit(repo: Repository, value: int, branch: str = "main") -> str:
    session = repo.writable_session(branch)
    array = zarr.open_array(session.store, path="v", mode="a", shape=(2,), chunks=(1,), dtype="i4")
    array[:] = value
    return session.commit(f"{value}")


def test_a_ref_is_a_branch_a_tag_or_a_snapshot(place: Path) -> None:
    repo = opened(place)
    first = commit(repo, 1)
    repo.create_tag("v1", first)
    second = commit(repo, 2)
    repo.create_branch("other", first)
    for options, snapshot in [
        ({}, second),
        ({"branch": "other"}, first),
        ({"tag": "v1"}, first),
        ({"snapshot_id": first}, first),
        ({"ref": "main"}, second),
        ({"ref": "v1"}, first),
        ({"ref": first}, first),
        ({"as_of": datetime.now(UTC) + timedelta(hours=1)}, second),
    ]:
        assert pinned_session(repo, **options).snapshot_id == snapshot  # type: ignore[arg-type]


def test_a_repository_may_be_given_by_path_or_url(place: Path) -> None:
    snapshot = commit(opened(place), 1)
    for source in (place, str(place), f"file://{place}"):
        assert pinned_session(source).snapshot_id == snapshot
    with pytest.raises(RepositoryNotFoundError):
        pinned_session(place / "nothing")
    with pytest.raises(InvalidInputError, match="not int"):
        pinned_session(3)  # type: ignore[arg-type]


def test_a_name_of_a_branch_and_of_a_tag_is_refused(place: Path) -> None:
    repo = opened(place)
    repo.create_tag("main", commit(repo, 1))
    with pytest.raises(InvalidInputError, match="is a branch and a tag"):
        pinned_session(repo, ref="main")
    assert pinned_session(repo, branch="main")


def test_an_unknown_ref_is_refused_with_those_that_there_are(place: Path) -> None:
    repo = opened(place)
    repo.create_tag("v1", commit(repo, 1))
    with pytest.raises(RefNotFoundError, match=r"'mian'.*'main', 'v1'"):
        pinned_session(repo, ref="mian")
    with pytest.raises(RefNotFoundError):
        pinned_session(repo, branch="mian")
    with pytest.raises(SnapshotNotFoundError):
        pinned_session(repo, snapshot_id="0" * len(pinned_session(repo).snapshot_id))


def test_only_one_of_the_names_may_be_given(place: Path) -> None:
    repo = opened(place)
    with pytest.raises(InvalidInputError, match="branch and tag are given"):
        pinned_session(repo, branch="main", tag="v1")
    with pytest.raises(InvalidInputError, match="tag and as_of cannot be chosen"):
        pinned_session(repo.readonly_session("main"), tag="v1", as_of=datetime.now(UTC))


def test_a_session_stays_on_its_snapshot_when_the_branch_moves(place: Path) -> None:
    repo = opened(place)
    commit(repo, 1)
    pinned = pinned_session(repo)
    commit(repo, 2)
    assert np.all(zarr.open_array(pinned.store, path="v", mode="r")[:] == 1)
    assert pinned_session(pinned) is pinned


def test_a_repository_that_workers_cannot_open_is_refused_before_any_of_them_tries(place: Path) -> None:
    def check(storage: Any) -> None:
        context: Any = SimpleNamespace(storage=storage)
        check_reachable(context)

    with pytest.raises(InvalidInputError, match=r"memory://\w+ is memory of this process"):
        check(in_memory_storage())
    secret: Any = {"access_key_id": "id", "secret_access_key": "hunter2", "region": "x"}
    with pytest.raises(StorageError, match="pickle_credentials=True") as caught:
        check(s3_storage(bucket="b", **secret))
    assert "hunter2" not in str(caught.value)
    check(s3_storage(bucket="b", pickle_credentials=True, **secret))
    check(s3_storage(bucket="b", region="x", get_credentials=lambda: None))  # Spark pickles functions by value
    check(local_filesystem_storage(place))
