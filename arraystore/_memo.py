"""What several clients in one program may share: values worked out from the immutable bytes of a branch's log.

A client of its own works these out for itself.  A simulation of thousands of them, each with its own caches, would
spend its time on decoding the same records over and over, so it gives all of them one `Memo`: every value here is a
function of what is in the bucket and of nothing else, so what clients ask for and what they decide stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["LogMemo", "Memo"]


@dataclass(eq=False)
class LogMemo:
    """Of one branch; everything by number of the record.

    Parameters
    ----------
    records
        Encoded and decoded records.
    bodies
        Encoded and decoded bodies.
    resolved
        Transactions of commits, with logs and notes.
    states
        Encoded bodies, the snapshots that they follow, and the states that they make.
    """

    records: dict[int, tuple[bytes, Any]] = field(default_factory=dict[int, tuple[bytes, Any]])
    bodies: dict[int, tuple[bytes, Any]] = field(default_factory=dict[int, tuple[bytes, Any]])
    resolved: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])
    states: dict[int, tuple[bytes, bytes, Any]] = field(default_factory=dict[int, tuple[bytes, bytes, Any]])


@dataclass(eq=False)
class Memo:
    """Of all branches of all repositories that a program reaches."""

    logs: dict[tuple[str, str], LogMemo] = field(default_factory=dict[tuple[str, str], LogMemo])

    def log(self, location: str, branch: str) -> LogMemo:
        """Return what is shared of one branch."""
        return self.logs.setdefault((location, branch), LogMemo())
