"""Sessions that are pinned to one snapshot, by repository and ref."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING

from arraystore._repository.named_snapshot import NamedSnapshot, find_named
from arraystore._repository.repository import Repository
from arraystore._session.base import SessionBase
from arraystore.errors import InvalidInputError
from arraystore.storage.sharing import check_shared

if TYPE_CHECKING:
    from typing import TypeAlias

    from arraystore._context.context import Context

    Source: TypeAlias = Repository | SessionBase | str | os.PathLike[str]


def open_repository(place: Repository | str | os.PathLike[str]) -> Repository:
    """Return a repository that is passed as such, or by its path or URL."""
    if isinstance(place, Repository):
        return place
    if not isinstance(place, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without types
        raise InvalidInputError(f"repo must be a Repository, or the path or URL of one, not {type(place).__name__}")
    from arraystore.storage import storage_from_url

    return Repository.open(storage_from_url(place))


def check_reachable(context: Context) -> None:
    """Check that executors can open a repository: its storage must be shared and picklable."""
    from pyspark.cloudpickle import dumps  # Spark also pickles what pickle cannot, functions above all

    check_shared(context.storage, "workers of Spark", dumps)


def pinned_session(
    source: Source,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    ref: str | None = None,
    as_of: datetime | None = None,
) -> SessionBase:
    """Return a session on one snapshot, which later commits do not change."""
    arguments = {"branch": branch, "tag": tag, "snapshot_id": snapshot_id, "ref": ref}
    named = [name for name, value in arguments.items() if value is not None]
    if isinstance(source, SessionBase):
        if named or as_of is not None:
            named += ["as_of"] * (as_of is not None)
            raise InvalidInputError(
                f"a session shows one snapshot, so {' and '.join(named)} cannot be chosen: pass the repository instead"
            )
        return source
    if len(named) > 1:
        raise InvalidInputError(f"{' and '.join(named)} are given: one of them names the snapshot")
    repo = open_repository(source)
    chosen = NamedSnapshot(branch, tag, snapshot_id) if ref is None else find_named(repo, ref)
    if chosen == NamedSnapshot():
        chosen = NamedSnapshot("main")
    return repo.readonly_session(chosen.branch, tag=chosen.tag, snapshot_id=chosen.snapshot_id, as_of=as_of)
