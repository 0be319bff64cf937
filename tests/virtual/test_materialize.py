"""Virtual chunks are copied into the repository, batch by batch, and the values stay what they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from typer.testing import CliRunner

import arraystore as ars
from arraystore.cli.app import make_app
from arraystore.copying import MaterializeReport, materialize
from tests.virtual.conftest import Files, shown

PREFIX = "s3://bucket/data/"
CHUNK = 800


def values(size: int) -> np.ndarray[Any, Any]:
    return np.arange(size, dtype="<i8")


@pytest.fixture
def source() -> ars.Storage:
    storage = ars.in_memory_storage()
    for name in "ab":
        storage.put_sync(f"{name}.bin", values(1000).tobytes())
    return storage


@pytest.fixture
def repo(source: ars.Storage) -> ars.Repository:
    """Two arrays of ten chunks each, one of them in a group, and a chunk that is not virtual."""
    repo = ars.Repository.create(ars.in_memory_storage(), authorize_virtual_chunk_access={PREFIX: source})
    with repo.transaction("main", message="refer") as store:
        for name, path in (("a", "a"), ("b", "g/b")):
            array = zarr.create_array(store, name=path, shape=(1000,), chunks=(100,), dtype="<i8", compressors=None)
            offsets = CHUNK * np.arange(10)
            store.set_virtual_refs_arr(path, (10,), [f"{PREFIX}{name}.bin"] * 10, offsets, [CHUNK] * 10)
        array[:100] = -1
    return repo


def read(repo: ars.Repository, path: str) -> Any:
    plain = ars.Repository.open(repo.storage)  # without access to any container
    return np.asarray(zarr.open_array(plain.readonly_session("main").store, path=path, mode="r")[:])


def test_all_chunks_are_copied_in_batches_of_one_commit_each(repo: ars.Repository) -> None:
    assert materialize(repo, dry_run=True) == MaterializeReport(None, 0, 19, 19 * CHUNK)
    seen: list[int] = []
    report = materialize(repo, batch_bytes=5 * CHUNK, progress=lambda copied: seen.append(copied.bytes))
    assert (report.commits, report.chunks, report.bytes) == (4, 19, 19 * CHUNK)
    assert report.snapshot_id == repo.lookup_branch("main")
    assert seen[-1] == 19 * CHUNK
    np.testing.assert_array_equal(read(repo, "a"), values(1000))
    np.testing.assert_array_equal(read(repo, "g/b")[100:], values(1000)[100:])
    assert (read(repo, "g/b")[:100] == -1).all()
    assert materialize(repo) == MaterializeReport()


def test_only_the_group_that_is_named_is_copied(repo: ars.Repository) -> None:
    assert materialize(repo, group="/g").chunks == 9
    assert materialize(repo, group="a", dry_run=True).chunks == 10


def test_an_interrupted_run_continues_where_it_was(repo: ars.Repository) -> None:
    def stop(copied: Any) -> None:
        if copied.objects == 12:
            raise OSError("the network is gone")

    with pytest.raises(OSError, match="the network"):
        materialize(repo, batch_bytes=5 * CHUNK, progress=stop)
    assert materialize(repo).chunks == 9  # ten were committed


def test_what_others_write_meanwhile_is_kept(repo: ars.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    from arraystore.copying import virtual_chunks as module

    copy, written = module._copy_batch, []

    async def with_a_rival(*arguments: Any) -> bool:
        more = await copy(*arguments)
        if not written:
            written.append(1)
            rival = await repo.writable_session_async("main")
            await rival.write_async("a", slice(0, 100), np.full(100, -7))
            await rival.commit_async("rival")
        return more

    monkeypatch.setattr(module, "_copy_batch", with_a_rival)
    assert materialize(repo).chunks == 18
    assert (read(repo, "a")[:100] == -7).all()
    np.testing.assert_array_equal(read(repo, "a")[100:], values(1000)[100:])


def test_a_source_that_has_changed_is_not_copied(repo: ars.Repository, source: ars.Storage) -> None:
    source.put_sync("b.bin", b"x" * 8000)
    with pytest.raises(ars.SourceChangedError, match=r"chunk \(1,\) of '/g/b'"):
        materialize(repo)


def test_without_access_the_container_is_named(repo: ars.Repository) -> None:
    with pytest.raises(ars.VirtualReferenceError, match=PREFIX):
        materialize(ars.Repository.open(repo.storage))


@pytest.mark.parametrize(
    ("options", "reason"), [({"group": "x"}, "no group or array 'x'"), ({"batch_bytes": 0}, "> 0")]
)
def test_wrong_arguments_are_refused(repo: ars.Repository, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ars.ArrayStoreError, match=reason):
        materialize(repo, **options)


def run(*arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(make_app(), [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)["result"] if code == 0 else done.stderr


def test_files_are_referred_to_and_copied_by_commands(hdf5_files: Files, tmp_path: Path) -> None:
    url = str(tmp_path / "repository")
    first = run("virtualize", *hdf5_files.paths[:2], "--repo", url, "--group", "cube", "--concat-dim", "time")
    assert first["containers"] == [hdf5_files.prefix]
    last = run("virtualize", hdf5_files.paths[2], "--repo", url, "--group", "cube", "--append-dim", "time", "-m", "x")
    assert (last["message"], last["files"], last["containers"]) == ("x", 1, [])
    assert "--authorize PREFIX" in run("materialize", url, code=1)
    report = run("materialize", url, "--authorize", hdf5_files.prefix, "--batch", "100B")
    assert report["commits"] > 1
    plain = ars.Repository.open(ars.local_filesystem_storage(url))
    xr.testing.assert_identical(shown(plain, "cube"), hdf5_files.dataset())


def test_options_of_a_container_are_saved(hdf5_files: Files, tmp_path: Path) -> None:
    url = str(tmp_path / "repository")
    parent = f"file://{Path(hdf5_files.paths[0]).parents[1]}/"
    run("virtualize", hdf5_files.paths[0], "--repo", url, "--container", parent)
    assert run("config", "get", url, "virtual_chunk_containers") == {parent: {}}
