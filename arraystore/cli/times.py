"""Points in time as people write them: ``30d`` ago, or a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from arraystore.errors import InvalidInputError

__all__ = ["TIME_HELP", "duration", "moment"]

TIME_HELP = "30s, 15m, 12h, 30d, 8w ago, or a date as in 2026-11-01 or 2026-11-01T12:00 (UTC unless it says otherwise)"

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def moment(text: str, *, option: str, now: datetime | None = None) -> datetime:
    """Return the point in time that a text means.

    Parameters
    ----------
    text
        A duration (``1d12h``), which is counted back from now, ``now``, or a date in ISO 8601.
    option
        What the text was given for, for the error.
    now
        In place of the clock.

    Raises
    ------
    InvalidInputError
        If it means none.
    """
    current = now or datetime.now(UTC)
    given = text.strip()
    if given.lower() == "now":
        return current
    try:
        if _DURATION.fullmatch(given.lower()):
            return current - duration(given, option=option)
        found = datetime.fromisoformat(given)
    except (ValueError, OverflowError):
        raise InvalidInputError(f"{option} {text!r} is no point in time; give {TIME_HELP}") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def duration(text: str, *, option: str) -> timedelta:
    """Return the length of time that a text (``90s``, ``1h30m``) means; raises `InvalidInputError` if it means none."""
    given = text.strip().lower()
    try:
        if _DURATION.fullmatch(given):
            return sum((_length(*found) for found in _PART.findall(given)), timedelta())
    except OverflowError:
        pass
    raise InvalidInputError(f"{option} {text!r} is no length of time; give one as in 90s, 15m, 1h30m or 2d")


def _length(number: str, unit: str) -> timedelta:
    return timedelta(**{_UNITS[unit]: float(number)})
