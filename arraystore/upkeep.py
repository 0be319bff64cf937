"""What a job does every now and then, blindly: expire by policy, compact within a budget, collect, verify a sample."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from arraystore.errors import ArrayStoreError, InvalidInputError, RefNotFoundError
from arraystore.lease import LeaseTakenError, leased

if TYPE_CHECKING:
    from arraystore.repository import Repository

__all__ = ["MaintenanceReport", "UpkeepOptions", "maintain"]


@dataclass(frozen=True)
class UpkeepOptions:
    """What to do, and how much of it.

    Parameters
    ----------
    policy
        Which snapshots stay; by default what the repository keeps as its retention policy, and all where it keeps
        none.
    collect_after
        Objects that nothing needs are deleted when they are older than this: sessions that are open for longer have
        to start again.
    compact_bytes, compact_seconds
        Most that compaction reads of each branch, and for how long; 0 bytes for no compaction.
    verify_sample
        How many chunks are read and checked; 0 to verify nothing, not even metadata.
    lease
        After how long another job may begin although this one has not said that it is done.
    """

    policy: str | None = None
    collect_after: timedelta = timedelta(days=1)
    compact_bytes: int = 1 << 30
    compact_seconds: float = 600.0
    verify_sample: int = 100
    lease: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        if self.collect_after < timedelta(0) or self.lease <= timedelta(0):
            raise InvalidInputError("collect_after is not negative, and a lease is longer than nothing")
        if min(self.compact_bytes, self.compact_seconds, self.verify_sample) < 0:
            raise InvalidInputError("compact_bytes, compact_seconds and verify_sample are not negative")


@dataclass
class MaintenanceReport:
    """What was done.

    Parameters
    ----------
    status
        ``"done"``; ``"skipped"`` if another job was at it; ``"failed"`` if a step failed; ``"damaged"`` if verification
        found errors, or compaction passed over damaged packs.  What verification warned of, and virtual chunks that it
        could not read, are among the steps.
    steps
        What each step did, by its name, as JSON has it.
    errors
        What failed, by the name of the step.
    seconds
        How long it took.
    """

    status: Literal["done", "skipped", "failed", "damaged"] = "done"
    steps: dict[str, Any] = field(default_factory=dict[str, Any])
    errors: dict[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """For a script: 0 if all is well, or somebody else is at it."""
        return 0 if self.status in ("done", "skipped") else 1

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


async def maintain(repository: Repository, options: UpkeepOptions) -> MaintenanceReport:
    """Maintain a repository; a step that fails does not keep the others from being done."""
    environment = repository.context.environment
    began = environment.now_us()
    report = MaintenanceReport()
    try:
        async with leased(repository.storage, environment, options.lease.total_seconds()):
            await _steps(repository, options, report)
    except LeaseTakenError as error:
        report.status = "skipped"
        report.errors["lease"] = str(error)
    report.seconds = round((environment.now_us() - began) / 1e6, 3)
    return report


async def _steps(repository: Repository, options: UpkeepOptions, report: MaintenanceReport) -> None:
    for name, step in (("expire", _expire), ("compact", _compact), ("collect", _collect), ("verify", _verify)):
        try:
            done = await step(repository, options)
        except ArrayStoreError as error:
            report.status = "failed"
            report.errors[name] = str(error)
            continue
        if done is not None:
            report.steps[name] = done
    passed_over = any(summary["damaged"] for summary in report.steps.get("compact", {}).values())
    if report.status == "done" and (passed_over or not report.steps.get("verify", {}).get("ok", True)):
        report.status = "damaged"


async def _expire(repository: Repository, options: UpkeepOptions) -> dict[str, Any] | None:
    policy = options.policy or await repository.get_retention_async()
    if policy is None:
        return None
    now = datetime.fromtimestamp(repository.context.environment.now_us() / 1_000_000, UTC)
    gone = await repository.expire_snapshots_async(now, policy=policy)
    return {"policy": policy, "snapshots": len(gone)}


async def _compact(repository: Repository, options: UpkeepOptions) -> dict[str, Any] | None:
    if not options.compact_bytes:
        return None
    done: dict[str, Any] = {}
    for branch in sorted(await repository.list_branches_async()):
        with suppress(RefNotFoundError):  # deleted since it was listed
            summary = await repository.compact_async(
                branch=branch, max_bytes=options.compact_bytes, max_seconds=options.compact_seconds
            )
            done[branch] = asdict(summary)
    return done


async def _collect(repository: Repository, options: UpkeepOptions) -> dict[str, Any]:
    now = datetime.fromtimestamp(repository.context.environment.now_us() / 1_000_000, UTC)
    summary = await repository.garbage_collect_async(now - options.collect_after)
    found = asdict(summary)
    found["failures"] = len(summary.failures)
    return found


async def _verify(repository: Repository, options: UpkeepOptions) -> dict[str, Any] | None:
    if not options.verify_sample:
        return None
    report = await repository.verify_async("chunks", sample=options.verify_sample)
    return report.to_dict()
