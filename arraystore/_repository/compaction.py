"""Compaction of a branch: folds its manifests, and copies live data out of packs that are mostly dead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from arraystore._commit.solvers import ConflictDetector
from arraystore._context.context import Context
from arraystore._log.loading import Tip
from arraystore._maintenance.collection.summary import StageProgress
from arraystore._maintenance.compact import Budget, CompactionSummary, fold_all
from arraystore._maintenance.compact import compact as compact_branch
from arraystore._repository.scope import remote_readers, scope_of
from arraystore._runtime.engine import EngineOption
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError


async def compact(
    context: Context,
    branch: str,
    *,
    max_bytes: int | None = None,
    max_seconds: float | None = None,
    min_live: float = 0.5,
    dry_run: bool = False,
    engine: EngineOption = "threads",
    progress: StageProgress | None = None,
) -> CompactionSummary:
    """Compact a branch within a budget."""
    _check(min_live, max_bytes=max_bytes, max_seconds=max_seconds)
    tip = await context.tip(branch)
    now = context.environment.now_us()
    deadline = None if max_seconds is None else now + int(min(max_seconds, 1e9) * 1e6)
    summary, tip = await compact_branch(
        scope_of(context),
        tip,
        context.reader,
        context.config.pack_settings(),
        budget=Budget(max_bytes, deadline),
        min_live=min_live,
        dry_run=dry_run,
        progress=progress,
        remote=remote_readers(context, engine),
    )
    if summary.records:
        _note(context, tip)
    return summary


def _check(min_live: float, **limits: float | None) -> None:
    if not isinstance(min_live, int | float) or not 0 <= min_live <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"min_live={min_live!r} must be >= 0 and <= 1")
    for name, limit in limits.items():
        if limit is not None and not (isinstance(limit, int | float) and limit >= 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(f"{name}={limit!r} must be >= 0, or None for no limit")


async def rewrite_manifests(
    context: Context,
    message: str,
    *,
    branch: str,
    metadata: dict[str, Any] | None,
    commit_method: Literal["new_commit", "amend"],
    default_metadata: Mapping[str, Any],
) -> str:
    """Fold the manifests of a branch, and make an empty commit."""
    if commit_method not in ("new_commit", "amend"):
        raise InvalidInputError(f"commit_method must be 'new_commit' or 'amend', not {commit_method!r}")
    _note(context, await fold_all(scope_of(context), await context.tip(branch), context.reader))
    session = Session(context, await context.tip(branch), branch)
    session.default_metadata = dict(default_metadata)
    if commit_method == "amend":
        return await session.amend_async(message, metadata=metadata, allow_empty=True)
    return await session.commit_async(message, metadata, rebase_with=ConflictDetector(), allow_empty=True)


def _note(context: Context, tip: Tip) -> None:
    """Remember a record that was written, and start the background work that it leaves."""
    context.seen(tip)
    context.after_commit(tip, large=False)
