"""What several tests of the simulator have their processes do."""

from __future__ import annotations

import json

from zarr.core.buffer import default_buffer_prototype

from arraystore import ConflictDetector
from arraystore.errors import StorageError
from arraystore.simulation import Faults, Process, World

GROUP = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}).encode()


async def commit_groups(process: Process, times: int = 5) -> int:
    """Commit some new groups, one after the other; returns how many are known to be committed."""
    buffer = default_buffer_prototype().buffer.from_bytes
    repository = await process.repository()
    committed = 0
    for number in range(times):
        try:
            session = await repository.writable_session_async("main")
            await session.store.set(f"{process.name}-{number}/zarr.json", buffer(GROUP))
            await session.commit_async(f"{process.name} {number}", rebase_with=ConflictDetector())
        except StorageError:
            continue
        committed += 1
    return committed


def digest_of(seed: int, faults: str) -> str:
    """Run three writers, and return the hash of what happened."""
    with World(seed, faults=getattr(Faults, faults)()) as world:
        world.run(commit_groups, commit_groups, commit_groups)
        world.drain()
        assert world.loop.complaints == []
        return world.trace.digest()
