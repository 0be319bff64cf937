"""A reader written from the specification alone sees in a repository what arraystore sees."""

from __future__ import annotations

import ast
import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore._format.envelope import pack_body, unpack_body
from arraystore._format.ids import id_from_text
from arraystore._runtime import run
from arraystore._session.store import ArrayStore
from arraystore.storage import Storage
from tests.seams import context_of, waiting_commits
from tests.simulation import checker
from tests.simulation.checker.decoder import Reader
from tests.simulation.checker.decoding import id_text
from tests.simulation.checker.repository import TAG_CREATED, read_repository
from tests.simulation.checker.states import Node, Snapshot

URL = "s3://elsewhere/"


async def _all_objects(storage: Storage) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    async for page in storage.list(""):
        for item in page:
            found[item.key] = bytes(await storage.get(item.key))
    return found


def fill(repo: ars.Repository) -> dict[str, str]:
    """Make a history with every feature that can be written; returns snapshots by tag."""
    random = np.random.default_rng(3)
    with repo.transaction("main", message="Create", metadata={"é": [1, None, {"a": 2.5}]}) as store:
        root = zarr.create_group(store, attributes={"title": "all"})
        root.create_array("dense", shape=(40, 30), chunks=(4, 5), dtype="f8")[:] = random.random((40, 30))
        root.create_array("sparse", shape=(1 << 30, 9), chunks=(1, 3), dtype="i4", fill_value=-1)
        ragged = root.create_array("ragged", shape=(150, 900), chunks=(1, 900), dtype="u1")
        ragged[:] = [random.integers(0, 255, 900) * (np.arange(900) < 100 + i * 37 % 800) for i in range(150)]
        root.create_array("point", shape=(), dtype="i2")[...] = 5
        root.create_array("deep/down/moved", shape=(6,), chunks=(2,), dtype="i1")[:] = 1
        root.create_array("virtual", shape=(8,), chunks=(2,), dtype="u1", compressors=None)
        zarr.create_array(store, name="old/array", shape=(5, 5), chunks=(2, 2), dtype="i2", zarr_format=2)[:] = 7
    repo.create_tag("v1/é", repo.lookup_branch("main"))
    with repo.transaction("main", message="Sparse, virtual, file") as store:
        sparse = zarr.open_array(store, path="sparse")
        for row in (0, 5, 1000, 1 << 20, (1 << 30) - 1):
            sparse[row, 3:6] = row % 1000
        store.set_virtual_refs_arr("virtual", (3,), [URL + "a/é", URL + "b", URL + "a/é"], [3, 0, 7], [2, 2, 2])
        store.set_sync("notes.txt", _buffer(b"a file"))
        store.set_sync("empty", _buffer(b""))
    with repo.transaction("main", message="x" * 1000, metadata={"long": "y" * 500}) as store:
        for i in range(60):  # too many documents for a record
            zarr.create_array(store, name=f"many/é{i}", shape=(3,), chunks=(1,), dtype="i1")[:] = i
    append_and_move(repo)
    for i in range(75):  # past a checkpoint, a page and some folding
        with repo.transaction("main", message=f"Commit {i}") as store:
            zarr.open_array(store, path="dense")[i % 40, :] = i
            zarr.open_array(store, path="sparse")[i * 7, 0:3] = i
    with repo.transaction("main", message="Change and delete") as store:
        root = zarr.open_group(store)
        root.attrs["title"] = "changed"
        zarr.open_array(store, path="dense").resize((23, 30))
        del root["many/é3"]
        root["sparse"][5, 3:6] = -1
    with repo.transaction("main", message="Large") as store:
        zarr.open_group(store).attrs["large"] = "z" * 300_000
    repo.create_branch("side/é", repo.lookup_branch("main"))
    with repo.transaction("side/é", message="Aside") as store:
        zarr.open_array(store, path="dense")[0, 0] = -1
    live(repo)
    return {"v1/é": repo.lookup_tag("v1/é")}


def live(repo: ars.Repository) -> None:
    """Leave every entry that changes no data, but for expiries, which the history would not show any more."""
    newest = repo.lookup_branch("main")
    for name in ("reset/é", "gone", "again"):
        repo.create_branch(name, newest)
    with repo.transaction("reset/é", message="Left behind") as store:
        zarr.open_array(store, path="dense")[0, 0] = -2
    repo.reset_branch("reset/é", newest)
    with repo.transaction("reset/é", message="After the reset") as store:
        zarr.open_array(store, path="dense")[0, 0] = -3
    for name in ("gone", "again"):
        repo.delete_branch(name)
    repo.create_branch("again", repo.lookup_tag("v1/é"))
    repo.create_tag("burnt", newest)
    repo.delete_tag("burnt")
    repo.set_metadata({"é": [1, None]})
    repo.set_status(ars.RepoStatus(ars.RepoAvailability.read_only))
    repo.set_status(ars.RepoStatus(ars.RepoAvailability.online))
    for number in range(60):  # past a table
        repo.update_metadata({"number": number})
    repo.create_tag("late", newest)


def append_and_move(repo: ars.Repository) -> None:
    """Append at the same time, swap, and share a record."""
    with repo.transaction("main", message="Series") as store:
        for name, format_ in (("series", 3), ("series2", 2)):
            attributes = {"_ARRAY_DIMENSIONS": ["t"]} if format_ == 2 else {}
            names = ["t"] if format_ == 3 else None
            array = zarr.create_array(
                store, name=name, shape=(6,), chunks=(3,), dtype="i2", zarr_format=format_, dimension_names=names,
                attributes=attributes,
            )  # fmt: skip
            array[:] = 1
    appenders = [repo.writable_session("main") for _ in range(3)]
    for number, session in enumerate(appenders):
        session.append({"series": [number] * 3, "series2": [number + 10] * 3}, "t")
        session.commit(f"Append {number}", rebase_with=ars.ConflictDetector())
    swap = repo.writable_session("main")
    swap.move("series", "aside")
    swap.move("series2", "series")
    swap.move("aside", "series2")
    swap.move("deep/down", "down")
    swap.move("down/moved", "deep/moved")
    swap.commit("Swap")
    together = [repo.writable_session("main") for _ in range(4)]
    for number, session in enumerate(together):
        zarr.open_array(session.store, path="dense")[4 * number, 0] = number
        if number % 2:
            session.append({"series": np.full(300, number), "series2": np.full(300, -number)}, "t")
            for extra in range(12):
                zarr.create_array(session.store, name=f"more{number}/é{extra}", shape=(1,), dtype="i1")[:] = extra

    committer = context_of(repo).committer("main")
    lead: list[Any] = []
    start, committer._start = committer._start, lead.append  # nobody leads until all wait

    async def commit() -> None:
        commits = [
            asyncio.ensure_future(s.commit_async(f"Together {n}", rebase_with=ars.ConflictDetector()))
            for n, s in enumerate(together)
        ]
        while waiting_commits(repo) < len(together):  # noqa: ASYNC110 - they come from tasks of this loop
            await asyncio.sleep(0.001)
        committer._start = start
        start(*lead)
        await asyncio.gather(*commits)

    run(commit())


def _buffer(data: bytes) -> Any:
    return zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(data)


@pytest.fixture(scope="module")
def repository() -> tuple[ars.Repository, Reader, dict[str, str]]:
    elsewhere = ars.in_memory_storage()
    virtual = {"a/é": bytes(range(100, 110)), "b": b"\1\2"}
    for key, data in virtual.items():
        run(elsewhere.put(key, data))
    storage = ars.in_memory_storage()
    config = ars.RepositoryConfig(inline_chunk_threshold_bytes=60)
    repo = ars.Repository.create(storage, config, authorize_virtual_chunk_access={URL: elsewhere})
    tags = fill(repo)

    def read(url: str, etag: str, modified: int, start: int, stop: int) -> bytes:
        return virtual[url.removeprefix(URL)][start:stop]

    return repo, Reader(run(_all_objects(storage)), read), tags


def contents(reader: Reader, snapshot: Snapshot) -> dict[str, bytes]:
    """Return what a store of a snapshot holds, by key, as the independent reader sees it."""
    found: dict[str, bytes] = {}
    for node in snapshot.nodes.values():
        if node.kind == 2:
            found[node.path] = reader.chunks(node)[()]
            continue
        prefix = node.path + "/" if node.path else ""
        found.update({prefix + name: data for name, data in node.documents.items()})
        if node.kind == 1:
            found.update({prefix + chunk_key(node, coords): data for coords, data in reader.chunks(node).items()})
    return found


def chunk_key(node: Node, coords: tuple[int, ...]) -> str:
    if ".zarray" in node.documents:
        return ".".join(map(str, coords))
    return "/".join(["c", *map(str, coords)])


def contents_of_store(store: ArrayStore) -> dict[str, bytes]:
    async def read() -> dict[str, bytes]:
        prototype = zarr.core.buffer.default_buffer_prototype()
        found: dict[str, bytes] = {}
        async for key in store.list():
            value = await store.get(key, prototype)
            assert value is not None
            found[key] = value.to_bytes()
        return found

    return run(read())


@pytest.mark.parametrize("branch", ["main", "side/é", "reset/é", "again"])
def test_the_log_alone_tells_every_node_and_every_chunk(repository: Any, branch: str) -> None:
    repo, reader, _ = repository
    snapshot = reader.replay(branch)
    session = repo.readonly_session(branch)
    assert snapshot.id == id_from_text(session.snapshot_id)
    expected = contents_of_store(session.store)
    assert len(expected) > 200
    assert contents(reader, snapshot) == expected


def test_every_snapshot_of_the_log_is_the_one_of_its_id(repository: Any) -> None:
    repo, reader, _ = repository
    for info in list(repo.ancestry(branch="main"))[::13]:
        snapshot = reader.replay("main", until=id_from_text(info.id))
        assert snapshot.id == id_from_text(info.id)
        assert contents(reader, snapshot) == contents_of_store(repo.readonly_session(snapshot_id=info.id).store)
        assert (None if snapshot.parent is None else id_text(snapshot.parent)) == info.parent_id


def test_checkpoints_are_the_states_of_their_records(repository: Any) -> None:
    _, reader, _ = repository
    found = [
        reader.checkpoint(id_from_text(key.split("/")[1])) for key in reader.objects if key.startswith("snapshots/")
    ]
    assert len(found) >= 3
    for snapshot in found:
        replayed = reader.replay(snapshot.branch, snapshot.number)
        assert snapshot.id == replayed.id
        assert snapshot.parent == replayed.parent
        assert contents(reader, snapshot) == contents(reader, replayed)
        assert {n.id for n in snapshot.nodes.values()} == {n.id for n in replayed.nodes.values()}


def test_tags_hints_and_history_are_what_they_say(repository: Any) -> None:
    repo, reader, tags = repository
    found = read_repository(reader).table
    for tag, snapshot_id in tags.items():
        entry = found.refs["tag", tag]
        assert entry is not None
        assert entry.origin is not None
        assert entry.snapshot == reader.checkpoint(entry.origin[2]).id == id_from_text(snapshot_id)
    number, _ = reader.hint("main")
    assert number >= 64
    infos = {info.id: info for info in repo.ancestry(branch="main")}
    rows, _ = reader.history("main", 1, 0)
    assert len(rows) >= 60
    for row in rows:
        info = infos[id_text(row.id)]
        assert info.message == row.message
        assert info.parent_id == (None if row.parent is None else id_text(row.parent))
        assert reader.replay("main", row.number, row.id).id == row.id


def test_the_repository_log_alone_tells_branches_tags_and_settings(repository: Any) -> None:
    repo, reader, _ = repository
    found = read_repository(reader)
    assert found.broken == []
    assert len(found.entries) > 64
    assert {name for kind, name in found.table.refs if kind == "branch"} == repo.list_branches()
    assert {name for name, _ in found.table.tags()} == repo.list_tags() == {"v1/é", "late"}
    assert found.table.burnt == {"burnt"}
    wire = reader.object(reader.repository_key(len(found.entries)), 12)[3][-1]
    assert wire[0] == TAG_CREATED
    settings = dict(reader.object(reader.repository_key(64), 12)[4][3])
    assert settings["metadata"][0]["é"] == [1, None]
    assert settings["status"][0]["availability"] == "online"


def test_each_log_tells_of_its_branch_what_the_store_knows_of_it(repository: Any) -> None:
    repo, reader, _ = repository
    for name in ("main", "side/é", "reset/é", "gone", "again"):
        life = run(repo.context.newest_state(name)).life
        assert tuple(reader.branch(name).lives[-1].told()) == tuple(map(as_list, unpack_body("life", pack_body(life))))
    assert reader.branch("gone").lives[-1].deleted
    assert [len(reader.branch(name).eras) for name in ("reset/é", "again", "gone")] == [2, 2, 1]


def as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_a_record_names_the_packs_that_were_not_there_before_it(repository: Any) -> None:
    _, reader, _ = repository
    log, named = reader.branch("main"), 0
    packs = {number: told for number, told in packs_of_records(reader) if told is not None}
    for number, told in packs.items():
        layers = [layer for node in log.states[number].nodes.values() for layer in node.layers]
        before = {
            pack
            for node in log.states[number - 1].nodes.values()
            for layer in node.layers
            for pack in layer.packs.values()
        }
        brought = {pack for layer in layers for pack in layer.packs.values()} - before
        assert brought <= told
        named += len(told)
    assert len(packs) > 60
    assert named > 30


def packs_of_records(reader: Reader) -> list[tuple[int, set[str] | None]]:
    found: list[tuple[int, set[str] | None]] = []
    for encoded in reader.bodies("main", reader.tip("main")).values():
        number, entry, content = msgpack.unpackb(encoded)
        ids = [item[8] for item in content[0]] if entry == 1 else [content[1]] if entry == 2 else []
        texts = [id_text(part[at : at + 12]) for part in ids if part is not None for at in range(0, len(part), 12)]
        if ids:
            found.append((number, None if None in ids else {f"chunks/{text}" for text in texts}))
    return found


def test_what_an_expiry_leaves_is_listed_with_checkpoints_of_it() -> None:
    storage = ars.in_memory_storage()
    repo = ars.Repository.create(storage)
    for number in range(9):
        with repo.transaction("main", message=f"Commit {number}") as store:
            zarr.create_group(store, path=f"g{number}")
        if number in (2, 5):
            repo.create_tag(f"v{number}", repo.lookup_branch("main"))
    before = [info.id for info in repo.ancestry(branch="main")]
    gone = repo.expire_snapshots(datetime.now(UTC) + timedelta(hours=1))
    assert len(gone) == 6
    reader = Reader(run(_all_objects(storage)))
    life = reader.branch("main").lives[-1]
    upto, rows, checkpoints = reader.survivors("main", life.survivors)
    assert upto == life.expired
    newest_first = [row.id for row in reversed(rows)]
    assert [id_text(identifier) for identifier in newest_first] == [i for i in before[1:] if i not in gone]
    assert [row.parent for row in reversed(rows)] == [*newest_first[1:], None]
    assert [reader.checkpoint(checkpoint).id for checkpoint in checkpoints] == newest_first[::-1]
    base = reader.checkpoint(life.base)
    assert (base.branch, base.number, base.id) == ("main", upto, reader.replay("main", upto).id)


def test_the_history_had_every_feature_that_it_is_there_for(repository: Any) -> None:
    _, reader, _ = repository
    prefixes = {key.split("/")[0] for key in reader.objects}
    assert prefixes == {"repo", "refs", "snapshots", "manifests", "transactions", "chunks", "history", "hints"}
    names = ["main", "side/é", "reset/é", "gone", "again"]
    every = {name: reader.bodies(name, reader.tip(name)).values() for name in names}
    assert {msgpack.unpackb(encoded)[1] for bodies in every.values() for encoded in bodies} == {0, 1, 2, 3, 4, 5}
    entries = [msgpack.unpackb(encoded) for encoded in every["main"]]
    assert {entry for _, entry, _ in entries} == {0, 1, 2, 5}
    shared = [content[0] for _, entry, content in entries if entry == 1]
    assert max(map(len, shared)) >= 2
    assert any(commit[6] > 0 for transactions in shared for commit in transactions)
    commits = [transactions[0] for transactions in shared]
    assert {type(commit[5]) for commit in commits} == {list, int, bytes}
    assert {type(commit[4]) for commit in commits} == {bytes, int}
    places = set()
    for number, entry, content in entries:
        if entry == 1:
            log = content[0][0][5]
            if isinstance(log, int):
                log = msgpack.unpackb(reader.record("main", number)[3][log + content[0][0][6]])
            places |= {layer[5] for _, layer, *_ in log[1]} if isinstance(log, list) else set()
        elif entry == 2:
            places |= {layer[5] for replacement in content[0] for layer in replacement[4]}
    assert places == {0, 1, 2}


def test_the_independent_reader_imports_nothing_of_the_code_that_it_checks() -> None:
    files = sorted(Path(checker.__file__).parent.rglob("*.py"))
    assert len(files) > 5
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        ours = {name for name in imported if name.startswith(("arraystore", "tests"))}
        assert all(
            name.startswith("tests.simulation.checker") or name == "tests.simulation.observations" for name in ours
        )
