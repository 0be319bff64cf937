"""Retention policies: how they are written, and what they keep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from arraystore import InvalidInputError, KeepRule, Repository, RetentionPolicy
from arraystore._format.history import SnapshotRow
from arraystore._maintenance.retention_policy import parse_policy, parse_span
from tests.commit.support import commit_number, create_repository

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def row(number: int, age: timedelta) -> SnapshotRow:
    time = round((NOW - age).timestamp() * 1_000_000)
    return SnapshotRow(number, number.to_bytes(12, "big"), None, time, b"")


def kept(policy: str, rows: list[SnapshotRow]) -> list[int]:
    """Return the numbers of the rows, given newest first, that a policy keeps."""
    ids = parse_policy(policy).keeps(rows, NOW)
    return [each.sequence for each in rows if each.id in ids]


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("30d", timedelta(days=30)),
        ("12h", timedelta(hours=12)),
        ("2 weeks", timedelta(weeks=2)),
        ("a year", timedelta(days=366)),
        ("an hour", timedelta(hours=1)),
        ("1 month", timedelta(days=31)),
    ],
)
def test_lengths_of_time_are_written_as_people_do(text: str, span: timedelta) -> None:
    assert parse_span(text) == span


@pytest.mark.parametrize("text", ["", "soon", "d", "12", "-1d", "a 2 weeks", "1 fortnight", "9" * 30 + "y"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_span(text)


@pytest.mark.parametrize("text", ["", "daily", "daily for", "sometimes for 3d", "last 0", "last", "daily for 3d;"])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_policy(text)


def test_a_policy_is_written_as_it_is_read() -> None:
    policy = parse_policy("keep all for 2 days, Daily for 30 days, weekly for a year, last 5")
    assert policy == RetentionPolicy(
        (KeepRule("all", timedelta(days=2)), KeepRule("daily", timedelta(days=30)), KeepRule("weekly", timedelta(366))),
        5,
    )
    assert parse_policy(policy.to_text()) == policy


def test_the_newest_snapshot_of_each_day_is_kept_for_as_long_as_the_rule_says() -> None:
    rows = [row(100 - hours, timedelta(hours=hours)) for hours in range(0, 96, 6)]
    days = {datetime.fromtimestamp(each.time / 1e6, UTC).date(): each.sequence for each in reversed(rows)}
    within = [n for day, n in days.items() if n >= 100 - 48]
    assert sorted(kept("daily for 2 days, last 1", rows)) == sorted(within)


def test_what_any_rule_keeps_stays() -> None:
    rows = [row(number, timedelta(days=40 - number)) for number in range(40, 0, -1)]
    weekly = kept("weekly for a year, last 1", rows)
    assert set(kept("all for 3 days, weekly for a year, last 2", rows)) == {40, 39, 38, 37} | set(weekly)
    assert kept("last 3", rows) == [40, 39, 38]


def test_a_repository_expires_by_the_policy_that_it_is_given() -> None:
    repository = create_repository()
    ids = [commit_number(repository, 0, number) for number in range(6)]
    gone = repository.expire_snapshots(datetime.now(UTC), policy="last 2")
    assert set(ids) & gone == set(ids[:-2])
    assert [each.id for each in repository.ancestry(branch="main")][:2] == ids[:-3:-1]


def test_a_policy_that_is_none_is_not_kept_in_the_repository() -> None:
    repository = create_repository()
    with pytest.raises(InvalidInputError):
        repository.set_retention("now and then")
    assert repository.get_retention() is None
    repository.set_retention("daily for 30 days")
    assert Repository.open(repository.storage).get_retention() == "daily for 30 days"
