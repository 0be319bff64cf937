"""What actors do when they are told that something is not there any more: they note it, and do without."""

from __future__ import annotations

from types import TracebackType

from arraystore.errors import (
    ArrayStoreError,
    ObjectNotFoundError,
    ReadOnlyError,
    RefNotFoundError,
    SessionExpiredError,
    SnapshotNotFoundError,
)
from tests.simulation.actors.scene import Scene
from tests.simulation.observations import Missing

__all__ = ["LOST", "REFUSALS", "lost_branch", "lost_snapshot"]

LOST = (SnapshotNotFoundError, ObjectNotFoundError, SessionExpiredError)
"""Errors of whoever reads a snapshot that has expired, or that a branch had that was deleted or reset, or what was
written and not committed when garbage was collected."""

REFUSALS = (SessionExpiredError, ReadOnlyError, RefNotFoundError)
"""Errors of whoever commits what came too late, or where nothing may be committed."""


class lost_snapshot:  # noqa: N801 - used as a function
    """Note that a snapshot cannot be read, and leave the block; the checker knows whether that was to be."""

    kind = "snapshot"
    errors: tuple[type[ArrayStoreError], ...] = LOST

    def __init__(self, scene: Scene, process: str, name: str) -> None:
        self.scene, self.process, self.name = scene, process, name
        self.began = scene.clock()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, self.errors):
            return False
        name, ended = type(error).__name__, self.scene.clock()
        self.scene.notes.see(Missing(self.process, self.kind, self.name, name, self.began, ended))
        return True


class lost_branch(lost_snapshot):  # noqa: N801 - used as a function
    """Note that a branch cannot be found, or not what it stands at, and leave the block."""

    kind = "branch"
    errors = (RefNotFoundError, *LOST)
