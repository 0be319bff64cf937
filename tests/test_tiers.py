"""The tiers of the tests: what shares a Spark session or a server of its own runs in one process."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("alone")
def test_processes_are_given_the_groups_of_tests(request: pytest.FixtureRequest) -> None:
    groups = getattr(request.config.option, "loadgroup", False)  # only processes of a run with groups have it
    assert request.node.nodeid.endswith("@alone") or not groups
