"""CPU seconds of this process and all processes below it, which say more than time on a machine that is shared."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["tree_cpu_seconds"]

_TICKS = os.sysconf("SC_CLK_TCK")


def tree_cpu_seconds() -> float:
    """CPU seconds of this process, its living descendants, and those that they have waited for."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name of the program, in parentheses, may have spaces in it.
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        number = int(path.parent.name)
        parents[number] = int(fields[1])
        seconds[number] = sum(map(int, fields[11:15])) / _TICKS
    return sum(spent for number, spent in seconds.items() if _is_below(number, parents))


def _is_below(number: int, parents: dict[int, int]) -> bool:
    while number and number != os.getpid():
        number = parents.get(number, 0)
    return number == os.getpid()
