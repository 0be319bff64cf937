"""Sources of virtual chunks: those who refer to them, and those who overwrite them."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from arraystore._repository.repository import Repository
from arraystore.errors import ObjectNotFoundError
from arraystore.simulation.bucket import Bucket
from arraystore.simulation.world import SOURCES
from arraystore.storage.object_state import modified_us
from tests.simulation.actors.documents import chunk_key
from tests.simulation.actors.hand import Hand
from tests.simulation.actors.scene import Scene
from tests.simulation.actors.script import Turn
from tests.simulation.observations import Coords, SourceVersion, WriteChunk

__all__ = ["Sources", "overwrite_turn", "refer"]

_NAMES = ("x", "y", "z")
_RECORD = 24
"""Bytes that name source and version, again and again, so that no range of two of them is in another version."""

_SIZES = (2400, 4800)


class Sources(Bucket):
    """A bucket of sources that remembers all that there was."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__("sources://simulated", clock)
        self.versions: list[SourceVersion] = []
        for name in _NAMES:
            self.put(name, content(name, f"first {name}", _SIZES[0]))

    def put(self, key: str, data: bytes) -> str:
        """Write a source."""
        self.versions.append(SourceVersion(SOURCES + key, self._clock(), data))
        return super().put(key, data)

    def delete(self, keys: list[str] | tuple[str, ...]) -> None:  # type: ignore[override]
        """Delete sources."""
        self.versions += [SourceVersion(SOURCES + key, self._clock(), None) for key in keys]
        super().delete(keys)


def content(name: str, label: str, size: int) -> bytes:
    """Return the bytes of one version of a source."""
    record = f"{name} {label}".encode().ljust(_RECORD - 4, b".")
    assert len(record) == _RECORD - 4
    return b"".join(record + at.to_bytes(4, "big") for at in range(size // _RECORD))


async def overwrite_turn(scene: Scene, process: str, repo: Repository, actor: str, turn: Turn) -> None:
    """Overwrite, shorten or delete a source; parameters as of `read_turn`."""
    rng = scene.random(actor, turn.number)
    storage, key = repo.context.containers.find(SOURCES + rng.choice(_NAMES))
    if rng.random() < 0.15:
        await storage.delete([key])
    else:
        await storage.put(key, content(key, f"{actor} {turn.number} {process}", rng.choice(_SIZES)))


async def refer(hand: Hand, path: str, coords: Coords, rng: random.Random) -> None:
    """Let a chunk be a range of a source in the state in which it is now, and note its bytes."""
    url = SOURCES + rng.choice(_NAMES)
    storage, key = hand.session.context.containers.find(url)
    start = _RECORD * rng.randrange(_SIZES[0] // _RECORD - 3)
    length = 2 * _RECORD + rng.randrange(_RECORD)
    try:
        _, before = await storage.get_source_ranges(key, [])
        (data,), info = await storage.get_source_ranges(key, [(start, start + length)])
    except ObjectNotFoundError:
        return
    reference = (url, info.etag, start, length)
    overwritten = (info.etag, info.modified) != (before.etag, before.modified)
    if overwritten or reference in hand.scene.referred:  # bytes must name who has written them
        return
    hand.scene.referred.add(reference)
    modified = modified_us(info)
    checksum: str | datetime = info.etag or ""
    if modified is not None and modified % 1_000_000 and rng.random() < 0.4:
        checksum = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=modified)
    hand.session.store.set_virtual_ref(chunk_key(path, coords), url, offset=start, length=length, checksum=checksum)
    hand.operations.append(WriteChunk(path, coords, bytes(data)))
