"""Memory of this process, as the kernel counts it (Linux)."""

from __future__ import annotations

import gc
from pathlib import Path

__all__ = ["peak", "reset_peak", "resident"]


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}: this measurement needs Linux")


def resident() -> int:
    """Bytes in memory now."""
    gc.collect()
    return _status("VmRSS")


def peak() -> int:
    """The most bytes in memory since `reset_peak`."""
    return _status("VmHWM")


def reset_peak() -> int:
    """Let the peak start anew at what is resident now, and return that.

    `ru_maxrss` would not do: a child takes over the peak that its parent had.
    """
    Path("/proc/self/clear_refs").write_text("5")
    return resident()
