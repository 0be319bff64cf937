"""The session that a URL, a repository or another object of users stands for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from arraystore._repository.named_snapshot import NamedSnapshot, find_named
from arraystore._repository.repository import Repository
from arraystore._session.base import SessionBase
from arraystore._session.store import ArrayStore
from arraystore.errors import InvalidInputError
from arraystore.storage import Storage, storage_from_url
from arraystore.xarray.urls import plain_url


def open_session(
    place: Any,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    ref: str | None = None,
    as_of: datetime | None = None,
    storage_options: Mapping[str, Any] | None = None,
    access: Mapping[str, Any] | None = None,
) -> SessionBase:
    """Return the session of a place, a new read-only one unless the place is a session or its store.

    Raises `InvalidInputError` for arguments that do not go together.
    """
    if isinstance(place, ArrayStore):
        session: SessionBase = place.session
        place = session
    if storage_options is not None and not isinstance(place, str | os.PathLike):
        raise InvalidInputError(f"storage_options go with a URL, not with a {type(place).__name__}: leave them out")
    if access is not None and isinstance(place, SessionBase | Repository):
        raise InvalidInputError(
            f"authorize_virtual_chunk_access goes with a URL or a storage: a {type(place).__name__} was opened with it"
        )
    if isinstance(place, SessionBase):
        if any(choice is not None for choice in (branch, tag, snapshot_id, ref, as_of)):
            raise InvalidInputError("a session has its snapshot: leave out branch, tag, snapshot_id, ref and as_of")
        return place
    if isinstance(place, Repository):
        repo = place
    else:
        repo = Repository.open(_storage(place, storage_options or {}), authorize_virtual_chunk_access=access)
    chosen = NamedSnapshot(branch, tag, snapshot_id)
    if ref is not None:
        if chosen != NamedSnapshot():
            raise InvalidInputError("ref names the snapshot: leave out branch, tag and snapshot_id")
        chosen = find_named(repo, ref)
    if chosen == NamedSnapshot():
        chosen = NamedSnapshot("main")
    return repo.readonly_session(chosen.branch, tag=chosen.tag, snapshot_id=chosen.snapshot_id, as_of=as_of)


def _storage(place: Any, options: Mapping[str, Any]) -> Storage:
    if isinstance(place, Storage):
        return place
    if not isinstance(place, str | os.PathLike):
        raise InvalidInputError(
            f"the engine 'arraystore' opens URLs, paths, repositories and sessions, not a {type(place).__name__}"
        )
    return storage_from_url(plain_url(os.fspath(place)), **options)
