"""Runs a command, and ends all that comes of it when the process that asked for it is done, however that ends.

A program of its own: ``python keeper.py command...``.  It leads a session of processes; its standard input is a pipe
that nobody writes to and whose other end dies with the process that asked.  Spark's daemons of Python workers leave
their process group, but not their session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path


def main() -> None:
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    code = child.wait()
    _end_others()
    os._exit(code if code >= 0 else 128 - code)


def _end_with_the_parent() -> None:
    while os.read(0, 1):
        pass
    _end_others()
    os._exit(128 + signal.SIGKILL)


def _end_others() -> None:
    """Kill the other processes of this session until none is left: they may start new ones meanwhile."""
    while others := [pid for pid in _processes() if pid != os.getpid() and _is_of_this_session(pid)]:
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _is_of_this_session(pid: int) -> bool:
    try:
        if os.getsid(pid) != os.getsid(0):
            return False
    except (ProcessLookupError, PermissionError):
        return False
    return not _is_dead(pid)


def _is_dead(pid: int) -> bool:
    """Whether it only waits for a parent that does not ask what became of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return Path("/proc").is_dir()  # gone meanwhile, or a system that reaps them without asking


def _processes() -> Iterator[int]:
    if Path("/proc").is_dir():
        return (int(name) for name in os.listdir("/proc") if name.isdecimal())
    listed = subprocess.run(["ps", "-axo", "pid="], capture_output=True, text=True, check=True)
    return (int(word) for word in listed.stdout.split())


if __name__ == "__main__":
    main()
