"""One round of maintenance: expire by policy, compact within a budget, collect garbage, verify a sample."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from arraystore._context.context import Context
from arraystore._maintenance.lease import LeaseTakenError, leased
from arraystore._repository import compaction, expiry, garbage, refs, settings, verification
from arraystore.errors import ArrayStoreError, InvalidInputError, RefNotFoundError


@dataclass(frozen=True)
class UpkeepOptions:
    """Steps of a round of maintenance, and their limits.

    Parameters
    ----------
    policy
        Retention policy; by default that of the repository, and all snapshots stay where it has none.
    collect_after
        Age from which unreferenced objects are deleted: sessions that are open for longer have to start again.
    compact_bytes, compact_seconds
        Most that compaction reads of each branch, and for how long; 0 bytes for no compaction.
    verify_sample
        Count of chunks that are read and verified; 0 to verify nothing, not even metadata.
    lease
        Time after which another job may start although this one has not reported its end.
    """

    policy: str | None = None
    collect_after: timedelta = timedelta(days=1)
    compact_bytes: int = 1 << 30
    compact_seconds: float = 600.0
    verify_sample: int = 100
    lease: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        if self.collect_after < timedelta(0) or self.lease <= timedelta(0):
            raise InvalidInputError("collect_after must be >= 0 and lease must be > 0")
        if min(self.compact_bytes, self.compact_seconds, self.verify_sample) < 0:
            raise InvalidInputError("compact_bytes, compact_seconds and verify_sample must be >= 0")


@dataclass
class MaintenanceReport:
    """Result of a round of maintenance.

    Parameters
    ----------
    status
        ``"done"``; ``"skipped"`` if another job was running; ``"failed"`` if a step did; ``"damaged"`` if verification
        found errors, or compaction passed over damaged packs.  What verification warned of, and virtual chunks that it
        could not read, are among the steps.
    steps
        Result of each step, by its name, as JSON has it.
    errors
        Errors, by the name of the step.
    seconds
        Duration.
    """

    status: Literal["done", "skipped", "failed", "damaged"] = "done"
    steps: dict[str, Any] = field(default_factory=dict[str, Any])
    errors: dict[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """Exit code for a script: 0 if all is well, or another job was running."""
        return 0 if self.status in ("done", "skipped") else 1

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


async def maintain(context: Context, options: UpkeepOptions) -> MaintenanceReport:
    """Maintain a repository; the failure of a step does not prevent the others."""
    if not isinstance(options, UpkeepOptions):
        raise InvalidInputError(f"options must be an UpkeepOptions, not a {type(options).__name__}")
    environment = context.environment
    began = environment.now_us()
    report = MaintenanceReport()
    try:
        async with leased(context.storage, environment, options.lease.total_seconds()):
            await _steps(context, options, report)
    except LeaseTakenError as error:
        report.status = "skipped"
        report.errors["lease"] = str(error)
    report.seconds = round((environment.now_us() - began) / 1e6, 3)
    return report


async def _steps(context: Context, options: UpkeepOptions, report: MaintenanceReport) -> None:
    for name, step in (("expire", _expire), ("compact", _compact), ("collect", _collect), ("verify", _verify)):
        try:
            done = await step(context, options)
        except ArrayStoreError as error:
            report.status = "failed"
            report.errors[name] = str(error)
            continue
        if done is not None:
            report.steps[name] = done
    passed_over = any(summary["damaged"] for summary in report.steps.get("compact", {}).values())
    if report.status == "done" and (passed_over or not report.steps.get("verify", {}).get("ok", True)):
        report.status = "damaged"


async def _expire(context: Context, options: UpkeepOptions) -> dict[str, Any] | None:
    policy = options.policy or await settings.get_retention(context)
    if policy is None:
        return None
    now = datetime.fromtimestamp(context.environment.now_us() / 1_000_000, UTC)
    gone = await expiry.expire_snapshots(context, now, policy=policy)
    return {"policy": policy, "snapshots": len(gone)}


async def _compact(context: Context, options: UpkeepOptions) -> dict[str, Any] | None:
    if not options.compact_bytes:
        return None
    done: dict[str, Any] = {}
    for branch in sorted(await refs.list_branches(context)):
        with suppress(RefNotFoundError):  # deleted since it was listed
            summary = await compaction.compact(
                context, branch, max_bytes=options.compact_bytes, max_seconds=options.compact_seconds
            )
            done[branch] = asdict(summary)
    return done


async def _collect(context: Context, options: UpkeepOptions) -> dict[str, Any]:
    now = datetime.fromtimestamp(context.environment.now_us() / 1_000_000, UTC)
    summary = await garbage.garbage_collect(context, now - options.collect_after)
    return asdict(summary)


async def _verify(context: Context, options: UpkeepOptions) -> dict[str, Any] | None:
    if not options.verify_sample:
        return None
    report = await verification.verify(context, "chunks", sample=options.verify_sample)
    return report.to_dict()
