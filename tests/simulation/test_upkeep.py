"""Maintenance by processes whose clocks differ."""

from __future__ import annotations

from datetime import UTC, datetime

from zarr.core.buffer import cpu

from arraystore.simulation.world import EPOCH, Process, World
from tests.simulation.actors.documents import group_document


async def _wrote(process: Process) -> list[str]:
    """Commit three times; returns the snapshots."""
    repo = await process.repository()
    found: list[str] = []
    for number in range(3):
        session = await repo.writable_session_async("main")
        await session.store.set("zarr.json", cpu.Buffer.from_bytes(group_document({"number": number})))
        found.append(await session.commit_async(f"number {number}"))
    return found


async def _collected(process: Process) -> int:
    process.set_clock(10_000.0)
    repo = await process.repository()
    summary = await repo.garbage_collect_async(datetime.fromtimestamp(process.now_us() / 1e6, UTC))
    return summary.objects_deleted


async def _expired(process: Process) -> set[str]:
    process.set_clock(-10_000.0)
    repo = await process.repository()
    return await repo.expire_snapshots_async(datetime.fromtimestamp(EPOCH + 1000.0, UTC))


def test_snapshots_expire_by_a_clock_that_is_behind_the_watermark() -> None:
    """Objects that an expiry writes have ids, which must not be below the watermark of a collection that has passed."""
    with World(1) as world:
        (snapshots,) = world.run(_wrote)
        world.run(_collected)
        (expired,) = world.run(_expired)
    assert expired == set(snapshots[:-1])


def test_a_collection_by_a_clock_that_is_behind_deletes_nothing_new() -> None:
    with World(2) as world:
        (snapshots,) = world.run(_wrote)
        world.run(_expired)

        async def behind(process: Process) -> int:
            process.set_clock(-10_000.0)
            repo = await process.repository()
            summary = await repo.garbage_collect_async(datetime.fromtimestamp(process.now_us() / 1e6, UTC), full=True)
            assert await repo.lookup_branch_async("main") == snapshots[-1]
            return summary.objects_deleted

        assert world.run(behind) == [0]
