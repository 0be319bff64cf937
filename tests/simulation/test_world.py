"""Simulated worlds: the same seed does the same, faults do what they say, and the dead stay dead."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import fields

import pytest

from arraystore import ConflictDetector
from arraystore._format.refs import REPOSITORY_KEY, branch_prefix, decode_repository
from arraystore._repository.repository import Repository
from arraystore.errors import ArrayStoreError, ObjectNotFoundError, StorageError
from arraystore.simulation import DeadlockError, Faults, HorizonError, Latencies, Process, World
from arraystore.storage.counting import CountingStorage
from tests.simulation.scenes import commit_groups, digest_of
from tests.tiers import mostly_thorough


def test_the_same_seed_gives_the_same_trace_and_another_one_another() -> None:
    assert digest_of(3, "heavy") == digest_of(3, "heavy") != digest_of(4, "heavy")


@pytest.mark.parametrize("faults", mostly_thorough(["heavy", "none"]))
def test_the_trace_depends_on_no_hash_and_on_no_process(faults: str) -> None:
    program = f"from tests.simulation.scenes import digest_of; print(digest_of(5, {faults!r}))"
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("0", "4711")
    }
    assert found == {digest_of(5, faults) + "\n"}


def test_no_thread_is_started() -> None:
    before = threading.active_count()
    digest_of(3, "light")
    assert threading.active_count() == before


@pytest.mark.parametrize("seed", range(5))
def test_commits_under_heavy_faults_make_one_gap_free_log(seed: int) -> None:
    with World(seed, faults=Faults.heavy()) as world:
        world.run(*[commit_groups] * 3)
        world.drain()
        repository = decode_repository(REPOSITORY_KEY, world.bucket.objects[REPOSITORY_KEY])
        prefix = branch_prefix(repository.id, "main")  # creations that failed have left first records of others
        numbers = [int(key[-12:]) for key in world.bucket.keys(prefix) if key[-12:].isdigit()]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 5


def test_times_ids_and_chance_are_the_simulations() -> None:
    async def create(process: Process) -> str:
        repository = await Repository.create_async(process.storage)
        session = await repository.writable_session_async("main")
        await session.commit_async("nothing", allow_empty=True)
        infos = [info async for info in repository.async_ancestry(branch="main")]
        assert {info.written_at.year for info in infos} == {2023}
        return repository.id

    ids = set()
    for _ in range(2):
        with World(1) as world:
            ids.update(world.run(create))
    assert len(ids) == 1


def test_what_is_pickled_in_one_process_works_through_the_handle_of_another() -> None:
    handed: list[bytes] = []

    async def give(process: Process) -> None:
        await process.storage.put("a", b"1")
        handed.append(pickle.dumps(process.storage))

    async def take(process: Process) -> bytes:
        await asyncio.sleep(10)
        storage = pickle.loads(handed[0])
        assert storage is process.storage
        return bytes(await storage.get("a"))

    with World() as world:
        assert world.run(give, take) == [None, b"1"]
    with pytest.raises(StorageError, match="processes of that simulation"):
        pickle.loads(handed[0])


def test_requests_and_bytes_are_counted_for_each_process_and_in_all() -> None:
    async def ask(process: Process) -> None:
        await process.storage.put("a", b"12345")
        await process.storage.get("a")
        with pytest.raises(ObjectNotFoundError):
            await process.storage.head("b")
        assert [page async for page in process.storage.list("x")] == []

    with World() as world:
        world.run(ask, ask)
        counts = world.process("ask-0").counts
        assert counts.requests == {"put": 1, "get": 1, "head": 1, "list": 1}
        assert (counts.bytes_read, counts.bytes_written) == (5, 5)
        assert world.counts.total == 8


def test_at_most_so_many_requests_of_a_process_run_at_a_time() -> None:
    async def ask(process: Process) -> float:
        await asyncio.gather(*(process.storage.put(f"{process.name}/{number}", b"") for number in range(9)))
        return process.world.loop.time()

    with World(latencies=Latencies(Latencies.fixed(1.0).get, Latencies.fixed(1.0).put, parallel=4)) as world:
        assert world.run(ask, ask) == [3.0, 3.0]


def test_effects_take_place_within_the_latency() -> None:
    async def put(process: Process) -> None:
        for number in range(50):
            await process.storage.put(f"{number}", b"")

    with World(latencies=Latencies.fixed(0.0, 2.0)) as world:
        world.run(put)
        moments = [event.time % 2.0 for event in world.trace if event.operation == "put"]
    assert min(moments) < 0.3
    assert max(moments) > 1.7


def test_a_crash_runs_nothing_more_and_the_next_life_knows_nothing() -> None:
    lives: list[tuple[int, float]] = []

    async def live(process: Process) -> int:
        lives.append((process.life, process.world.loop.time()))
        try:
            await asyncio.sleep(5 if process.life == 0 else 1)
        finally:
            lives.append((-process.life, process.world.loop.time()))
        return process.life

    with World() as world:
        process = world.process("a")
        process.start(live)
        world.run_for(3)
        process.crash(restart_after=2)
        world.run()
        assert lives == [(0, 0.0), (1, 5.0), (-1, 6.0)]
        assert world.process("a").life == 1
        assert world.process("a").result == 1
        assert not process.alive


def test_a_crash_for_good_ends_a_process() -> None:
    async def die(process: Process) -> None:
        process.crash()
        await asyncio.sleep(0)
        raise AssertionError("it lives on")

    with World() as world:
        assert world.run(die) == [None]


def test_what_a_process_had_on_its_way_when_it_crashed_arrives_or_not() -> None:
    async def put(process: Process) -> None:
        await process.storage.put("a", b"")

    arrived = Counter[bool]()
    for seed in range(40):
        with World(seed, latencies=Latencies.fixed(1.0)) as world:
            process = world.process("p")
            process.start(put)
            world.run_for(0.001)
            process.crash()
            world.drain()
            arrived["a" in world.bucket.objects] += 1
    assert min(arrived[True], arrived[False]) > 5


def test_a_pause_holds_a_process_back_and_not_its_requests() -> None:
    async def put(process: Process) -> float:
        await process.storage.put("a", b"")
        return process.world.loop.time()

    with World(latencies=Latencies.fixed(1.0)) as world:
        process = world.process("p")
        process.start(put)
        world.run_for(0.001)
        process.pause(100.0)
        world.run_for(2)
        assert "a" in world.bucket.objects
        assert not process.done
        world.run()
        assert process.result == pytest.approx(100.001)


OF_REQUESTS = ["lost", "unacknowledged", "late", "throttled", "failed"]


@pytest.mark.parametrize("kind", OF_REQUESTS)
def test_a_request_that_fares_ill_ends_in_an_error_and_takes_effect_as_it_should(kind: str) -> None:
    async def put(process: Process) -> None:
        with pytest.raises(StorageError):
            await process.storage.put_if_absent("a", b"")
        effects.append("a" in process.world.bucket.objects)

    effects: list[bool] = []
    with World(1, faults=Faults(**{kind: 1.0}, tries=1)) as world:
        world.run(put)
        world.drain()
        effects.append("a" in world.bucket.objects)
    assert (
        effects
        == {
            "lost": [False, False],
            "unacknowledged": [True, True],
            "late": [False, True],
            "throttled": [False, False],
            "failed": [True, True],
        }[kind]
    )


@pytest.mark.parametrize(("kind", "effects"), [("refused", ["written"]), ("repeated", ["written, unanswered", "same"])])
def test_what_is_sent_twice_is_written_and_answered_as_existing(kind: str, effects: list[str]) -> None:
    async def put(process: Process) -> bool:
        written = await process.storage.put_if_absent("a", b"")
        await process.storage.put("b", b"")
        assert await process.storage.get("b") == b""
        return written

    with World(1, faults=Faults(**{kind: 1.0}, timeout=20.0, tries=1)) as world:
        assert world.run(put) == [False]
        assert [event.effect for event in world.trace if event.key == "a"] == effects
        assert world.bucket.objects.keys() == {"a", "b"}


def test_what_is_repeated_later_than_its_sender_waits_is_answered_to_nobody() -> None:
    async def put(process: Process) -> None:
        with pytest.raises(StorageError, match="no answer"):
            await process.storage.put_if_absent("a", b"")

    for seed in range(20):
        with World(seed, faults=Faults(repeated=1.0, timeout=0.001, tries=1)) as world:
            world.run(put)
            world.drain()
            assert "a" in world.bucket.objects


def test_a_duplicated_request_takes_effect_twice_and_is_answered_once() -> None:
    async def work(process: Process) -> None:
        assert await process.storage.put_if_absent("a", b"1")
        await process.storage.put("hints/x", b"1")
        await process.storage.get("a")

    with World(1, faults=Faults(duplicated=1.0)) as world:
        world.run(work)
        world.drain()
        effects = Counter((event.operation, event.effect) for event in world.trace)
    assert effects == {
        ("put_if_absent", "written"): 1,
        ("put_if_absent", "same, again"): 1,
        ("put", "written"): 1,
        ("put", "overwritten, again"): 1,
        ("get", "read"): 1,
    }


def test_a_retry_finds_that_its_own_first_attempt_has_arrived() -> None:
    async def put(process: Process) -> bool:
        return await process.storage.put_new("a", b"1")

    for seed in range(30):
        with World(seed, faults=Faults(unacknowledged=0.5, tries=20)) as world:
            assert world.run(put) == [True]


def test_hints_may_be_stale_and_listings_slow() -> None:
    async def work(process: Process) -> None:
        for value in (b"1", b"2"):
            await process.storage.put("hints/main", value)
        with contextlib.suppress(ObjectNotFoundError):
            assert await process.storage.get("hints/main") == b"1"
        began = process.world.loop.time()
        assert [page async for page in process.storage.list("refs/")] == []
        assert process.world.loop.time() - began > 1.0

    with World(2, faults=Faults(stale_hints=1.0, slow_listings=1.0, lateness=100.0)) as world:
        world.run(work)


def test_pauses_and_crashes_befall_processes_until_faults_end() -> None:
    async def work(process: Process) -> int:
        await asyncio.sleep(20)
        return process.life

    with World(3, faults=Faults(pauses=1.0, crashes=3.0, until=200.0)) as world:
        world.run(*[work] * 3)
        happened = Counter(event.operation for event in world.trace)
        last = max(event.time for event in world.trace if event.operation == "crash")
    assert happened["crash"] == happened["restart"] > 5
    assert happened["pause"] > 20
    assert last < 200


def test_clocks_are_off_by_as_much_as_the_faults_say() -> None:
    with World(faults=Faults(skew=1000.0)) as world:
        times = [world.process(f"p{number}").environment.now_us() / 1e6 for number in range(20)]
    assert 500 < max(times) - min(times) < 2000


def test_what_never_ends_is_told_with_its_seed_and_its_names() -> None:
    async def wait(process: Process) -> None:
        await process.world.loop.create_future()

    async def turn(process: Process) -> None:
        while True:  # noqa: ASYNC110 - it waits for nothing
            await asyncio.sleep(1)

    with World(11) as world, pytest.raises(DeadlockError, match=r"seed 11: \['wait-0'\]"):
        world.run(wait)
    with World(11) as world, pytest.raises(HorizonError, match="turn-0"):
        world.run(turn, until=100)


def test_the_error_of_a_process_is_the_runs() -> None:
    async def fail(process: Process) -> None:
        raise KeyError(process.name)

    with World() as world, pytest.raises(KeyError, match="fail-0"):
        world.run(fail)


def test_a_program_that_ends_waits_for_nothing_that_was_simulated() -> None:
    program = (
        "import asyncio\n"
        "from arraystore.simulation import World\n"
        "from arraystore.storage.counting import CountingStorage\n"
        "from arraystore._repository.repository import Repository\n"
        "kept = []\n"
        "async def work(process):\n"
        "    repository = await Repository.create_async(CountingStorage(process.storage))\n"
        "    kept.append(repository)\n"
        "    repository.context.start(asyncio.sleep(1000))\n"
        "with World() as world:\n"
        "    world.run(work)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=25)


def test_wrapped_storages_work_as_well() -> None:
    async def work(process: Process) -> int:
        storage = CountingStorage(process.storage)
        await Repository.create_async(storage)
        return storage.counts.total

    with World() as world:
        assert world.run(work) == [4]


def test_every_fault_is_part_of_some_swarm() -> None:
    with World() as world:
        streams = [world.stream(f"faults {number}") for number in range(200)]
        drawn = [Faults.swarm(rng).sent_twice(rng).of_storage(rng) for rng in streams]
    none = Faults.none()
    kinds = {field.name for field in fields(Faults)} - {"pause", "downtime", "lateness", "until"}
    assert {name for name in kinds for one in drawn if getattr(one, name) != getattr(none, name)} == kinds


def test_forgotten_processes_are_gone() -> None:
    async def nothing(process: Process) -> None:
        await asyncio.sleep(0)

    with World() as world:
        for number in range(3):
            process = world.process(f"p{number}")
            process.start(nothing)
            world.run()
            world.forget(process)
        assert world.processes == {}


async def _uncertain(process: Process) -> str:
    repository = await process.repository()
    session = await repository.writable_session_async("main")
    try:
        await session.commit_async("one", allow_empty=True, rebase_with=ConflictDetector())
    except ArrayStoreError as error:
        return type(error).__name__
    return "committed"


def test_a_storage_that_never_answers_leaves_a_commit_uncertain() -> None:
    async def create(process: Process) -> None:
        await process.repository()

    with World(1, faults=Faults(unacknowledged=0.0)) as world:
        world.run(create)
        world._network = _Silent(world)  # type: ignore[assignment]
        assert world.run(_uncertain) == ["AppendUncertainError"]


class _Silent:
    """Loses the answer to every conditional write."""

    def __init__(self, world: World) -> None:
        self._inner = world._network
        self._loop = world.loop

    def send(self, request: object) -> None:
        if request.operation == "put_if_absent":  # type: ignore[attr-defined]
            self._loop.at(self._loop.time() + 1, request.fail, StorageError("no answer"))  # type: ignore[attr-defined]
        else:
            self._inner.send(request)  # type: ignore[arg-type]
