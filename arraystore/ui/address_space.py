"""Limits of the memory that a process can allocate."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["limit_address_space"]


def limit_address_space(room: int, *, for_good: bool = False) -> None:
    """Limit what this process can allocate beyond what it has, so that a chunk of any size is an error and no more.

    What it has counts for nothing: threads of a machine with many cores may have gigabytes of addresses already.
    Systems without such a limit have none.
    """
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows
        return
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    bound = _in_use() + room
    bound = bound if most == resource.RLIM_INFINITY else min(bound, most)
    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound if for_good else most))


def _in_use() -> int:
    """Return the bytes of the addresses of this process, on Linux; elsewhere an estimate."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 1 << 30
