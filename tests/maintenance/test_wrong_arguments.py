"""Wrong arguments to what keeps a repository small: a clear error, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from arraystore import InvalidInputError, RefNotFoundError, Repository
from tests.commit.support import keys
from tests.history.worlds import commit, put, world

NOW = datetime(2026, 1, 1, tzinfo=UTC)

WRONG: dict[str, Callable[[Any], Any]] = {
    "a policy that is a number": lambda r: r.expire_snapshots(NOW, policy=5),
    "a retention that is a number": lambda r: r.set_retention(5),
    "a grace that is a number": lambda r: r.garbage_collect(NOW, record_grace=5),
    "no grace": lambda r: r.garbage_collect(NOW, record_grace=None),
    "a grace in which a writer may be overtaken": lambda r: r.garbage_collect(NOW, record_grace=timedelta(minutes=19)),
    "a grace below nothing": lambda r: r.garbage_collect(NOW, record_grace=timedelta(seconds=-1)),
    "a branch that is a list": lambda r: r.delete_branch(["x"]),
    "a tag that is a list": lambda r: r.delete_tag(["x"]),
    "a tag to look up that is a list": lambda r: r.lookup_tag(["x"]),
    "a branch to look up that is a list": lambda r: r.lookup_branch(["x"]),
    "bytes that are a text": lambda r: r.compact(max_bytes="1"),
    "a part that is a text": lambda r: r.compact(min_live="x"),
    "a flag that is a text": lambda r: r.set_feature_flag("move_node", "off"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_argument_is_refused_and_changes_nothing(wrong: Callable[[Repository], Any]) -> None:
    repository = world()
    commit(repository, put("g/a", 0, 10))
    before = keys(repository.storage)
    with pytest.raises((InvalidInputError, RefNotFoundError)):
        wrong(repository)
    assert keys(repository.storage) == before


@pytest.mark.parametrize("span", ["5000 years", "999999999 days"])
def test_a_policy_may_reach_back_to_the_beginning_of_time(span: str) -> None:
    repository = world()
    commit(repository, put("g/a", 0, 10))
    ids = {info.id for info in repository.ancestry(branch="main")}
    assert repository.expire_snapshots(datetime.now(UTC), policy=f"all for {span}") == set()
    assert {info.id for info in repository.ancestry(branch="main")} == ids
