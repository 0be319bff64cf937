"""What processes do that share a cache on disk; importable by name, so that spawned processes find it."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

from arraystore.storage import CachedStorage, LocalStorage
from tests.commit.support import DistantStorage

OBJECTS, SIZE = 24, 6000


def content(number: int) -> bytes:
    """Return the bytes of an object, which nobody else has."""
    return random.Random(number).randbytes(SIZE)


def share(remote: str, directory: str, limit: int, seed: int, turns: int, fault: str = "") -> list[str]:
    """Read whole objects and ranges through the cache; returns the keys of those that came back wrong."""
    storage = CachedStorage(DistantStorage(LocalStorage(remote)), directory, limit)
    luck = random.Random(seed)
    wrong: list[str] = []
    for turn in range(turns):
        if turn == turns // 2 and fault == "killed while it writes":
            _die_before_the_next_rename()
        if fault == "damages files" and turn % 5 == 0:
            _damage_some(Path(directory), luck)
        number = luck.randrange(OBJECTS)
        key, expected = f"chunks/{number:020}", content(number)
        if luck.random() < 0.3:
            if bytes(storage.get_sync(key)) != expected:
                wrong.append(key)
        else:
            start = luck.randrange(SIZE - 1)
            stop = luck.randrange(start + 1, SIZE)
            if bytes(storage.get_range_sync(key, start, stop)) != expected[start:stop]:
                wrong.append(key)
        if luck.random() < 0.05:
            storage.forget(key)
    return wrong


def _die_before_the_next_rename() -> None:
    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    Path.replace = die  # type: ignore[assignment,method-assign]


def _damage_some(directory: Path, luck: random.Random) -> None:
    """Flip a bit of a file, cut one off, or remove one, as a bad disk and other programs do."""
    entries = sorted(path for path in directory.rglob("*-*") if not path.name.startswith(".new-"))
    for path in luck.sample(entries, min(1, len(entries))):
        try:
            data = bytearray(path.read_bytes())
            act = luck.randrange(3)
            if act == 0 and data:
                data[luck.randrange(len(data))] ^= 1 << luck.randrange(8)
                path.write_bytes(data)
            elif act == 1:
                path.write_bytes(data[: luck.randrange(len(data) + 1)])
            else:
                path.unlink()
        except OSError:
            continue  # evicted meanwhile
