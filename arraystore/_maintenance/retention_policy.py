"""Retention policy of an expiry: the newest snapshots, and some of each day, week, month or year."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from arraystore._format.history import SnapshotRow
from arraystore._format.ids import SnapshotId
from arraystore.errors import InvalidInputError

_UNITS = {
    **dict.fromkeys(("s", "second"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "minute"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day"), timedelta(days=1)),
    **dict.fromkeys(("w", "week"), timedelta(weeks=1)),
    "month": timedelta(days=31),
    **dict.fromkeys(("y", "year"), timedelta(days=366)),
}
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_EVERY = {"all": "", "hourly": "%Y-%j-%H", "daily": "%Y-%j", "weekly": "%G-%V", "monthly": "%Y-%m", "yearly": "%Y"}
_RULE = re.compile(r"(?:keep\s+)?(\w+)\s+for\s+(.+)", re.IGNORECASE)
_SPAN = re.compile(r"(\d+)?\s*(an?\s+)?([a-z]+?)s?", re.IGNORECASE)


def parse_span(text: str) -> timedelta:
    """Parse a length of time: ``30d``, ``12h``, ``2 weeks``, ``a year``; a month has 31 days, a year 366."""
    match = _SPAN.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match[3].lower())
    if match is None or unit is None or (match[1] is None) == (match[2] is None):
        raise InvalidInputError(
            f"{text!r} is not a valid length of time; write it as '30d', '12h', '2 weeks' or 'a year'"
        )
    try:
        return int(match[1] or 1) * unit
    except OverflowError:
        raise InvalidInputError(f"{text!r} is too long; write a shorter time") from None


@dataclass(frozen=True)
class KeepRule:
    """Rule that retains the newest snapshot of each hour, day, week, month or year (or all) for some time.

    Parameters
    ----------
    every
        One of ``all``, ``hourly``, ``daily``, ``weekly``, ``monthly``, ``yearly``; weeks begin on Mondays, all in UTC.
    span
        Age up to which snapshots are retained.
    """

    every: str
    span: timedelta

    def bucket(self, time: datetime, position: int) -> str:
        """Return the key of snapshots of which the newest is retained."""
        return time.strftime(_EVERY.get(self.every, "")) or str(position)


@dataclass(frozen=True)
class RetentionPolicy:
    """Rules of which snapshots an expiry retains: those that any rule retains.

    Parameters
    ----------
    rules
        Rules by age.
    keep_last
        Number of newest snapshots of each branch that are always retained.
    """

    rules: tuple[KeepRule, ...] = ()
    keep_last: int = 1

    def keeps(self, rows: Sequence[SnapshotRow], now: datetime) -> set[SnapshotId]:
        """Return the ids of the snapshots of a branch, listed newest first, that the policy retains."""
        kept = {row.id for row in rows[: self.keep_last]}
        for rule in self.rules:
            kept |= set(_newest_of_each(rule, rows, now))
        return kept

    def to_text(self) -> str:
        """Return the rules in the form that `parse_policy` reads."""
        rules = [f"{rule.every} for {_span_text(rule.span)}" for rule in self.rules]
        return ", ".join([*rules, f"last {self.keep_last}"])


def _span_text(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    for size, unit in ((86400, "d"), (3600, "h")):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _newest_of_each(rule: KeepRule, rows: Iterable[SnapshotRow], now: datetime) -> Iterable[SnapshotId]:
    edge = now - rule.span if rule.span < now - _EARLIEST else _EARLIEST
    seen: set[str] = set()
    for position, row in enumerate(rows):
        time = datetime.fromtimestamp(row.time / 1_000_000, UTC)
        bucket = rule.bucket(time, position)
        if time >= edge and bucket not in seen:
            seen.add(bucket)
            yield row.id


def parse_policy(text: str) -> RetentionPolicy:
    """Parse a policy: ``keep daily for 30 days, weekly for a year, last 10``."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - for untyped callers
        raise InvalidInputError(f"a retention policy must be a string, for example 'daily for 30 days', not {text!r}")
    rules: list[KeepRule] = []
    last = 1
    for part in (piece.strip() for piece in text.split(",")):
        newest = re.fullmatch(r"(?:keep\s+)?last\s+(\d+)", part, re.IGNORECASE)
        rule = _RULE.fullmatch(part)
        if newest is not None:
            last = int(newest[1])
        elif rule is not None and rule[1].lower() in _EVERY:
            rules.append(KeepRule(rule[1].lower(), parse_span(rule[2])))
        else:
            raise InvalidInputError(
                f"{part!r} is not a valid rule of a retention policy; write 'daily for 30 days' (or all, hourly, "
                "weekly, monthly, yearly) and 'last 10', separated by commas"
            )
    if last < 1:
        raise InvalidInputError(
            "'last' must be >= 1 in a retention policy, since the newest snapshot of each branch is always retained"
        )
    return RetentionPolicy(tuple(rules), last)
