"""Queued intents: callers that are cancelled, clocks that jump, writers that die in crowds, and strangers who lie."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from zarr.core.buffer import default_buffer_prototype

from arraystore import ConflictDetector, RebaseFailedError
from arraystore._format.box import Box
from arraystore._format.envelope import pack_body
from arraystore._format.intent import PATIENCE, Intent, Proposal, encode_intent, intent_key
from arraystore._format.layer import Layer
from arraystore._format.node import NodeKind
from arraystore._format.record import encode_note
from arraystore._format.transaction import ChunkChange, NodeChange, Operation, TransactionLog
from arraystore._log.branch_log import AppendUncertainError
from arraystore._session.rebase import Unique
from arraystore._session.session import Session
from arraystore.errors import SessionStateError
from arraystore.simulation import Latencies, Process, World
from tests.commit.test_intent_queue import (
    BUFFER,
    GROUP,
    array,
    bodies,
    chunk,
    committed,
    intents,
    prefix_of,
    setup,
    writer,
)

STRANGER = bytes([0, 0, 9]) + bytes(9)


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=11) as made:
        made.run(setup)
        made.drain()
        yield made


def made(number: int = 7, documents: dict[str, bytes | None] | None = None, kind: NodeKind = NodeKind.GROUP) -> Any:
    documents = {"zarr.json": GROUP} if documents is None else documents
    return NodeChange(Operation.CREATED, bytes(10) + number.to_bytes(2, "big"), f"new{number}", kind, documents)


def proposal(*nodes: NodeChange, chunks: tuple[ChunkChange, ...] = (), **changed: Any) -> Proposal:
    log = TransactionLog(nodes, chunks)
    usual: dict[str, Any] = {"id": STRANGER, "note": encode_note("x", {}), "log": log, "log_place": None}
    return Proposal(**{**usual, "attachments": (), "time": 1, "isolation": 0, **changed})


def plant(world: World, *proposals: Proposal, number: int = 1) -> None:
    key = intent_key(prefix_of(world), number, proposals[0].id)
    world.bucket.put(key, encode_intent(Intent("main", number, number + PATIENCE, proposals)))


async def ready(process: Process, number: int, **options: Any) -> Session:
    """Return a session that has written one chunk and will queue an intent."""
    session = await (await process.repository()).writable_session_async("main", **options)
    await chunk(number)(session)
    session.context.committer("main").intents.busy = True  # type: ignore[union-attr] # as after lost races
    return session


async def given_up(session: Session, moment: Callable[[], bool]) -> None:
    """Start to commit, and cancel that at a moment."""
    task = asyncio.ensure_future(session.commit_async("mine", rebase_with=ConflictDetector()))
    for _ in range(100_000):
        await asyncio.sleep(0.001)
        if moment() or task.done():
            break
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# -- a "no" is certain ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("milliseconds", range(1, 40, 3))
def test_a_commit_that_was_taken_back_before_it_was_proposed_is_never_proposed(world: World, milliseconds: int) -> None:
    async def main(process: Process) -> bool:
        session = await ready(process, 70)
        await asyncio.sleep(12)  # so long that it looks before it tries
        plant(world, proposal(made()))
        end = world.loop.time() + milliseconds / 1000
        await given_up(session, lambda: world.loop.time() >= end)
        try:
            session.check_writable()
        except SessionStateError:
            return False
        await asyncio.sleep(10)
        return True

    (certain,) = world.run(main)
    world.drain()
    if certain:
        assert len(committed(world)) == 1
        assert len(intents(world)) == 1  # the stranger's
    else:
        assert milliseconds > 10  # its intent may have left


def test_what_a_session_reads_after_it_was_proposed_does_not_let_it_deny_what_others_commit(world: World) -> None:
    async def main(process: Process) -> Any:
        session = await ready(process, 80, isolation="serializable")
        other = await (await world.process("other").repository()).writable_session_async("main")
        await chunk(5)(other)
        await given_up(session, lambda: bool(intents(world)))
        await session.store.get("a/c/5", default_buffer_prototype())
        await other.commit_async("theirs", rebase_with=ConflictDetector())
        return await session.commit_async("again", rebase_with=ConflictDetector())

    (found,) = world.run(main)
    assert committed(world).count(found) == 1


def test_what_was_tried_and_may_yet_arrive_is_not_denied_by_a_second_commit_without_a_solver(world: World) -> None:
    held: list[tuple[str, bytes]] = []

    async def main(process: Process) -> str:
        session = await (await process.repository()).writable_session_async("main")
        await chunk(80)(session)
        other = await (await world.process("other").repository()).writable_session_async("main")
        await chunk(5)(other)
        await other.commit_async("theirs")
        storage = session.context.storage
        usual = storage.put_new

        async def put_new(key: str, data: Any) -> bool:
            if not key.endswith("3") or held:
                return await usual(key, data)
            held.append((key, bytes(data)))
            await asyncio.sleep(1000)
            raise AssertionError

        storage.put_new = put_new  # type: ignore[method-assign]
        await given_up(session, lambda: bool(held))
        found = await session.commit_async("mine")
        world.bucket.put_if_absent(*held[0])
        return found

    (found,) = world.run(main)
    assert committed(world)[-1] == found
    assert len(committed(world)) == 3


def test_an_error_while_a_writer_waits_in_line_leaves_open_whether_it_is_committed(world: World) -> None:
    async def main(process: Process) -> str:
        session = await ready(process, 70)
        line = session.context.committer("main").intents
        assert line is not None

        async def fail(mine: Any) -> None:
            del line._step
            raise ZeroDivisionError

        line._step = fail  # type: ignore[method-assign]
        with pytest.raises(AppendUncertainError, match="ZeroDivisionError"):
            await session.commit_async("mine", rebase_with=ConflictDetector())
        assert len(intents(world)) == 1
        return await session.commit_async("mine", rebase_with=ConflictDetector())

    (found,) = world.run(main)
    assert committed(world)[1:] == [found]


# -- crowds ---------------------------------------------------------------------------------------------------------


def crowd(count: int, latencies: Latencies) -> tuple[list[Any], float, int]:
    """Let writers commit at once; returns answers, requests for each of them, and how many records they took."""

    async def large(process: Process) -> None:
        session = await (await process.repository()).writable_session_async("main")
        await session.store.set("a/zarr.json", BUFFER(array(4 * count)))
        await session.commit_async("large enough")

    with World(seed=1, latencies=latencies, keep_trace=False) as world:
        world.run(setup)
        world.run(large)
        world.drain()
        before = world.counts.total
        found = world.run(*(writer(chunk(n), wait=2.0) for n in range(count)))
        world.drain()
        return found, (world.counts.total - before) / count, len(bodies(world)) - 2


def test_more_writers_than_a_leader_looks_at_all_get_their_snapshots() -> None:
    found, requests, records = crowd(280, Latencies.s3())
    assert len(set(found)) == 280
    assert all(isinstance(each, str) for each in found)
    assert requests < 30  # opening included
    assert records < 15


def test_who_waits_because_a_record_was_full_does_not_lead_beside_the_others() -> None:
    _, requests, _ = crowd(260, Latencies.fixed(0.001))
    assert requests < 25  # opening included


def test_a_crowd_that_died_in_line_delays_the_next_writer_by_no_more_than_seconds(world: World) -> None:
    for number in range(150):
        plant(world, proposal(made(number), id=bytes([0, 0, number]) + bytes(9)))

    async def main(process: Process) -> float:
        session = await (await process.repository()).writable_session_async("main")
        await chunk(3)(session)
        await asyncio.sleep(12)
        began = world.loop.time()
        await session.commit_async("mine", rebase_with=ConflictDetector())
        return world.loop.time() - began

    (took,) = world.run(main)
    assert took < 4


@pytest.mark.parametrize("step", [-3600, 3600])
@pytest.mark.parametrize("after", [0.06, 0.12, 0.18, 0.3])
def test_a_clock_that_is_set_while_writers_wait_delays_them_by_no_more_than_seconds(
    world: World, step: int, after: float
) -> None:
    async def set_clocks(process: Process) -> None:
        for _ in range(1000):
            await asyncio.sleep(0.005)
            if intents(world):
                break
        await asyncio.sleep(after)
        for each in world.processes.values():
            each.set_clock(step)

    found = world.run(*(writer(chunk(n)) for n in range(12)), set_clocks)[:12]
    assert all(isinstance(each, str) for each in found)
    assert world.loop.time() < 30


# -- strangers ------------------------------------------------------------------------------------------------------

_LONG = encode_note("x" * 1000, {})
_GARBAGE = Layer(bytes(11) + b"\1", Box((5,), (6,)), 1, True, inline=b"garbage")
_TEXTS = [
    f'{{"zarr_format":3,"node_type":"group","attributes":{{"a":"{n**9:x}{n**7:x}"}}}}'.encode() for n in range(250)
]
HOSTILE: dict[str, Callable[[bytes], tuple[Proposal, ...]]] = {
    "a long note that is not attached": lambda a: (proposal(made(), note=_LONG),),
    "a long note with something else attached": lambda a: (proposal(made(), note=_LONG, attachments=(b"z",)),),
    "a note that cannot be read": lambda a: (proposal(made(), note=b"\xff\xff"),),
    "a log too large for a body": lambda a: (
        proposal(*(made(n, {"zarr.json": text}) for n, text in enumerate(_TEXTS))),
    ),
    "attachments too large for a record": lambda a: (
        proposal(made(), attachments=tuple(bytes([n]) * 300_000 for n in range(5))),
    ),
    "an array without metadata": lambda a: (proposal(made(7, {}, NodeKind.ARRAY)),),
    "an array that becomes none": lambda a: (
        proposal(NodeChange(Operation.UPDATED, a, "a", NodeKind.ARRAY, {"zarr.json": b"{}"})),
    ),
    "a manifest that is none": lambda a: (proposal(chunks=(ChunkChange(a, _GARBAGE),)),),
    "reads that are none": lambda a: (proposal(made(), reads=pack_body(("x",))),),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_no_leader_commits_what_readers_would_refuse_or_fails_for_it(world: World, what: str) -> None:
    async def look(process: Process) -> bytes:
        session = await (await process.repository()).readonly_session_async("main")
        node = session.hierarchy.state.nodes["a"]
        return node.id

    (identifier,) = world.run(look)
    plant(world, *HOSTILE[what](identifier))
    found = world.run(*(writer(chunk(n), wait=12.0) for n in range(6)))  # so long that they look before they try
    assert all(isinstance(each, str) for each in found)
    assert STRANGER not in {item.id for body in bodies(world) for item in body.transactions}


def test_a_record_that_refuses_many_still_has_room_for_what_it_commits(world: World) -> None:
    nowhere = NodeChange(Operation.DELETED, bytes(11) + b"\3", "nowhere", NodeKind.ARRAY, {})
    plant(world, *(proposal(nowhere, id=bytes([0, 0, 9]) + n.to_bytes(9, "big")) for n in range(3000)))

    async def groups(session: Session) -> None:
        for n in range(24):
            await session.store.set(f"g{n}/zarr.json", BUFFER(GROUP))

    (found,) = world.run(writer(groups, wait=12.0))
    assert found in committed(world)
    assert max(len(body.refused) for body in bodies(world)) > 500


def test_who_is_refused_and_proposes_again_is_taken_by_others(world: World) -> None:
    """What was refused says nothing about what its owner makes of it afterwards."""

    async def guarded(process: Process) -> Any:
        from tests.commit.test_intent_queue import append

        session = await (await process.repository()).writable_session_async("main")
        await asyncio.sleep(1.0)
        await append(session)
        node = session.hierarchy.state.nodes["t"].id
        session.uniques.append(Unique(node, "t", 0, np.empty(0)))
        return await session.commit_async("mine", rebase_with=ConflictDetector())

    before = world.counts.total
    found = world.run(*[guarded] * 24)
    world.drain()
    assert len(set(found)) == 24
    assert not any(isinstance(each, RebaseFailedError) for each in found)
    assert (world.counts.total - before) / 24 < 90  # each record lets one pass, and has all others look at their values
