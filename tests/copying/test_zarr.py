"""Plain Zarr hierarchies come in and go out with the same keys and bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.core.buffer import Buffer
from zarr.storage import LocalStore, MemoryStore, ZipStore

from arraystore import ConflictDetector, ConflictError, MemoryStorage, Repository
from arraystore.copying import CopyIncompleteError, CopyTargetError, export_zarr, import_zarr
from arraystore.copying import zarr_locations as copying_places
from arraystore.errors import (
    InvalidInputError,
    NodeNotFoundError,
    RefNotFoundError,
    RepositoryNotFoundError,
    StorageError,
)
from arraystore.storage import CountingStorage, Fault, FaultyStorage, local_filesystem_storage
from tests.copying.support import FarMemory, contents, new_repository, objects, random_history, reopened
from tests.session.programs import unconsolidated
from tests.tiers import mostly_thorough


def make_v3(store: object) -> None:
    """Write groups, arrays of several kinds, shards, and consolidated metadata."""
    root = zarr.create_group(store, attributes={"title": "all of it"})
    numbers = np.arange(600, dtype="i4").reshape(20, 30)
    root.create_array("a", data=numbers, chunks=(7, 9))
    root.create_array("deep/er/sharded", data=numbers, chunks=(5, 5), shards=(10, 15))
    root.create_array("scalar", data=np.array(3.5))
    root.create_array("dotted", data=numbers, chunks=(10, 30), chunk_key_encoding={"name": "v2", "separator": "."})
    root.create_array("holes", shape=(1000,), chunks=(10,), dtype="u1")[300:320] = 7
    root.create_array("nothing", shape=(0, 4), chunks=(1, 4), dtype="f4")
    zarr.consolidate_metadata(store)  # type: ignore[arg-type]


def make_v2(store: object) -> None:
    """The same in the older format."""
    root = zarr.create_group(store, zarr_format=2, attributes={"title": "old"})
    root.create_array("a", data=np.arange(40, dtype="f8").reshape(5, 8), chunks=(2, 3))
    root.create_array("g/b", data=np.arange(6), chunks=(2,), chunk_key_encoding={"name": "v2", "separator": "/"})
    root["a"].attrs["units"] = "m"
    zarr.consolidate_metadata(store, zarr_format=2)  # type: ignore[arg-type]


MAKERS = {"v3": make_v3, "v2": make_v2}


def kept(path: Path) -> dict[str, bytes]:
    """Return what a repository keeps of a hierarchy in files: all but consolidated metadata."""
    return unconsolidated(files(path))


def files(path: Path) -> dict[str, bytes]:
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def below(group: str, keys: dict[str, bytes]) -> dict[str, bytes]:
    return {key.removeprefix(group + "/"): value for key, value in keys.items() if key.startswith(group + "/")}


@pytest.mark.parametrize("version", MAKERS)
@pytest.mark.parametrize("kind", ["path", "url", "storage", "store", "group", "zip"])
def test_what_is_imported_has_the_same_keys_and_bytes(tmp_path: Path, version: str, kind: str) -> None:
    make = MAKERS[version]
    make(LocalStore(tmp_path / "data"))
    expected, before = kept(tmp_path / "data"), files(tmp_path / "data")
    source: object = tmp_path / "data"
    if kind == "url":
        source = f"file://{tmp_path}/data"
    elif kind == "storage":
        source = local_filesystem_storage(tmp_path / "data")
    elif kind == "store":
        source = LocalStore(tmp_path / "data", read_only=True)
    elif kind == "group":
        source = zarr.open_group(LocalStore(tmp_path / "data"), mode="r")
    elif kind == "zip":
        source = shutil.make_archive(str(tmp_path / "data"), "zip", tmp_path / "data")
    repo = new_repository(None)
    report = import_zarr(source, repo, message="in", metadata={"a": 1})  # type: ignore[arg-type]
    assert contents(repo.readonly_session("main")) == expected
    assert report.documents + report.chunks == len(expected)
    assert report.bytes == sum(map(len, expected.values()))
    tip = next(repo.ancestry(branch="main"))
    assert (tip.id, tip.message, tip.metadata) == (report.snapshot_id, "in", {"a": 1})
    assert files(tmp_path / "data") == before


@pytest.mark.parametrize("version", MAKERS)
def test_a_hierarchy_goes_below_a_group_and_comes_out_of_it_again(tmp_path: Path, version: str) -> None:
    MAKERS[version](LocalStore(tmp_path / "data"))
    repo = new_repository(None)
    import_zarr(tmp_path / "data", repo, group="/some/where")
    held = contents(repo.readonly_session("main"))
    assert below("some/where", held) == kept(tmp_path / "data")
    assert zarr.open_group(repo.readonly_session("main").store, mode="r")["some/where/a"].shape[0] > 0
    report = export_zarr(repo, tmp_path / "out", branch="main", group="some/where")
    assert files(tmp_path / "out") == kept(tmp_path / "data")
    assert report.bytes == sum(map(len, files(tmp_path / "out").values()))
    export_zarr(repo, tmp_path / "array", branch="main", group="some/where/a")
    assert np.array_equal(zarr.open_array(tmp_path / "array")[:], zarr.open_array(tmp_path / "data" / "a")[:])


@pytest.mark.parametrize("seed", mostly_thorough(range(4)))
@pytest.mark.parametrize("kind", ["storage", "far", "store", "path"])
def test_what_is_exported_has_the_keys_and_bytes_of_the_snapshot(tmp_path: Path, seed: int, kind: str) -> None:
    storage = FarMemory() if kind == "far" else MemoryStorage()
    repo = new_repository(storage=storage)
    random_history(repo, seed, 12)
    expected = contents(repo.readonly_session("main"))
    held: dict[str, Buffer] = {}
    targets: dict[str, object] = {"storage": MemoryStorage(), "far": FarMemory(), "store": MemoryStore(held)}
    target = targets.get(kind, tmp_path / "out")
    report = export_zarr(repo, target, branch="main")  # type: ignore[arg-type]
    if isinstance(target, MemoryStorage):
        found = objects(target)
    elif isinstance(target, Path):
        found = files(target)
    else:
        found = {key: value.to_bytes() for key, value in held.items()}
    assert found == expected
    assert report.documents + report.chunks + report.files == len(expected)


def test_an_import_does_not_replace_what_is_there_unless_asked(tmp_path: Path) -> None:
    make_v3(LocalStore(tmp_path / "data"))
    repo = new_repository(None)
    random_history(repo, 1, 2)
    before = contents(repo.readonly_session("main"))
    with pytest.raises(CopyTargetError, match="overwrite=True"):
        import_zarr(tmp_path / "data", repo)
    import_zarr(tmp_path / "data", repo, group="new")
    with pytest.raises(CopyTargetError, match="a node exists at '/new'"):
        import_zarr(tmp_path / "data", repo, group="new")
    assert contents(repo.readonly_session("main")).items() >= before.items()
    import_zarr(tmp_path / "data", repo, overwrite=True)
    assert contents(repo.readonly_session("main")) == kept(tmp_path / "data")


def test_chunks_that_no_reader_looks_for_are_left_out_and_named(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "data", shape=(4,), chunks=(2,), dtype="i4")[:] = 1
    (tmp_path / "data" / "c" / "7").write_bytes(b"stale")
    (tmp_path / "data" / "README.md").write_bytes(b"read me")
    repo = new_repository(None)
    report = import_zarr(tmp_path / "data", repo, group="a")
    assert [item.key for item in report.left_out] == ["c/7"]
    assert (report.chunks, report.files) == (2, 1)
    assert contents(repo.readonly_session("main"))["a/README.md"] == b"read me"


def test_what_is_no_hierarchy_is_refused(tmp_path: Path) -> None:
    repo = new_repository(None)
    (tmp_path / "file.txt").write_bytes(b"x")
    before = repo.lookup_branch("main")
    for source in (tmp_path, tmp_path / "missing", MemoryStorage(), MemoryStore(), 7):
        with pytest.raises(InvalidInputError):
            import_zarr(source, repo)  # type: ignore[arg-type]
    with pytest.raises(RefNotFoundError):
        import_zarr(tmp_path, repo, branch="dev")
    assert repo.lookup_branch("main") == before


def test_an_import_creates_a_repository_in_a_storage_only_for_a_hierarchy(tmp_path: Path) -> None:
    target = MemoryStorage()
    with pytest.raises(InvalidInputError, match="no Zarr hierarchy"):
        import_zarr(tmp_path, target)
    make_v3(tmp_path / "good")
    with pytest.raises(RepositoryNotFoundError):
        import_zarr(tmp_path / "good", target, branch="dev")
    assert not Repository.exists(target)
    import_zarr(tmp_path / "good", target)
    import_zarr(tmp_path / "good", target, group="again")
    assert below("again", contents(Repository.open(target).readonly_session("main"))) == kept(tmp_path / "good")


def test_without_listing_consolidated_metadata_tells_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for make in MAKERS.values():
        held: dict[str, Buffer] = {}
        store = MemoryStore(held)
        make(store)
        monkeypatch.setattr(MemoryStore, "supports_listing", False)
        repo = new_repository(None)
        import_zarr(store, repo)
        imported = contents(repo.readonly_session("main"))
        assert imported == unconsolidated({key: value.to_bytes() for key, value in held.items()})
        monkeypatch.undo()


def test_an_import_is_rebased_like_any_commit(tmp_path: Path) -> None:
    make_v3(LocalStore(tmp_path / "data"))

    class Slow(LocalStore):
        async def get(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            if repo.lookup_branch("main") == first:
                other = reopened(storage).writable_session("main")
                other.hierarchy.set_sync("notes.txt", memoryview(b"mine"))
                other.commit("meanwhile")
            return await super().get(*args, **kwargs)  # type: ignore[arg-type]

    storage = MemoryStorage()
    repo = new_repository(storage=storage)
    first = repo.lookup_branch("main")
    with pytest.raises(ConflictError):
        import_zarr(Slow(tmp_path / "data"), repo, group="new")
    first = repo.lookup_branch("main")
    import_zarr(Slow(tmp_path / "data"), repo, group="new", rebase_with=ConflictDetector())
    assert below("new", contents(repo.readonly_session("main"))) == kept(tmp_path / "data")


def test_an_export_does_not_replace_what_is_there_unless_it_is_zarr_and_asked(tmp_path: Path) -> None:
    repo = new_repository(None)
    random_history(repo, 1, 4)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_bytes(b"years of work")
    for overwrite in (False, True):
        with pytest.raises(CopyTargetError, match=r"thesis\.tex"):
            export_zarr(repo, tmp_path / "out", branch="main", overwrite=overwrite)
    assert files(tmp_path / "out") == {"thesis.tex": b"years of work"}
    make_v3(LocalStore(tmp_path / "old"))
    with pytest.raises(CopyTargetError, match="overwrite=True"):
        export_zarr(repo, tmp_path / "old", branch="main")
    export_zarr(repo, tmp_path / "old", branch="main", overwrite=True)
    assert files(tmp_path / "old") == contents(repo.readonly_session("main"))


def test_an_export_that_fails_at_any_request_goes_on_where_it_was() -> None:
    repo = new_repository()
    random_history(repo, 2, 8)
    other = random_history(repo, 3, 1)[0]
    before = list(repo.ancestry(branch="main"))[1].id
    expected = contents(repo.readonly_session("main"))
    counting = CountingStorage(MemoryStorage())
    export_zarr(repo, counting, branch="main")
    total = counting.counts.total
    for first in range(1, total + 1):
        for when in ("before", "after"):
            target = MemoryStorage()
            with pytest.raises(StorageError):
                export_zarr(repo, FaultyStorage(target, [Fault(first=first, times=None, when=when)]), branch="main")
            held = objects(target)
            if held and "arraystore-export.json" in held:
                with pytest.raises(CopyTargetError, match="another snapshot"):
                    export_zarr(repo, target, snapshot_id=before)
                with pytest.raises(CopyIncompleteError, match="interrupted"):
                    import_zarr(target, new_repository())
                report = export_zarr(repo, target, snapshot_id=other)
                chunks = {key for key in held if key in expected and "zarr" not in key and not key.startswith("old")}
                assert report.skipped >= len(chunks)
            elif not held:
                export_zarr(repo, target, branch="main")
            assert objects(target) == expected


def test_nothing_to_export_is_an_error(tmp_path: Path) -> None:
    repo = new_repository()
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(NodeNotFoundError):
        export_zarr(repo, MemoryStorage(), branch="main", group="missing")
    for target in ("http://localhost/out", "out.zip", tmp_path / "file", 7):
        with pytest.raises(InvalidInputError):
            export_zarr(repo, target, branch="main", group="missing")  # type: ignore[arg-type]


def test_imports_of_the_web_ask_for_no_listing() -> None:
    place = copying_places.open_source("http://localhost:1/data.zarr")
    assert not place.listable


def test_zarr_and_back_is_the_same_for_a_repository_as_the_source(tmp_path: Path) -> None:
    repo = new_repository()
    random_history(repo, 5, 10)
    other = new_repository()
    import_zarr(repo.readonly_session("main").store, other)
    assert contents(other.readonly_session("main")) == contents(repo.readonly_session("main"))
    with ZipStore(tmp_path / "out.zip", mode="w") as store:
        export_zarr(other, store, branch="main")
    third = new_repository()
    import_zarr(tmp_path / "out.zip", third)
    assert contents(third.readonly_session("main")) == contents(repo.readonly_session("main"))
    assert isinstance(third, Repository)
