"""Writers of several processes that queue intents: on a simulated bucket, with the latencies of S3."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from zarr.core.buffer import default_buffer_prototype

from arraystore import BasicConflictSolver, ConflictDetector, ConflictError, RebaseFailedError, VersionSelection
from arraystore._format.ids import id_from_text, id_to_text
from arraystore._format.intent import (
    PATIENCE,
    Intent,
    Proposal,
    encode_intent,
    intent_key,
    read_intent_key,
)
from arraystore._format.node import NodeKind
from arraystore._format.record import Commit, decode_body, decode_record, encode_note
from arraystore._format.refs import REPOSITORY_KEY, Hint, branch_prefix, decode_repository, encode_hint
from arraystore._format.transaction import NodeChange, Operation, TransactionLog
from arraystore._session.session import Session
from arraystore.errors import ArrayStoreError, StorageError
from arraystore.simulation import Faults, Process, World

PREFIX = branch_prefix(bytes(12), "main")
BUFFER = default_buffer_prototype().buffer.from_bytes
GROUP = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}).encode()

Doing = Callable[[Session], Awaitable[Any]]


def array(length: int, **attributes: Any) -> bytes:
    grid = {"name": "regular", "configuration": {"chunk_shape": [4]}}
    keys = {"name": "default", "configuration": {"separator": "/"}}
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}]
    document = {"zarr_format": 3, "node_type": "array", "shape": [length], "data_type": "int32", "chunk_grid": grid}
    document |= {"chunk_key_encoding": keys, "fill_value": 0, "codecs": codecs, "attributes": attributes}
    return json.dumps(document | {"dimension_names": ["time"]}).encode()


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=11) as made:
        made.run(setup)
        made.drain()
        yield made


async def setup(process: Process) -> None:
    session = await (await process.repository()).writable_session_async("main")
    await session.store.set("zarr.json", BUFFER(GROUP))
    await session.store.set("a/zarr.json", BUFFER(array(400)))
    await session.store.set("t/zarr.json", BUFFER(array(0)))
    await session.commit_async("setup")


def chunk(number: int, fill: int = 1) -> Doing:
    async def write(session: Session) -> None:
        await session.store.set(f"a/c/{number}", BUFFER(bytes([fill]) * 16))

    return write


async def append(session: Session) -> None:
    found = await session.store.get("t/zarr.json", default_buffer_prototype())
    assert found is not None
    document = json.loads(found.to_bytes())
    length = document["shape"][0]
    document["shape"] = [length + 4]
    with session.appending("time"):
        await session.store.set("t/zarr.json", BUFFER(json.dumps(document).encode()))
        await session.store.set(f"t/c/{length // 4}", BUFFER(bytes(range(16))))


def writer(doing: Doing, solver: Any = "detector", isolation: Any = "snapshot", wait: float = 1.0) -> Any:
    """Return what a process does: open a session, wait for the others to have done so, write, commit."""

    async def main(process: Process) -> Any:
        session = await (await process.repository()).writable_session_async("main", isolation=isolation)
        await asyncio.sleep(wait)
        await doing(session)
        chosen = ConflictDetector() if solver == "detector" else solver
        try:
            return await session.commit_async("by a writer", rebase_with=chosen)
        except ArrayStoreError as error:
            return error

    return main


def prefix_of(world: World) -> str:
    """Return what the keys of the branch's records start with."""
    return branch_prefix(id_of(world), "main")


def id_of(world: World) -> bytes:
    """Return the id of the repository."""
    return decode_repository(REPOSITORY_KEY, world.bucket.objects[REPOSITORY_KEY]).id


def bodies(world: World) -> list[Commit]:
    """Return the commits of the branch, in order."""
    found: list[Commit] = []
    prefix = prefix_of(world)
    for key in sorted(key for key in world.bucket.objects if key.startswith(prefix) and "-" not in key):
        number = int(key.removeprefix(prefix))
        record = decode_record(key, world.bucket.objects[key], "main", number, id_of(world))
        body = decode_body(key, record.body, "main", number)
        if isinstance(body, Commit):
            found.append(body)
    return found


def committed(world: World) -> list[str]:
    return [id_to_text(item.id) for body in bodies(world) for item in body.transactions]


def intents(world: World) -> list[str]:
    return [key for key in world.bucket.objects if read_intent_key(prefix_of(world), key) is not None]


async def read(process: Process, key: str) -> bytes | None:
    session = await (await process.repository()).readonly_session_async("main")
    found = await session.store.get(key, default_buffer_prototype())
    return None if found is None else found.to_bytes()


# -- what it is for -------------------------------------------------------------------------------------------------


def test_writers_of_many_processes_share_a_few_records_and_each_is_told_its_own_snapshot(world: World) -> None:
    found = world.run(*(writer(chunk(n)) for n in range(30)))
    assert len(set(found)) == 30
    assert set(found) <= set(committed(world))
    assert len(bodies(world)) < 12
    assert max(len(body.transactions) for body in bodies(world)) > 5


def test_who_is_alone_writes_no_intent_and_nothing_but_its_record(world: World) -> None:
    async def main(process: Process) -> dict[str, int]:
        session = await (await process.repository()).writable_session_async("main")
        await session.store.set("a/c/0", BUFFER(bytes(16)))
        before = Counter(process.counts.requests)
        await session.commit_async("alone", rebase_with=ConflictDetector())
        return dict(Counter(process.counts.requests) - before)

    assert world.run(main) == [{"put_if_absent": 1}]


def test_requests_for_a_commit_stay_bounded_when_there_are_more_writers(world: World) -> None:
    means: list[float] = []
    for count in (10, 60):
        before = world.counts.total
        found = world.run(*(writer(chunk(n)) for n in range(count)))
        world.drain()
        assert all(isinstance(each, str) for each in found)
        means.append((world.counts.total - before) / count)
    assert means[1] < 30  # opening included
    assert means[1] < 2 * means[0]


def test_appends_of_all_processes_end_up_one_after_the_other(world: World) -> None:
    found = world.run(*(writer(append) for _ in range(20)))
    assert len(set(found)) == 20

    async def check(process: Process) -> list[bytes | None]:
        return [await read(process, f"t/c/{n}") for n in range(21)]

    (chunks,) = world.run(check)
    assert chunks == [bytes(range(16))] * 20 + [None]


def test_nothing_is_left_of_intents_that_were_decided(world: World) -> None:
    world.run(*(writer(chunk(n)) for n in range(20)))
    world.drain()
    assert intents(world) == []


# -- verdicts -------------------------------------------------------------------------------------------------------


def test_who_collides_gets_the_conflict_and_the_others_their_snapshots(world: World) -> None:
    found = world.run(*(writer(chunk(n // 2, n)) for n in range(20)))
    failed = [each for each in found if isinstance(each, RebaseFailedError)]
    assert len(failed) == 10
    assert {conflict.conflict_type.name for error in failed for conflict in error.conflicts} == {"ChunkDoubleUpdate"}
    assert {each for each in found if isinstance(each, str)} <= set(committed(world))
    assert len(committed(world)) == 1 + 10


def test_records_say_who_is_refused(world: World) -> None:
    world.run(*(writer(chunk(n % 7, n)) for n in range(30)))
    refused = [each for body in bodies(world) for each in body.refused]
    assert refused
    assert not {item.id for body in bodies(world) for item in body.transactions} & set(refused)


def test_a_solver_decides_what_was_refused_and_the_transaction_is_proposed_again(world: World) -> None:
    ours = BasicConflictSolver(on_chunk_conflict=VersionSelection.UseOurs)
    found = world.run(*(writer(chunk(0, n), solver=ours) for n in range(12)))
    assert len(set(found)) == 12
    assert all(isinstance(each, str) for each in found)
    order = committed(world)
    last = max(range(12), key=lambda n: order.index(found[n]))

    async def check(process: Process) -> bytes | None:
        return await read(process, "a/c/0")

    assert world.run(check) == [bytes([last]) * 16]


def test_a_serializable_transaction_is_refused_if_what_it_read_has_changed(world: World) -> None:
    async def copy(session: Session) -> None:
        found = await session.store.get("a/c/0", default_buffer_prototype())
        await session.store.set("a/c/50", found or BUFFER(b"\x09" * 16))

    others = [writer(chunk(n)) for n in range(1, 15)]
    *_, wrote, failed = world.run(*others, writer(chunk(0)), writer(copy, isolation="serializable"))
    order = committed(world)
    assert wrote in order
    if isinstance(failed, str):  # it came first
        assert order.index(failed) < order.index(wrote)
    else:
        assert {conflict.conflict_type.name for conflict in failed.conflicts} == {"ReadConflict"}


def test_attributes_are_set_among_appends_that_never_stop(world: World) -> None:
    async def attributes(session: Session) -> None:
        found = await session.store.get("t/zarr.json", default_buffer_prototype())
        assert found is not None
        length = json.loads(found.to_bytes())["shape"][0]
        await session.store.set("t/zarr.json", BUFFER(array(length, title="new")))

    async def appender(process: Process) -> None:
        repository = await process.repository()
        while world.loop.time() < 12:
            session = await repository.writable_session_async("main")
            await append(session)
            await session.commit_async("append", rebase_with=ConflictDetector())

    async def late(process: Process) -> float:
        await asyncio.sleep(3)
        began = world.loop.time()
        assert isinstance(await writer(attributes)(process), str)
        return world.loop.time() - began

    *_, took = world.run(*[appender] * 6, late)
    assert took < 5

    async def check(process: Process) -> Any:
        document = json.loads(await read(process, "t/zarr.json") or b"")
        return document["attributes"], document["shape"][0] > 50

    assert world.run(check) == [({"title": "new"}, True)]


def test_plain_commits_fail_as_ever_and_never_wait_in_line(world: World) -> None:
    found = world.run(*(writer(chunk(n)) for n in range(12)), *(writer(chunk(20 + n), solver=None) for n in range(4)))
    assert all(isinstance(each, str) for each in found[:12])
    plain = found[12:]
    assert all(isinstance(each, str) or type(each) is ConflictError for each in plain)
    assert {each for each in plain if isinstance(each, str)} <= set(committed(world))


# -- crashes, pauses, strangers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1.05, 1.12, 1.2, 1.3, 1.4, 1.5, 1.7])
def test_others_go_on_if_some_die_in_line(world: World, after: float) -> None:
    dying = [world.process(f"dying{n}") for n in range(6)]
    for n, process in enumerate(dying):
        process.start(writer(chunk(50 + n)))

    async def killer(process: Process) -> None:
        await asyncio.sleep(after)
        for victim in dying:
            victim.crash()

    found = world.run(*(writer(chunk(n)) for n in range(8)), killer)[:8]
    assert all(isinstance(each, str) for each in found)
    assert world.loop.time() < 20
    order = committed(world)
    assert len(order) == len(set(order))


def test_who_slept_for_long_finds_its_verdict_when_it_wakes(world: World) -> None:
    sleeper = world.process("sleeper")
    sleeper.start(writer(chunk(60)))

    async def lullaby(process: Process) -> None:
        await asyncio.sleep(1.25)
        sleeper.pause(30)

    async def busy(process: Process) -> None:
        repository = await process.repository()
        for number in range(40):
            session = await repository.writable_session_async("main")
            await session.store.set(f"a/c/{10 + int(process.name[-1])}", BUFFER(bytes([number]) * 16))
            await session.commit_async("busy", rebase_with=ConflictDetector())

    world.run(lullaby, busy, busy, busy)
    assert isinstance(sleeper.result, str)
    assert committed(world).count(sleeper.result) == 1


def test_a_commit_cancelled_in_line_is_found_by_the_next_one(world: World) -> None:
    async def main(process: Process) -> str:
        session = await (await process.repository()).writable_session_async("main")
        await asyncio.sleep(1.0)
        await chunk(70)(session)
        for _ in range(8):
            task = asyncio.ensure_future(session.commit_async("mine", rebase_with=ConflictDetector()))
            await asyncio.sleep(0.12)
            if task.cancel():
                await asyncio.gather(task, return_exceptions=True)
            if session.read_only:
                return session.snapshot_id
        return await session.commit_async("mine", rebase_with=ConflictDetector())

    *_, mine = world.run(*(writer(chunk(n)) for n in range(10)), main)
    world.drain()
    assert committed(world).count(mine) == 1
    assert len(committed(world)) == 1 + 10 + 1


async def abandoned(process: Process, theirs: Doing, rounds: int = 1) -> tuple[Session, list[Any]]:
    """Give a commit up while its intent stands alone in line, let others commit something, and commit again."""
    session = await (await process.repository()).writable_session_async("main")
    await chunk(80, 1)(session)
    session.context.committer("main").intents.busy = True  # type: ignore[union-attr] # as after lost races
    other = await (await process.world.process("other").repository()).writable_session_async("main")
    await theirs(other)
    commit = asyncio.ensure_future(session.commit_async("mine", rebase_with=ConflictDetector()))
    for _ in range(1000):
        await asyncio.sleep(0.001)
        if intents(process.world):
            break
    commit.cancel()
    await asyncio.gather(commit, return_exceptions=True)
    await other.commit_async("theirs", rebase_with=ConflictDetector())
    answers: list[Any] = []
    for solver in (None, ConflictDetector())[:rounds]:
        try:
            answers.append(await session.commit_async("mine again", rebase_with=solver))
        except ArrayStoreError as error:
            answers.append(error)
    return session, answers


def test_what_was_proposed_and_collides_is_refused_for_certain_though_nobody_else_ever_commits(world: World) -> None:
    async def main(process: Process) -> list[Any]:
        return (await abandoned(process, chunk(80, 2), rounds=2))[1]

    (answers,) = world.run(main)
    assert [type(each) for each in answers] == [ConflictError, RebaseFailedError]
    assert len(committed(world)) == 2


def test_what_was_proposed_and_may_yet_be_taken_is_committed_and_never_denied(world: World) -> None:
    """Without a solver, too: the first call, which had one, may still be granted by somebody else."""

    async def main(process: Process) -> list[Any]:
        return (await abandoned(process, chunk(81, 2)))[1]

    ((answer,),) = world.run(main)
    assert committed(world)[-1] == answer or answer in committed(world)
    assert len(committed(world)) == 3


def planted(world: World, number: int, seed: int, proposals: tuple[Proposal, ...] | bytes) -> str:
    """Put an intent of a stranger into the bucket, older than all others."""
    key = intent_key(prefix_of(world), number, bytes([0, 0, seed]) + bytes(9))
    last = number + PATIENCE
    data = proposals if isinstance(proposals, bytes) else encode_intent(Intent("main", number, last, proposals))
    world.bucket.put(key, data)
    return key


def proposal(log: TransactionLog, seed: int = 1) -> Proposal:
    return Proposal(bytes([0, 0, seed]) + bytes(9), encode_note("strange", {}), log, None, (), 1, 0)


def test_intents_that_cannot_be_read_or_make_no_sense_hold_nobody_up(world: World) -> None:
    nonsense = TransactionLog((NodeChange(Operation.DELETED, bytes(11) + b"\1", "nowhere", NodeKind.ARRAY, {}),))
    planted(world, 1, 1, b"no intent at all")
    planted(world, 1, 2, (proposal(nonsense, 2),))
    planted(world, 0, 3, (proposal(TransactionLog(), 3),))
    found = world.run(*(writer(chunk(n)) for n in range(12)))
    assert all(isinstance(each, str) for each in found)
    assert world.loop.time() < 8
    assert bytes([0, 0, 2]) + bytes(9) not in {item.id for body in bodies(world) for item in body.transactions}


def test_what_a_dead_process_proposed_is_committed_by_the_others_once(world: World) -> None:
    made = NodeChange(Operation.CREATED, bytes(11) + b"\7", "new", NodeKind.GROUP, {"zarr.json": GROUP})
    planted(world, 1, 4, (proposal(TransactionLog((made,)), 4),))
    world.run(*(writer(chunk(n), wait=12.0) for n in range(12)))  # so long that they look before they try
    ids = [item.id for body in bodies(world) for item in body.transactions]
    assert ids.count(bytes([0, 0, 4]) + bytes(9)) == 1


def test_who_wins_all_races_looks_now_and_then_and_queues_with_those_who_wait(world: World) -> None:
    made = NodeChange(Operation.CREATED, bytes(11) + b"\7", "new", NodeKind.GROUP, {"zarr.json": GROUP})

    async def quick(process: Process) -> dict[str, int]:
        repository = await process.repository()
        requests: Counter[str] = Counter()
        for number in range(20):
            session = await repository.writable_session_async("main")
            await session.store.set("a/c/0", BUFFER(bytes([number]) * 16))
            if number == 0:
                planted(world, 1, 4, (proposal(TransactionLog((made,)), 4),))
            before = Counter(process.counts.requests)
            await session.commit_async("quick", rebase_with=ConflictDetector())
            requests += Counter(process.counts.requests) - before
        return {operation: requests[operation] for operation in ("list", "put_if_absent")}

    # a listing that shows the intent, one of a leader, and an intent of its own among twenty records
    assert world.run(quick) == [{"list": 2, "put_if_absent": 21}]


def test_whose_transactions_others_committed_open_their_next_session_with_one_request(world: World) -> None:
    opened: dict[str, dict[str, int]] = {}

    def twice(number: int) -> Any:
        async def main(process: Process) -> None:
            repository = await process.repository()
            session = await repository.writable_session_async("main")
            await asyncio.sleep(1.0)
            await chunk(number)(session)
            snapshot = await session.commit_async("first", rebase_with=ConflictDetector())
            await asyncio.sleep(10.0)
            before = Counter(process.counts.requests)
            await repository.writable_session_async("main")
            opened[snapshot] = dict(Counter(process.counts.requests) - before)

        return main

    world.run(*map(twice, range(12)))
    newest = [id_to_text(item.id) for item in bodies(world)[-1].transactions]
    assert len(newest) > 1
    assert [opened[snapshot] for snapshot in newest] == [{"get": 1}] * len(newest)


def test_no_record_takes_an_intent_after_the_last_that_may(world: World) -> None:
    made = NodeChange(Operation.CREATED, bytes(11) + b"\7", "new", NodeKind.GROUP, {"zarr.json": GROUP})
    key = intent_key(prefix_of(world), 1, bytes([0, 0, 5]) + bytes(9))
    world.bucket.put(key, encode_intent(Intent("main", 1, 2, (proposal(TransactionLog((made,)), 5),))))
    world.run(writer(chunk(90)))  # record 2
    world.run(*(writer(chunk(n)) for n in range(12)))
    assert bytes([0, 0, 5]) + bytes(9) not in {item.id for body in bodies(world) for item in body.transactions}


async def opened(process: Process) -> Session:
    repository = await process.repository()
    while True:
        try:
            return await repository.writable_session_async("main")
        except StorageError:
            await asyncio.sleep(0.5)


@pytest.mark.parametrize("seed", range(6))
def test_a_failing_storage_leaves_outcomes_open_and_another_commit_settles_them(seed: int) -> None:
    async def main(process: Process) -> str | None:
        number = int(process.base_name.removeprefix("main-"))
        session = await opened(process)
        await chunk(number)(session)
        for _ in range(50):
            try:
                return await session.commit_async(f"by {number}", rebase_with=ConflictDetector())
            except StorageError:
                await asyncio.sleep(0.5)
            except RebaseFailedError:
                assert process.life  # it collides with what an earlier life of its own has committed
                return None
        return None

    with World(seed, faults=Faults.heavy()) as world:
        for _ in range(20):
            try:
                world.run(setup)
            except StorageError:
                continue
            break
        found = world.run(*[main] * 8)
        world.drain()
        order = committed(world)
        assert len(order) == len(set(order))
        assert {each for each in found if each is not None} <= set(order)


# -- keys and sizes -------------------------------------------------------------------------------------------------


def test_transactions_too_large_to_be_proposed_are_committed_by_their_writers(world: World) -> None:
    async def many(session: Session) -> None:
        for n in range(900):
            await session.store.set(f"big{n}/zarr.json", BUFFER(array(4, text=f"{n * 7919:x}" * 300)))

    found = world.run(*(writer(chunk(n)) for n in range(10)), writer(many))
    assert all(isinstance(each, str) for each in found)
    assert found[-1] in committed(world)


def test_keys_of_intents_stand_right_behind_their_record_and_are_read_back() -> None:
    identifier = id_from_text("01ABCDEFGHJKMNPQRSTV")
    key = intent_key(PREFIX, 123, identifier)
    assert f"{PREFIX}000000000123" < key < f"{PREFIX}000000000124"
    assert read_intent_key(PREFIX, key) == (123, identifier)
    for other in (
        f"{PREFIX}000000000123",
        key[:-1],
        key + "A",
        key.replace("-", "_"),
        branch_prefix(bytes(12), "other") + key,
        key.lower(),
    ):
        assert read_intent_key(PREFIX, other) is None


@pytest.mark.parametrize("far", [500, 10_000])
def test_whoever_is_far_behind_leaps_by_the_hint_unless_that_is_wrong(
    world: World, far: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of more than a page of records: the hint says where to go on, if there is such a record."""
    monkeypatch.setattr("arraystore.simulation.bucket.PAGE", 40)
    monkeypatch.setattr("arraystore.simulation.storage.PAGE", 40)

    async def busy(process: Process) -> None:
        repository = await process.repository()
        for number in range(90):
            session = await repository.writable_session_async("main")
            await session.store.set("a/c/1", BUFFER(bytes([number]) * 16))
            await session.commit_async("busy")

    async def late(process: Process) -> str:
        session = await (await process.repository()).writable_session_async("main")
        await chunk(50)(session)
        await busy(process.world.process("busy"))
        if far > 1000:
            process.world.bucket.put("hints/main", encode_hint(Hint(far, bytes(11) + b"\1", 0, id_of(process.world))))
        await asyncio.sleep(60)
        return await session.commit_async("late", rebase_with=ConflictDetector())

    (snapshot,) = world.run(late)
    assert committed(world)[-1] == snapshot
