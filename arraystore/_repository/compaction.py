"""Compaction of a repository's branches."""

from __future__ import annotations

from typing import Any, Literal

from arraystore._commit.solvers import ConflictDetector
from arraystore._log.loading import Tip
from arraystore._maintenance.collection.summary import Progress
from arraystore._maintenance.compact import Budget, CompactionSummary, compact, fold_all
from arraystore._repository.expiry import CareMixin
from arraystore._runtime import run
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError

__all__ = ["CompactionMixin"]


class CompactionMixin(CareMixin):
    """Fewer objects and requests for the same data."""

    def compact(
        self,
        *,
        branch: str = "main",
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        min_live: float = 0.5,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> CompactionSummary:
        """Make reading a branch faster and its storage smaller, without a change of data or history.

        Manifests of each array are folded into as few as hold its references.  What the newest snapshot uses is copied
        out of packs that are mostly dead, and out of small ones; in the new packs neighbours in the grid are
        neighbours.  The old packs go with the next garbage collection after the snapshots have expired that use them.

        Safe at any time, next to anything else; what others write meanwhile wins.  A run that its budget ends is
        continued by the next one.

        Parameters
        ----------
        branch
            Its name.
        max_bytes
            About how many bytes to read and write at most; None for no limit.
        max_seconds
            After how many seconds to begin nothing new; None for no limit.
        min_live
            A pack of which retained snapshots use less than this part is written anew.
        dry_run
            Whether to write nothing, and tell what would be done.
        progress
            Told what is being done, how much of it is done, and of how much.

        Raises
        ------
        RefNotFoundError
            If there is no such branch.
        ReadOnlyError
            If the repository is read-only.
        InvalidInputError
            If a limit is negative, or `min_live` not from 0 to 1.
        """
        return run(
            self.compact_async(
                branch=branch,
                max_bytes=max_bytes,
                max_seconds=max_seconds,
                min_live=min_live,
                dry_run=dry_run,
                progress=progress,
            )
        )

    async def compact_async(
        self,
        *,
        branch: str = "main",
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        min_live: float = 0.5,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> CompactionSummary:
        """Asynchronous twin of `compact`."""
        if not isinstance(min_live, int | float) or not 0 <= min_live <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(f"min_live={min_live!r} is no part of a pack: it is from 0 to 1")
        for name, limit in (("max_bytes", max_bytes), ("max_seconds", max_seconds)):
            if limit is not None and not (isinstance(limit, int | float) and limit >= 0):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidInputError(f"{name}={limit!r} is no number from 0 on; None means without limit")
        context = self._context
        tip = await context.tip(branch)
        now = context.environment.now_us()
        deadline = None if max_seconds is None else now + int(min(max_seconds, 1e9) * 1e6)
        summary, tip = await compact(
            self._grounds(),
            tip,
            context.reader,
            context.config.pack_settings(),
            budget=Budget(max_bytes, deadline),
            min_live=min_live,
            dry_run=dry_run,
            progress=progress,
        )
        if summary.records:
            self._rewritten(tip)
        return summary

    def rewrite_manifests(
        self,
        message: str,
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: Literal["new_commit", "amend"] = "new_commit",
    ) -> str:
        """Fold the manifests of a branch, and commit nothing with a message.

        `compact` does this and more without a commit; this is for programs that expect a snapshot of it.

        Parameters
        ----------
        message, metadata
            For the history.
        branch
            Its name.
        commit_method
            ``"new_commit"``, or ``"amend"`` to give the branch's newest snapshot this message.

        Returns
        -------
        str
            Id of the new snapshot, which holds the same data as the one before.

        Raises
        ------
        RefNotFoundError
            If there is no such branch.
        """
        return run(self.rewrite_manifests_async(message, branch=branch, metadata=metadata, commit_method=commit_method))

    async def rewrite_manifests_async(
        self,
        message: str,
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: Literal["new_commit", "amend"] = "new_commit",
    ) -> str:
        """Asynchronous twin of `rewrite_manifests`."""
        if commit_method not in ("new_commit", "amend"):
            raise InvalidInputError(f"commit_method is 'new_commit' or 'amend', not {commit_method!r}")
        context = self._context
        tip = await fold_all(self._grounds(), await context.tip(branch), context.reader)
        self._rewritten(tip)
        session = Session(context, await context.tip(branch), branch)
        session.default_metadata = dict(self._default_metadata)
        if commit_method == "amend":
            return await session.amend_async(message, metadata=metadata, allow_empty=True)
        return await session.commit_async(message, metadata, rebase_with=ConflictDetector(), allow_empty=True)

    def _rewritten(self, tip: Tip) -> None:
        """See to what a record leaves to do."""
        self._context.seen(tip)
        self._context.after_commit(tip, large=False)
