"""Parsing of times, as in ``30d`` ago or a date, and of durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from arraystore.errors import InvalidInputError

TIME_HELP = "30s, 15m, 12h, 30d or 8w ago, or a date such as 2026-11-01 or 2026-11-01T12:00 (UTC by default)"

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def parse_time(text: str, *, option: str, now: datetime | None = None) -> datetime:
    """Parse ``now``, a duration before `now`, or an ISO 8601 date; raises `InvalidInputError` naming `option`."""
    current = now or datetime.now(UTC)
    stripped = text.strip()
    if stripped.lower() == "now":
        return current
    try:
        if _DURATION.fullmatch(stripped.lower()):
            return current - parse_duration(stripped, option=option)
        time = datetime.fromisoformat(stripped)
    except (ValueError, OverflowError):
        raise InvalidInputError(f"{option} {text!r} is not a valid time: use {TIME_HELP}") from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def parse_duration(text: str, *, option: str) -> timedelta:
    """Parse a duration such as ``90s`` or ``1h30m``; raises `InvalidInputError` naming `option`."""
    stripped = text.strip().lower()
    try:
        if _DURATION.fullmatch(stripped):
            return sum((_length(*part) for part in _PART.findall(stripped)), timedelta())
    except OverflowError:
        pass
    raise InvalidInputError(
        f"{option} {text!r} is not a valid duration: use numbers with units, e.g. 90s, 15m, 1h30m or 2d"
    )


def _length(number: str, unit: str) -> timedelta:
    return timedelta(**{_UNITS[unit]: float(number)})
