"""What a lost race costs: counted requests, counted bytes, and what is left in the storage."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest

from arraystore import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictError,
    RebaseFailedError,
    Repository,
    in_memory_storage,
)
from arraystore._format.history import decode_history
from arraystore._format.ids import id_to_text
from arraystore._format.layer import Layer
from arraystore._format.manifest import decode_manifest
from arraystore._format.record import Commit, Rewrite
from arraystore._format.refs import decode_hint
from arraystore._format.snapshot import decode_checkpoint
from arraystore._log.branch_log import BranchLog
from arraystore._session.session import Session
from arraystore.storage import CountingStorage, Storage
from tests.commit.rivals import Outrun, impatient, latest, messages, rival_commits
from tests.commit.support import (
    DistantStorage,
    commit_number,
    commit_rows,
    create_repository,
    keys,
    number,
    put_bytes,
    put_number,
    run_alone,
    without_maintenance,
)
from tests.seams import context_of

SMALL, LARGE = 1, 100_000


def _write(session: Session, chunks: int) -> None:
    """Write rows from 0 on; of many, some go into a pack, and the references into manifests of their own."""
    if chunks == SMALL:
        put_number(session, 0, 1)
        return
    noise = random.Random(0)
    for row in range(chunks):
        size = 600 if row % 100 == 0 else 8
        session.hierarchy.set_sync(f"a/c/{row}", memoryview(row.to_bytes(4, "little") + noise.randbytes(size)))


def _operations(storage: CountingStorage) -> list[str]:
    return [operation for operation, _ in storage.log if operation != "sync"]


@pytest.mark.parametrize("chunks", [SMALL, LARGE])
@pytest.mark.parametrize("passed", [1, 3, 7, 8, 63, 64, 130])
def test_a_commit_over_k_others_takes_two_more_rounds_of_reads_and_one_put_per_attempt(
    chunks: int, passed: int
) -> None:
    inner = in_memory_storage()
    create_repository(inner)
    distant = DistantStorage(inner)
    storage = CountingStorage(distant)
    session = without_maintenance(impatient(storage)).writable_session("main")
    _write(session, chunks)
    commit_rows(without_maintenance(Repository.open(inner)), 150_001, 150_000 + passed)
    storage.reset()
    distant.start()
    session.commit("over all of them", rebase_with=ConflictDetector())
    operations = _operations(storage)
    first = operations.index("put_if_absent")
    assert set(operations[:first]) <= {"put"}
    after = operations[first + 1 : -1]
    assert operations[-1] == "put_if_absent"
    assert set(after) <= {"get", "list"}
    assert after.count("list") == 1
    assert len(after) <= 3 + passed / 64
    uploads = 0 if chunks == SMALL else 2  # packs, then manifests
    assert distant.rounds <= uploads + 1 + 2 + 1
    reader = latest(inner)
    assert [number(reader, 150_000 + row) for row in (1, passed)] == [150_001, 150_000 + passed]
    assert len(messages(inner)) == passed + 2


def _race(chunks: int, losses: int) -> tuple[Storage, CountingStorage]:
    inner = in_memory_storage()
    create_repository(inner)
    rival = without_maintenance(Repository.open(inner))
    outrun = Outrun(inner, rival_commits(rival, losses, 150_000))
    outrun.cheap_probes = False
    storage = CountingStorage(outrun)
    session = without_maintenance(impatient(storage)).writable_session("main")
    _write(session, chunks)
    storage.reset()
    session.commit("at last", rebase_with=ConflictDetector())
    return inner, storage


@pytest.mark.parametrize("losses", [1, 4, 20])
@pytest.mark.parametrize("chunks", [SMALL, LARGE])
def test_each_lost_race_costs_a_record_and_two_reads_whatever_the_size_of_the_change(chunks: int, losses: int) -> None:
    inner, storage = _race(chunks, losses)
    counted = Counter(_operations(storage))
    assert counted["put_if_absent"] == losses + 1  # after the second loss one of these is an intent
    assert counted["list"] <= min(losses, 3)
    assert counted["get"] <= 2 * losses
    assert counted.keys() <= {"put", "put_if_absent", "list", "get"}
    operations = _operations(storage)
    assert "put" not in operations[operations.index("put_if_absent") :]
    assert len(messages(inner)) == losses + 2


@pytest.mark.parametrize("chunks", [SMALL, LARGE])
def test_lost_races_write_nothing_but_small_records(chunks: int) -> None:
    _, once = _race(chunks, 0)
    _, often = _race(chunks, 20)
    assert (often.counts.bytes_written - once.counts.bytes_written) / 20 < 16_384


def test_chunks_packs_and_manifests_are_written_once_however_many_races_are_lost() -> None:
    _, once = _race(LARGE, 0)
    inner, often = _race(LARGE, 20)
    written = [[key.split("/")[0] for operation, key in s.log if operation == "put"] for s in (once, often)]
    assert Counter(written[0]) == Counter(written[1])
    assert set(written[0]) >= {"chunks", "manifests"}
    for key in [key for operation, key in often.log if operation == "put"]:
        assert [each for _, each in often.log].count(key) == 1
    found = latest(inner).store.get_sync("a/c/99900")
    assert found is not None
    assert found.to_bytes()[:4] == (99_900).to_bytes(4, "little")


def test_whoever_has_no_tries_left_is_told_and_may_go_on_later() -> None:
    inner = in_memory_storage()
    create_repository(inner)
    rival = without_maintenance(Repository.open(inner))
    storage = CountingStorage(Outrun(inner, rival_commits(rival, 5, 150_000)))
    session = without_maintenance(impatient(storage)).writable_session("main")
    _write(session, SMALL)
    storage.reset()
    with pytest.raises(ConflictError) as caught:
        session.commit("at last", rebase_with=ConflictDetector(), rebase_tries=3)
    assert type(caught.value) is ConflictError
    assert _operations(storage).count("put_if_absent") == 4
    assert caught.value.actual_parent == Repository.open(inner).lookup_branch("main")
    session.commit("at last", rebase_with=ConflictDetector(), rebase_tries=3)
    assert messages(inner)[-1] == "at last"
    assert number(latest(inner), 0) == 1


def test_a_conflict_that_is_solved_by_dropping_chunks_uploads_no_chunk_again() -> None:
    inner = in_memory_storage()
    create_repository(inner)
    storage = CountingStorage(inner)
    session = impatient(storage).writable_session("main")
    for row in range(20):
        put_bytes(session, row, bytes([row]) * 5000)
    commit_number(Repository.open(inner), 3, 33)
    storage.reset()
    session.commit("ours", rebase_with=BasicConflictSolver())
    assert [key.split("/")[0] for operation, key in storage.log if operation == "put"].count("chunks") == 1


# -- what is left -------------------------------------------------------------------------------------------------


def _reachable(storage: Storage) -> set[str]:
    """Return the keys of everything that records, hints and history pages lead to, themselves included."""
    return run_alone(_walk(storage))


async def _walk(storage: Storage) -> set[str]:
    log = context_of(Repository.open(storage)).log("main")
    found = {"repo", "hints/main"}
    layers: dict[str, Layer] = {}
    for sequence in range(await log.tip(None) + 1):
        found.add(log.key(sequence))
        for layer in await _layers(log, sequence, found):
            layers[id_to_text(layer.id)] = layer
    hint = decode_hint("hints/main", await storage.get("hints/main"))
    checkpoints = {hint.checkpoint}
    async for page in storage.list(log.history_prefix):
        for info in page:
            level, index = info.key.split("/")[-2:]
            history = decode_history(info.key, await storage.get(info.key), "main", int(level), int(index))
            checkpoints |= {identifier for _, identifier in history.checkpoints}
            found.add(info.key)
    for identifier in checkpoints:
        key = "snapshots/" + id_to_text(identifier)
        found.add(key)
        for node in decode_checkpoint(key, await storage.get(key)).nodes:
            layers |= {id_to_text(layer.id): layer for layer in node.layers}
    for layer in layers.values():
        found |= await _objects_of(log, layer)
    return found


async def _layers(log: BranchLog, sequence: int, found: set[str]) -> list[Layer]:
    entry = log.decode(sequence, (await log.read(sequence)).body)
    if isinstance(entry, Rewrite):
        return [layer for item in entry.replacements for layer in item.added]
    if not isinstance(entry, Commit):
        return []
    found |= {"transactions/" + id_to_text(item.log) for item in entry.transactions if isinstance(item.log, bytes)}
    return [chunk.layer for _, changes, _ in await log.resolve(sequence, entry) for chunk in changes.chunks]


async def _objects_of(log: BranchLog, layer: Layer) -> set[str]:
    if layer.inline is not None:
        return set(decode_manifest("inline", layer.inline).pack_keys)
    if layer.attachment is not None:
        record = await log.read(layer.attachment.sequence)
        return set(decode_manifest("attached", record.attachments[layer.attachment.index]).pack_keys)
    data = await log.storage.get(layer.key)
    return {layer.key, *decode_manifest(layer.key, data, layer.key).pack_keys}


class _Crowd:
    """Two processes that commit to one branch, each getting in the way of the other."""

    def __init__(self, inner: Storage, seed: int) -> None:
        self.chance = random.Random(seed)
        self.nested = False
        self.turn = 0
        self.losses = 0
        self.refused: list[int] = []
        self.acknowledged: dict[int, int] = {}
        self.repositories = [impatient(Outrun(inner, self._interfere(other))) for other in (1, 0)]

    def _interfere(self, other: int) -> Callable[[], asyncio.Future[None]]:
        async def rival() -> None:
            if self.nested or self.chance.random() < 0.3:
                return
            self.nested = True
            try:
                self.losses += 1
                await self.commit(other)
            finally:
                self.nested = False

        return rival  # type: ignore[return-value]

    async def commit(self, who: int) -> None:
        repository = self.repositories[who]
        session = await repository.writable_session_async("main")
        self.turn += 1
        turn = self.turn
        row = 0 if turn % 3 == 0 else turn
        size = 600 if turn % 5 == 0 else 4
        put_bytes(session, row, turn.to_bytes(4, "little") * (size // 4))
        if turn % 50 == 0:
            for each in range(10_000 + turn * 100, 10_000 + turn * 100 + 40):
                put_bytes(session, each, turn.to_bytes(4, "little") + self.chance.randbytes(20))
        try:
            await session.commit_async(str(turn), rebase_with=ConflictDetector())
        except RebaseFailedError:
            assert row == 0
            self.refused.append(turn)
        else:
            self.acknowledged[row] = turn

    async def run(self, commits: int) -> None:
        while self.turn < commits:
            await self.commit(self.turn % 2)
            for repository in self.repositories:
                await repository.wait_for_maintenance_async()


def test_a_thousand_contended_commits_leave_nothing_behind_but_packs_of_those_that_failed() -> None:
    inner = in_memory_storage()
    create_repository(inner)
    crowd = _Crowd(inner, 0)
    run_alone(crowd.run(1000))
    assert crowd.losses > 300
    assert crowd.refused
    orphans = set(keys(inner)) - _reachable(inner)
    assert {key.split("/")[0] for key in orphans} <= {"chunks"}
    packed = [turn for turn in crowd.refused if turn % 5 == 0]
    assert len(orphans) <= len(packed)
    done = [int(text) for text in messages(inner)[1:]]
    assert sorted(done) == sorted(set(range(1, crowd.turn + 1)) - set(crowd.refused))
    reader = latest(inner)
    for row, turn in crowd.acknowledged.items():
        found = reader.store.get_sync(f"a/c/{row}")
        assert found is not None
        assert found.to_bytes()[:4] == turn.to_bytes(4, "little")
