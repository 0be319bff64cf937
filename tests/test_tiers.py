"""The tiers of the tests: what shares a Spark session or a server of its own runs in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SPARSE, THOROUGH


@pytest.mark.xdist_group("alone")
def test_processes_are_given_the_groups_of_tests(request: pytest.FixtureRequest) -> None:
    groups = getattr(request.config.option, "loadgroup", False)  # only processes of a run with groups have it
    assert request.node.nodeid.endswith("@alone") or not groups


def test_what_the_tiers_list_is_there() -> None:
    root = Path(__file__).parents[1]
    for name in (*THOROUGH, *SPARSE):
        path, _, test = name.partition("::")
        place = root / path
        assert place.exists() or list(place.parent.glob(f"{place.name}*")), name
        assert not test or f"def {test.partition('[')[0]}" in place.read_text(), name
