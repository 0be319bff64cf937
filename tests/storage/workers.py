"""What tests run in other processes; importable by name, so that spawned processes find it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from arraystore.storage import LocalStorage, Storage

PATIENCE = 60
"""Seconds after which a process that hangs is ended, and its test fails."""


def call_in_process(method: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process and return its result; exceptions come back as their repr."""
    return call_in_processes(method, function, [arguments])[0]


def call_in_processes(method: str, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call a function in one new process for each tuple of arguments, all at the same time."""
    context = multiprocessing.get_context(method)
    barrier = context.Barrier(len(calls))
    ends, processes = [], []
    for arguments in calls:
        ours, theirs = context.Pipe(duplex=False)
        processes.append(context.Process(target=_run, args=(theirs, barrier, function, arguments)))
        ends.append((ours, theirs))
    for process in processes:
        process.start()
    for _, theirs in ends:
        theirs.close()
    results = [_receive(ours) for ours, _ in ends]
    for process in processes:
        process.join()
    return results


def _receive(end: Connection) -> Any:
    try:
        return end.recv() if end.poll(PATIENCE) else "no answer"
    except EOFError:
        return "the process died"


def _run(end: Connection, barrier: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a forked child inherits the handler of the test runner
    signal.alarm(PATIENCE)
    barrier.wait()
    try:
        end.send(function(*arguments))
    except Exception as error:  # noqa: BLE001 - the test sees it
        end.send(repr(error))
    end.close()


def claim(storage: Storage, keys: Sequence[str], who: bytes) -> list[bool]:
    """Try to write all keys, one after the other, and tell which were won."""

    async def run() -> list[bool]:
        return [await storage.put_if_absent(key, who) for key in keys]

    return asyncio.run(run())


def use_everything(storage: Storage, name: str) -> bool:
    """Write, read and list below a name of one's own, through both faces of the storage."""

    async def run() -> bool:
        await storage.put(f"{name}/a", b"0123456789")
        storage.put_sync(f"{name}/b", b"abc")
        await storage.sync()
        won = await storage.put_if_absent(f"{name}/c", b"c")
        lost = await storage.put_if_absent(f"{name}/c", b"d")
        ranges = [bytes(part) for part in await storage.get_ranges(f"{name}/a", [(0, 2), (8, 10)])]
        keys = [info.key async for page in storage.list(f"{name}/") for info in page]
        return (
            won
            and not lost
            and ranges == [b"01", b"89"]
            and bytes(storage.get_sync(f"{name}/b")) == b"abc"
            and bytes(storage.get_range_sync(f"{name}/a", 3, 5)) == b"34"
            and keys == [f"{name}/a", f"{name}/b", f"{name}/c"]
        )

    return asyncio.run(run())


def use_then_fork_again(storage: Storage, name: str) -> list[Any]:
    """Use a storage, then let a child of this process use it."""
    here = use_everything(storage, f"{name}/child")
    return [here, call_in_process("fork", use_everything, storage, f"{name}/grandchild")]


def write_for_ever(path: str, fsync: bool, size: int) -> None:
    """Write objects of one repeated byte, over and over, until killed."""
    storage = LocalStorage(path, fsync=fsync)

    async def run() -> None:
        turn = 0
        while True:
            payload = bytes([turn % 251]) * size
            storage.put_sync(f"packs/{turn % 7}", payload)
            await storage.put_if_absent(f"log/{os.getpid()}-{turn}", payload)
            turn += 1

    asyncio.run(run())
