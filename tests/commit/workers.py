"""What other processes do in these tests; importable by name, so that they find it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from arraystore import ConflictError, Repository, Storage, WrapperStorage, local_filesystem_storage
from arraystore.errors import AlreadyExistsError
from arraystore.storage import BytesLike
from tests.commit.support import commit_number, put_bytes, put_number

PACKED = 5_000
"""Bytes of a chunk that is too large to be inlined."""


def value(size: int, number: int) -> bytes:
    """Return a chunk that holds a number, over and over."""
    return number.to_bytes(4, "little") * (size // 4)


def commit_rows_of(storage: Storage, who: int, count: int) -> list[str]:
    """Commit rows of one's own, one at a time, until each is acknowledged; returns the snapshots."""
    repository = Repository.open(storage)
    acknowledged = []
    for turn in range(count):
        row = who * 1000 + turn
        while True:
            session = repository.writable_session("main")
            put_number(session, row, row)
            put_bytes(session, row + 500, value(PACKED, row))
            try:
                acknowledged.append(session.commit(f"{who}/{turn}", {"row": row}))
                break
            except ConflictError:
                continue
    repository.wait_for_maintenance()
    return acknowledged


def create(storage: Storage) -> str | None:
    """Create a repository; returns its id, None if another one was faster."""
    try:
        return Repository.create(storage).id
    except AlreadyExistsError:
        return None


def make_ref(storage: Storage, kind: str, name: str, snapshot: str) -> bool:
    """Create a branch or a tag; tells whether this process did."""
    try:
        getattr(Repository.open(storage), kind)(name, snapshot)
    except AlreadyExistsError:
        return False
    return True


def commit_for_ever(storage: Storage, who: int, first: int, acknowledgements: Path) -> None:
    """Commit the same three rows with ever higher numbers until killed, and note what was acknowledged."""
    file = os.open(acknowledgements, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    repository = Repository.open(storage)
    turn = first
    while True:
        session = repository.writable_session("main")
        for row in (0, 1):
            put_number(session, who * 1000 + row, turn)
        put_bytes(session, who * 1000 + 2, value(PACKED, turn))
        try:
            session.commit(f"{who}/{turn}")
        except ConflictError:
            continue
        os.write(file, f"{who}/{turn}\n".encode())
        turn += 1


def commit_64th(path: str) -> None:
    """Commit once, and end at once, with what that leaves to do in the background."""
    put = WrapperStorage.put

    async def slow(self: WrapperStorage, key: str, data: BytesLike) -> None:
        await asyncio.sleep(0.3)
        await put(self, key, data)

    WrapperStorage.put = slow  # type: ignore[method-assign]
    repository = Repository.open(WrapperStorage(local_filesystem_storage(path)))
    commit_number(repository, 64, 64)
