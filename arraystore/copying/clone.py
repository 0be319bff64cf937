"""Cloning a repository: all of its objects, byte for byte, while others write to it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress

from arraystore._format.history import page_span
from arraystore._format.ids import id_to_text
from arraystore._format.record import read_record_key, record_key
from arraystore._format.refs import (
    REPOSITORY_KEY,
    branch_prefix,
    decode_repository,
    name_from_key,
    refs_prefix,
)
from arraystore._format.repository_log import repository_log_prefix
from arraystore._repository.creation import check_conditional, check_storage
from arraystore._repository.repository import Repository
from arraystore._runtime import run
from arraystore._runtime.engine import Engine, EngineOption, caller_engine
from arraystore._runtime.progress import callback_of, shows_progress
from arraystore.copying.clone_view import CloneView
from arraystore.copying.completeness import Completeness, check_complete
from arraystore.copying.consistent_cut import ConsistentCut, LogEnds, fix_cut, list_ends
from arraystore.copying.cut_checkpoints import CHECKPOINTS, checkpoints_within, list_checkpoints
from arraystore.copying.errors import CopyDivergedError, CopyIncompleteError, CopyTargetError
from arraystore.copying.objects import ObjectCopier
from arraystore.copying.remote_objects import copy_remotely
from arraystore.copying.report import CopyCounter, CopyProgressCallback, CopyReport
from arraystore.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    RefNotFoundError,
    RepositoryNotFoundError,
)
from arraystore.storage.counting import CountingStorage
from arraystore.storage.protocol import BytesLike, Storage, holds
from arraystore.storage.sharing import engine_for

__all__ = ["clone_repository", "clone_repository_async"]

_PACKS = "chunks/"
_HISTORY = "history/"
_OBJECTS = ("manifests/", "transactions/", CHECKPOINTS, "collections/", "statistics/")
"""Objects with envelopes that only references in other objects assign to a repository."""

_OF_A_REPOSITORY = frozenset({REPOSITORY_KEY, "chunks", "history", "hints", "refs", *(p.rstrip("/") for p in _OBJECTS)})
_SHOWN = 5


@shows_progress("Cloning")
def clone_repository(
    source: Storage,
    target: Storage,
    *,
    verify: bool = True,
    engine: EngineOption = "threads",
    progress: CopyProgressCallback | bool = False,
) -> CopyReport:
    """Copy a whole repository, with all branches, tags and history, to another storage, byte for byte.

    Writers of the source need not stop: the clone is the repository as it was when cloning began.  What an interrupted
    clone has written is not written again, and a clone that is called again takes over what was committed since; what
    was collected at the source since stays at the target until there is a full collection there.  Proposed transactions
    that wait to be committed are not copied.

    Objects of more than 64 MiB are read in parts; each is written in one piece, so that the largest one (a chunk that
    is an object of its own) has to fit into memory.

    Parameters
    ----------
    source
        Where the repository is.
    target
        Where it goes: an empty storage, or an earlier clone without commits of its own.
    verify
        Whether to check in the end, before the clone can be opened, that everything is there that any of its
        snapshots needs: a garbage collection at the source may have deleted objects during the copy.  What a clone
        that is there already had before counts as checked; where it was made without, let `Repository.verify` check it.
    engine
        Where chunks, manifests, transactions and checkpoints are copied: ``"threads"`` of this process, ``"spark"`` for
        the executors of the active session, or an engine (`arraystore.spark.engine`).  Logs are copied by this process.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called with a `CopyProgress` after
        each object, or each task of an engine.

    Raises
    ------
    RepositoryNotFoundError
        If there is no repository at the source.
    CopyTargetError
        If the target is not empty and is not a clone of the source.
    CopyDivergedError
        If the target is a clone that has commits of its own.
    CopyIncompleteError
        If an object that the clone needs is missing or damaged at the source.
    """
    work = clone_repository_async(source, target, verify=verify, engine=caller_engine(engine), progress=progress)
    return run(work)


@shows_progress("Cloning")
async def clone_repository_async(
    source: Storage,
    target: Storage,
    *,
    verify: bool = True,
    engine: EngineOption = "threads",
    progress: CopyProgressCallback | bool = False,
) -> CopyReport:
    """Asynchronous twin of `clone_repository`."""
    check_storage(source)
    check_storage(target)
    if source.location == target.location:
        raise InvalidInputError(f"{source.location} cannot be cloned onto itself")
    workers = engine_for(engine, source, target)
    return await _Clone(
        CountingStorage(source, log=False),
        CountingStorage(target, log=False),
        CopyCounter(callback_of(progress)),
        workers,
    ).make(verify=verify)


class _Clone:
    """Copies one repository."""

    def __init__(
        self, source: CountingStorage, target: CountingStorage, counter: CopyCounter, engine: Engine | None
    ) -> None:
        self._engine = engine
        self._source = source
        self._target = target
        self._counter = counter
        self._copier = ObjectCopier(source, target, counter)
        self._id = b""  # of the repository

    async def make(self, *, verify: bool) -> CopyReport:
        """Copy objects in an order in which none is visible before those that it references."""
        repository = await self._repository()
        self._id = decode_repository(REPOSITORY_KEY, repository).id
        live = await self._target_is_clone(repository)
        ends_before = await list_ends(self._target, self._id)
        complete = await self._newest_snapshots(ends_before) if live else set[str]()
        self._counter.enter("logs")
        checkpoints = await list_checkpoints(self._source)
        cut = await fix_cut(self._source, self._id, ends_before if live else LogEnds())
        await self._check_descent(ends_before, cut.ends)
        await self._copy_objects(cut, checkpoints)
        verified = await self._verify(cut, complete) if verify else None
        await self._target.sync()
        await self._copy_logs(cut, one_by_one=live)
        for key, data in cut.hints.items():
            await self._target.put(key, data)
            self._counter.copied(len(data))
        await self._target.sync()
        if not live:
            await self._publish(repository)
        counter = self._counter
        return CopyReport(
            counter.objects,
            counter.bytes,
            counter.skipped,
            self._source.counts.total + self._target.counts.total + counter.requests,
            {branch: last for branch, (_, last) in cut.ends.branches.items()},
            None if verified is None else verified.snapshots,
            tuple(counter.left_out),
        )

    # -- before ---------------------------------------------------------------------------------------------

    async def _repository(self) -> bytes:
        try:
            return bytes(await self._source.get(REPOSITORY_KEY))
        except ObjectNotFoundError:
            raise RepositoryNotFoundError(f"there is no repository at {self._source.location}") from None

    async def _target_is_clone(self, repository: bytes) -> bool:
        """Return whether the target is a clone already; raise if it is anything else."""
        where = self._target.location
        async for page in self._target.list(""):
            for info in page:
                if info.key.partition("/")[0] not in _OF_A_REPOSITORY:
                    raise CopyTargetError(
                        f"{where} holds {info.key!r}, for instance, which is not part of a repository; choose an empty "
                        "location"
                    )
            break
        try:
            data = await self._target.get(REPOSITORY_KEY)
        except ObjectNotFoundError:
            return False
        if data != repository:
            raise CopyTargetError(f"another repository exists at {where}; choose an empty location")
        return True

    async def _newest_snapshots(self, ends_before: LogEnds) -> set[str]:
        """Return the snapshots that branches and tags of an earlier, verified clone name."""
        repo = await Repository.open_async(self._target)
        branches = await repo.list_branches_async() & ends_before.branches.keys()
        newest: set[str] = set()
        for branch in branches:
            with suppress(RefNotFoundError):  # its own log ends it, and the repository log does not say so yet
                newest.add(await repo.lookup_branch_async(branch))
        return newest | {await repo.lookup_tag_async(tag) for tag in await repo.list_tags_async()}

    async def _check_descent(self, ends_before: LogEnds, ends: LogEnds) -> None:
        """Check that each log of the target is a prefix of the source's."""
        await self._check_strangers()
        for branch, (_, last) in ends_before.branches.items():
            first, newest = ends.branches.get(branch, (0, -1))
            if last > newest or (
                last >= first and not await self._same(record_key(branch_prefix(self._id, branch), last))
            ):
                raise self._diverged_error(f"record {last} of branch {branch!r}")
        number = ends_before.repository
        if number > ends.repository or (
            number and not await self._same(record_key(repository_log_prefix(self._id), number))
        ):
            raise self._diverged_error(f"record {number} of the repository log")

    async def _check_strangers(self) -> None:
        """Check that the target has no log of another repository."""
        mine = refs_prefix(self._id)
        for start_after in ("", mine + "\U0010ffff"):
            async for page in self._target.list("refs/", start_after):
                if page and not page[0].key.startswith(mine):
                    raise self._diverged_error(page[0].key)
                if page:
                    break

    async def _same(self, key: str) -> bool:
        try:
            return bytes(await self._source.get(key)) == bytes(await self._target.get(key))
        except ObjectNotFoundError:  # expired at the source since it was listed
            return True

    def _diverged_error(self, what: str) -> CopyDivergedError:
        return CopyDivergedError(
            f"{self._target.location} has a {what} that {self._source.location} does not have: it was written to "
            "since it was cloned, or is a clone of another repository. Clone to an empty location"
        )

    # -- copying --------------------------------------------------------------------------------------------

    async def _copy_objects(self, cut: ConsistentCut, checkpoints: set[str]) -> None:
        """Copy the objects that records reference, which all existed when the cut was fixed."""
        self._counter.enter("chunks")
        await self._copy_prefix(_PACKS, checked=False)
        self._counter.enter("metadata")
        within = await checkpoints_within(self._source, checkpoints, cut.ends)
        for prefix in _OBJECTS:
            await self._copy_prefix(prefix, within.__contains__ if prefix == CHECKPOINTS else None, checked=True)
        await self._copier.copy_prefix(_HISTORY, lambda key: _within(key, self._id, cut.ends))

    async def _copy_prefix(self, prefix: str, wanted: Callable[[str], bool] | None = None, *, checked: bool) -> None:
        if self._engine is None:
            await self._copier.copy_prefix(prefix, wanted, checked=checked)
        else:
            missing = self._copier.missing(prefix, wanted)
            places = self._source.inner, self._target.inner
            await copy_remotely(self._engine, *places, missing, self._counter, checked=checked)

    async def _copy_logs(self, cut: ConsistentCut, *, one_by_one: bool) -> None:
        """Copy records in ascending order; one by one if the target may have readers."""
        self._counter.enter("refs")
        at_a_time = 1 if one_by_one else 16
        for branch, (first, last) in sorted(cut.ends.branches.items()):
            await self._copy_log(branch_prefix(self._id, branch), first, last, at_a_time)
        await self._copy_log(repository_log_prefix(self._id), 1, cut.ends.repository, at_a_time)

    async def _copy_log(self, prefix: str, first: int, last: int, at_a_time: int) -> None:
        def wanted(key: str) -> bool:
            number = read_record_key(prefix, key)
            return number is not None and first <= number <= last

        def taken(key: str, data: BytesLike) -> None:
            raise self._diverged_error(key)

        there, _ = await _count(self._target, prefix, wanted)
        _, oldest = await _count(self._source, prefix, wanted)
        if oldest > first + there:  # before anything is written: whoever reads the target must not find a gap
            raise self._expired_error(f"{prefix}{first + there:012d}")
        await self._copier.copy_prefix(prefix, wanted, at_a_time=at_a_time, absent=taken)
        there, _ = await _count(self._target, prefix, wanted)
        if there < last - first + 1:
            raise self._expired_error(f"{prefix}{first + there:012d}")

    def _expired_error(self, key: str) -> CopyIncompleteError:
        reasons = [item.reason for item in self._counter.left_out if item.key == key]
        return CopyIncompleteError(
            f"{key}: {reasons[0] if reasons else 'deleted at the source during the copy'}. If snapshots expired at the "
            "source during the copy, clone again to resume it. If not, verify the source"
        )

    # -- after ----------------------------------------------------------------------------------------------

    async def _verify(self, cut: ConsistentCut, complete: Collection[str]) -> Completeness:
        self._counter.enter("verify")
        repo = await Repository.open_async(CloneView(self._target, self._source, self._id, cut))
        completeness = await check_complete(repo, cut.ends.branches, complete)
        if completeness.missing:
            shown = "".join(f"\n  {item.key}: {item.reason}" for item in completeness.missing[:_SHOWN])
            more = f"\n  and {len(completeness.missing) - _SHOWN} more" if len(completeness.missing) > _SHOWN else ""
            raise CopyIncompleteError(
                f"the clone at {self._target.location} is incomplete and was not published: "
                f"{len(completeness.missing)} objects are missing or damaged.{shown}{more}\nIf a garbage collection "
                "ran at the source during the copy, clone again to resume it. If not, verify the source"
            )
        return completeness

    async def _publish(self, repository: bytes) -> None:
        """Write the object that marks the target as a repository, after probing the guarantees of the storage."""
        if not await self._target.put_if_absent(REPOSITORY_KEY, repository) and not await holds(
            self._target, REPOSITORY_KEY, repository
        ):
            raise CopyTargetError(f"another process created a repository at {self._target.location}")
        self._counter.copied(len(repository))
        await check_conditional(self._target, decode_repository(REPOSITORY_KEY, repository), {})


async def _count(storage: Storage, prefix: str, wanted: Callable[[str], bool]) -> tuple[int, int]:
    """Return the count of wanted records of a log, and the number of the oldest one."""
    count, oldest = 0, 0
    async for page in storage.list(prefix):
        for info in page:
            if wanted(info.key):
                oldest = oldest if count else read_record_key(prefix, info.key) or 0
                count += 1
    return count, oldest


def _within(key: str, repository: bytes, ends: LogEnds) -> bool:
    """Return whether an object of history belongs to a copied log, and if it is a page, to copied records only.

    A page of records after the cut would take the key of the page of the records that the clone gets instead.
    """
    parts = key[len(_HISTORY) :].split("/")
    if len(parts) != 4 or parts[0] != id_to_text(repository) or name_from_key(parts[1]) not in ends.branches:
        return False
    if not parts[2].isdigit():
        return True
    number = read_record_key(key[: -len(parts[3])], key)
    return number is not None and page_span(int(parts[2]), number)[1] <= ends.branches[name_from_key(parts[1])][1]
