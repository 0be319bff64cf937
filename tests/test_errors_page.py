"""The page of errors tells of each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from arraystore import errors

PAGE = (Path(__file__).parents[1] / "docs" / "errors.md").read_text()
ROWS = "".join(line for line in PAGE.splitlines() if line.startswith("| `"))


@pytest.mark.parametrize("name", sorted(set(errors.__all__) - {"ArrayStoreError"}))
def test_the_page_has_cause_and_remedy_of_each_error(name: str) -> None:
    assert f"`{name}`" in ROWS


@pytest.mark.parametrize("name", sorted(set(errors.__all__) - {"ArrayStoreError", "NotFoundError"}))
def test_the_page_provokes_each_error_or_says_that_it_does_not(name: str) -> None:
    provoked = set(re.findall(r"expected\(errors\.(\w+)\)", PAGE))
    assert (name in provoked) != (f"`{name}`" in PAGE.rpartition("Not in the program:")[2])
