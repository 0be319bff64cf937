"""Small types that signatures name."""

from __future__ import annotations

from typing import Literal

from arraystore.compat.icechunk._display import Numbered

__all__ = ["ChunkType", "CommitMethod", "SessionMode", "SpecVersion"]

CommitMethod = Literal["new_commit", "amend"]


class ChunkType(Numbered):
    """Kind of the place of a chunk's bytes."""

    uninitialized = 0
    native = 1
    virtual = 2
    inline = 3


class SessionMode(Numbered):
    """Mode of a session: what it may change."""

    readonly = 0
    writable = 1
    rearrange = 2


class SpecVersion(Numbered):
    """Version of Icechunk's format that a program asked for; what is stored is always arraystore's own."""

    v1 = 1
    v2 = 2

    @staticmethod
    def current() -> SpecVersion:
        """Return the newest version."""
        return SpecVersion.v2

    def __repr__(self) -> str:
        return f"SpecVersion.{self.name}" + (" (current)" if self is SpecVersion.current() else "")

    __str__ = __repr__
