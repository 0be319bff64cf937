"""Virtual chunks and the care of a repository: bad references are findings, sources out of reach are told."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import zarr
from typer.testing import CliRunner

import arraystore as ars
from arraystore.cli.app import make_app
from tests.session.test_virtual_refusals import BAD, NO_OBJECT, PREFIX, with_old_reference

VALUES = np.arange(10, dtype="u1")


def made(storage: ars.Storage, container: ars.Storage) -> ars.Repository:
    container.put_sync("x", VALUES.tobytes())
    repo = ars.Repository.create(storage, authorize_virtual_chunk_access={PREFIX: container})
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(30,), chunks=(10,), dtype="u1", compressors=None)
    array[:10] = 7
    session.store.set_virtual_ref("a/c/2", PREFIX + "x", offset=0, length=10)
    session.commit("array")
    return repo


@pytest.fixture
def container() -> ars.Storage:
    return ars.in_memory_storage()


@pytest.fixture
def repo(container: ars.Storage) -> ars.Repository:
    return made(ars.in_memory_storage(), container)


def without_containers(repo: ars.Repository) -> ars.Repository:
    return ars.Repository.open(repo.storage)


@pytest.mark.parametrize("level", ["metadata", "chunks"])
@pytest.mark.parametrize("url", [*BAD, *NO_OBJECT], ids=lambda url: ascii(url[:40]))
def test_an_old_bad_reference_is_a_finding_and_never_an_exception(repo: ars.Repository, url: str, level: str) -> None:
    with_old_reference(repo, url)
    report = repo.verify(level=level)
    (finding,) = report.findings
    assert (finding.severity, report.exit_code, report.complete) == (ars.Severity.WARNING, 3, True)
    assert finding.arrays == ("/a",)
    assert finding.snapshots == (repo.lookup_branch("main"),)
    assert repr(url[:100])[1:-1] in finding.problem
    assert "within a container" in finding.repair


SOME = [PREFIX, PREFIX + "../secret", PREFIX + "%2e%2e/secret", PREFIX + "a\0", "file:///etc/passwd", "no url"]


@pytest.mark.parametrize("url", SOME, ids=ascii)
def test_an_old_bad_reference_fails_no_care_of_the_repository(repo: ars.Repository, url: str) -> None:
    with_old_reference(repo, url)
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[:10] = 8
    session.commit("more")
    repo.compact()
    repo.rewrite_manifests("folded", branch="main")
    assert repo.statistics().arrays[0].chunks == 3
    assert repo.chunk_storage_stats().virtual_bytes >= 10
    repo.expire_snapshots(datetime.now(UTC))
    repo.garbage_collect(datetime.now(UTC))
    report = repo.maintain(ars.UpkeepOptions(collect_after=timedelta(0)))
    assert (report.status, report.errors, report.exit_code) == ("done", {}, 0)
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    assert array[:10].tolist() == [8] * 10
    np.testing.assert_array_equal(array[20:], VALUES)
    with pytest.raises(ars.VirtualReferenceError):
        array[10:20]


def test_a_source_that_has_changed_is_an_error_with_what_it_affects(
    repo: ars.Repository, container: ars.Storage
) -> None:
    assert repo.verify(level="chunks").exit_code == 0
    assert repo.maintain().status == "done"
    container.put_sync("x", VALUES[::-1].tobytes())
    report = repo.verify(level="chunks")
    (finding,) = report.findings
    assert (report.exit_code, finding.key, finding.arrays) == (4, PREFIX + "x", ("/a",))
    assert "expected ETag" in finding.problem
    assert repo.maintain().status == "damaged"
    assert repo.verify().exit_code == 0


@pytest.mark.parametrize("sample", [None, 100])
def test_sources_out_of_reach_are_counted_and_told(repo: ars.Repository, sample: int | None) -> None:
    report = without_containers(repo).verify(level="chunks", sample=sample)
    assert (report.ok, report.complete, report.exit_code, report.findings) == (True, False, 5, ())
    assert list(report.unread.values()) == [1]
    assert report.to_dict()["unread"] == dict(report.unread)
    assert "not read: 1 virtual chunks in s3://bucket/data/: in no container" in str(report)
    assert "nothing is wrong with what was read" in str(report)
    assert without_containers(repo).maintain().exit_code == 0


def test_a_storage_that_fails_is_out_of_reach_and_says_why(repo: ars.Repository, container: ars.Storage) -> None:
    down = ars.FaultyStorage(container, [ars.Fault(times=None)])
    opened = ars.Repository.open(repo.storage, authorize_virtual_chunk_access={PREFIX: down})
    report = opened.verify(level="chunks")
    assert report.exit_code == 5
    assert "failed on purpose" in str(report)


def test_an_unchecked_source_that_is_too_short_is_an_error(repo: ars.Repository, container: ars.Storage) -> None:
    session = repo.writable_session("main")
    session.store.set_virtual_ref("a/c/1", PREFIX + "x", offset=5, length=10, checksum=None)
    session.commit("beyond the end")
    report = repo.verify(level="chunks")
    assert (report.exit_code, len(report.errors)) == (4, 1)


def test_damage_counts_more_than_sources_out_of_reach_and_those_more_than_warnings(repo: ars.Repository) -> None:
    with_old_reference(repo, PREFIX + "../x")
    assert without_containers(repo).verify(level="chunks").exit_code == 5
    other = ars.in_memory_storage()
    other.put_sync("x", VALUES.tobytes())
    opened = ars.Repository.open(repo.storage, authorize_virtual_chunk_access={"s3://other/": other})
    session = opened.writable_session("main")
    session.store.set_virtual_ref("a/c/0", "s3://other/x", offset=0, length=10)
    session.commit("another place")
    assert opened.verify(level="chunks").exit_code == 5
    other.put_sync("x", VALUES[::-1].tobytes())
    report = opened.verify(level="chunks")
    assert (report.exit_code, sum(report.unread.values())) == (4, 1)


def test_the_command_line_says_what_it_could_not_read_with_a_status_of_its_own(tmp_path: Path) -> None:
    storage = ars.local_filesystem_storage(tmp_path / "repository", fsync=False)
    made(storage, ars.in_memory_storage())
    url = f"file://{tmp_path}/repository"
    run = CliRunner()
    assert run.invoke(make_app(), ["verify", url]).exit_code == 0
    done = run.invoke(make_app(), ["verify", url, "--level", "chunks"])
    assert done.exit_code == 5
    assert "1 virtual chunks in s3://bucket/data/" in done.stdout
    assert "nothing is wrong\n" not in done.stdout
    told = run.invoke(make_app(), ["verify", url, "--level", "chunks", "--json"])
    assert (told.exit_code, json.loads(told.stdout)["result"]["complete"]) == (5, False)
