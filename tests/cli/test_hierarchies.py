"""Hierarchies from and to other formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr

from arraystore import InvalidInputError, Repository, local_filesystem_storage
from arraystore.cli.icechunk import icechunk_storage
from tests.cli.conftest import Cli, Made


@pytest.fixture
def plain_zarr(tmp_path: Path) -> Path:
    group = zarr.create_group(tmp_path / "plain.zarr", attributes={"title": "plain"})
    group.create_array("a/b", data=np.arange(12.0), chunks=(5,))
    return tmp_path / "plain.zarr"


def test_a_zarr_hierarchy_comes_in_as_one_commit_of_a_repository_that_is_made_if_need_be(
    cli: Cli, plain_zarr: Path, tmp_path: Path
) -> None:
    report = cli("import", "zarr", plain_zarr, tmp_path / "new", "--group", "from", "-m", "all of it", "--json").json
    repository = Repository.open(local_filesystem_storage(str(tmp_path / "new")))
    newest = next(repository.ancestry(branch="main"))
    assert (newest.id, newest.message, report["chunks"]) == (report["snapshot_id"], "all of it", 3)
    store = repository.readonly_session("main").store
    assert list(zarr.open_array(store, path="from/a/b", mode="r")[:]) == list(np.arange(12.0))
    again = cli("import", "zarr", plain_zarr, tmp_path / "new", "--group", "from", code=1)
    assert again.err.startswith("error: ")
    assert "documents" in cli("import", "zarr", plain_zarr, tmp_path / "new", "--group", "from", "--overwrite").out


def test_what_is_no_zarr_hierarchy_is_an_error(cli: Cli, made: Made, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert cli("import", "zarr", tmp_path / "empty", made.url, code=1).err.startswith("error: ")
    assert made.open().lookup_branch("main") == made.tip


def test_a_snapshot_goes_out_as_plain_zarr_with_credentials_that_only_read(
    cli: Cli, made: Made, tmp_path: Path, read_only: None
) -> None:
    report = cli("export", made.url, tmp_path / "out", "--ref", "main~1", "--group", "climate", "--json").json
    assert report["snapshot_id"] == made.snapshots[2]
    rain = np.asarray(zarr.open_array(tmp_path / "out" / "north" / "rain", mode="r")[:])
    assert list(rain.ravel()) == made.values("climate/north/rain", snapshot_id=made.snapshots[2])


def test_an_export_replaces_another_one_only_when_told_and_confirmed(
    cli: Cli, made: Made, tmp_path: Path, asked: Callable[[str], None]
) -> None:
    cli("export", made.url, tmp_path / "out", "--ref", "main~1")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert cli("export", made.url, tmp_path / "out", code=1).err.startswith("error: ")
    asked("n\n")
    assert "nothing was changed" in cli("export", made.url, tmp_path / "out", "--overwrite", code=13).err
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before
    cli("export", made.url, tmp_path / "out", "--overwrite", "--yes")
    rain = np.asarray(zarr.open_array(tmp_path / "out" / "climate" / "north" / "rain", mode="r")[:])
    assert list(rain.ravel()) == made.values("climate/north/rain")


def test_an_icechunk_repository_comes_in_with_its_history(cli: Cli, tmp_path: Path) -> None:
    theirs = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "ice")))
    for value in (1, 2):
        session = theirs.writable_session("main")
        array = zarr.open_group(session.store, mode="a").require_array("a", shape=(4,), chunks=(2,), dtype="i4")
        array[:2] = value
        newest = session.commit(f"write {value}")
    theirs.create_tag("v1", newest)
    cli("import", "icechunk", tmp_path / "ice", tmp_path / "ours")
    repository = Repository.open(local_filesystem_storage(str(tmp_path / "ours")))
    assert [info.message for info in repository.ancestry(tag="v1")][:2] == ["write 2", "write 1"]
    session = repository.readonly_session("main")
    assert list(zarr.open_array(session.store, path="a", mode="r")[:]) == [2, 2, 0, 0]
    assert "no branch 'none'" in cli("import", "icechunk", tmp_path / "ice", tmp_path / "o", "-b", "none", code=1).err


def test_a_place_without_icechunk_repository_is_an_error_and_makes_nothing(
    cli: Cli, made: Made, tmp_path: Path
) -> None:
    answer = cli("import", "icechunk", tmp_path / "none", tmp_path / "ours", code=1)
    assert answer.err.startswith("error: ")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/x?region=eu-west-1&allow_http=true",
        "s3://bucket/x?anonymous=true",
        "gs://bucket/x",
        "az://account/c/x",
    ],
)
def test_the_urls_of_icechunk_repositories_are_those_of_ours(url: str) -> None:
    icechunk_storage(url)


@pytest.mark.parametrize(
    "url", ["s3://key:secret@bucket/x", "s3://bucket/x?token=secret", "gs://b/x?region=r", "ftp://h/x"]
)
def test_a_url_of_an_icechunk_repository_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        icechunk_storage(url)
    assert "secret" not in str(caught.value)


def test_a_repository_without_anything_is_shown_and_exported_as_empty(cli: Cli, tmp_path: Path) -> None:
    cli("init", tmp_path / "new")
    assert cli("tree", tmp_path / "new").out == "/\n(empty)\n"
    assert cli("ls", tmp_path / "new").out == "(empty)\n"
    assert cli("export", tmp_path / "new", tmp_path / "out", "--json").json["documents"] == 1
    assert list(zarr.open_group(tmp_path / "out", mode="r").members()) == []
