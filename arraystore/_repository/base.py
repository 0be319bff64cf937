"""What all parts of a repository share: where it is, and how snapshots are found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from arraystore._config import RepositoryConfig
from arraystore._context import Context
from arraystore._format.history import SnapshotRow
from arraystore._format.ids import id_from_text, id_to_text
from arraystore._format.record import decode_note
from arraystore._format.refs import RepositoryInfo
from arraystore._format.repository_log import FIRST_BRANCH, Tag
from arraystore._history.detached_snapshots import read_detached
from arraystore._history.missing_objects import check_still_kept
from arraystore._log.ancestry import Place, find_expired, find_snapshot
from arraystore._log.loading import Tip, load_checkpoint, load_tip
from arraystore._log.state import State
from arraystore.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    RefNotFoundError,
    SnapshotExpiredError,
    SnapshotNotFoundError,
)
from arraystore.storage.protocol import Storage

__all__ = ["RepositoryBase", "SnapshotInfo", "check_text", "snapshot_info"]


def check_text(name: str) -> None:
    """Check that what is to name a branch or a tag is a text; raises `InvalidInputError`."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - of a caller without types
        raise InvalidInputError(f"a branch or a tag has a name, a text; {name!r} is none")


@dataclass(frozen=True)
class SnapshotInfo:
    """A snapshot in the history.

    Parameters
    ----------
    id, parent_id
        Of the snapshot and of the one before it.
    written_at
        When it was committed, by the writer's clock, in UTC.
    message, metadata
        What the writer said of it.
    """

    id: str
    parent_id: str | None
    written_at: datetime
    message: str
    metadata: dict[str, Any] = field(default_factory=dict)


def snapshot_info(row: SnapshotRow) -> SnapshotInfo:
    """Return a row of the history as users see it."""
    message, metadata = decode_note(f"note of snapshot {id_to_text(row.id)}", row.note)
    parent = None if row.parent is None else id_to_text(row.parent)
    written = datetime.fromtimestamp(row.time / 1_000_000, UTC)
    return SnapshotInfo(id_to_text(row.id), parent, written, message, metadata)


class RepositoryBase:
    """What a repository is, without what can be done with it.

    Parameters
    ----------
    context
        What its sessions share.
    info
        What the object ``repo`` says.
    """

    def __init__(self, context: Context, info: RepositoryInfo) -> None:
        self._context = context
        self._info = info
        self._default_metadata: dict[str, Any] = {}

    @property
    def context(self) -> Context:
        """What sessions of the repository share in this process."""
        return self._context

    @property
    def id(self) -> str:
        """Id of the repository."""
        return id_to_text(self._info.id)

    @property
    def storage(self) -> Storage:
        """Where it is."""
        return self._context.storage

    @property
    def config(self) -> RepositoryConfig:
        """Its configuration."""
        return self._context.config

    @property
    def authorized_virtual_container_prefixes(self) -> set[str]:
        """URL prefixes that virtual chunks may be read from."""
        return set(self._context.containers.prefixes)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.storage.location}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RepositoryBase):
            return NotImplemented
        return self._info.id == other._info.id and self.storage.location == other.storage.location

    def __hash__(self) -> int:
        return hash(self._info.id)

    # -- finding --------------------------------------------------------------------------------------------

    async def _tip_of(self, branch: str | None, tag: str | None, snapshot_id: str | None) -> Tip:
        """Return the record of a branch, a tag or a snapshot."""
        given = [value for value in (branch, tag, snapshot_id) if value is not None]
        if len(given) != 1:
            raise InvalidInputError("give exactly one of branch, tag and snapshot_id")
        if branch is not None:
            return await self._context.tip(branch)
        if tag is not None:
            found = await self._tag(tag)
            try:
                return Tip(await load_checkpoint(self.storage, found.origin.checkpoint), {})
            except ObjectNotFoundError:
                await self._tag(tag)  # which may have been deleted, and collected
                raise
        assert snapshot_id is not None
        identifier = id_from_text(snapshot_id)
        try:
            return await self._tip_at(await self._find(identifier))
        except SnapshotNotFoundError:
            state = await self._found_otherwise(identifier)
            if state is None:
                raise
            return Tip(state, {})

    async def _found_otherwise(self, snapshot: bytes) -> State | None:
        """Return a snapshot that no log tells of: it is on no branch, or was named while it expired."""
        state = await read_detached(self._context, snapshot)
        if state is not None:
            return state
        table = await self._context.repository_log.table()
        named = [tag.origin for tag in table.tags.values() if tag.snapshot == snapshot]
        for name, row in sorted(table.branches.items()):
            tip = None if row.deleted else await self._newest_or_none(name)
            life = None if tip is None or tip.state.snapshot != snapshot else tip.state.life
            if life is not None and life.origin is not None and life.expired < life.start:
                named.append(life.origin)
        for origin in named:
            state = await load_checkpoint(self.storage, origin.checkpoint)
            if state.snapshot == snapshot:
                return state
        return None

    async def _tip_at(self, place: Place) -> Tip:
        """Load the snapshot at a place."""
        log, row = self._context.log(place.branch), place.row
        try:
            return await load_tip(log, place.hint, at=row.sequence, snapshot=row.id)
        except ObjectNotFoundError:  # what a branch gave up is in its log for as long as the records are
            await check_still_kept(self._context, place.branch, row.sequence, row.id)
            raise

    async def _find(self, snapshot: bytes) -> Place:
        """Find a snapshot in any log; in that of main, which always exists, without asking for the others."""
        branches = [FIRST_BRANCH]
        for branch in branches:
            tip = await self._newest_or_none(branch)
            place = None if tip is None else await find_snapshot(self._context.log(branch), tip, snapshot)
            if place is not None:
                return place
            if branch == FIRST_BRANCH:
                branches += sorted((await self._context.repository_log.table()).branches.keys() - {FIRST_BRANCH})
        await self._check_not_expired(snapshot, branches)
        raise SnapshotNotFoundError(
            f"there is no snapshot {id_to_text(snapshot)} on any of the branches {', '.join(branches)}; if there was "
            "one, it has expired"
        )

    async def _check_not_expired(self, snapshot: bytes, branches: Iterable[str]) -> None:
        """Check that a snapshot was not let go, as far as records are left that tell."""
        for branch in branches:
            tip = await self._newest_or_none(branch)
            row = None if tip is None else await find_expired(self._context.log(branch), tip, snapshot)
            if row is not None and tip is not None:
                raise SnapshotExpiredError(
                    f"snapshot {id_to_text(snapshot)} has expired: it was committed to branch {branch!r} as record "
                    f"{row.sequence}, and expire_snapshots has let go of what there was up to record "
                    f"{tip.state.life.expired}; ancestry lists the snapshots that are left"
                )

    async def _newest_or_none(self, branch: str) -> Tip | None:
        """Return the newest record of a log; None where whoever created the branch has not come to its first one."""
        try:
            return await self._context.newest(branch)
        except RefNotFoundError:
            return None

    async def _tag(self, tag: str) -> Tag:
        check_text(tag)
        found = (await self._context.repository_log.table()).tags.get(tag)
        if found is None:
            raise RefNotFoundError(f"there is no tag {tag!r}")
        return found
