"""The reference pages show what is public, under the names that users import."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import arraystore
from arraystore import Repository, distributed, errors, storage

PAGES = Path(__file__).parents[1] / "docs" / "api"
ENTRIES = {
    entry: page.name
    for page in sorted(PAGES.glob("*.md"))
    for entry in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
}
WHOLE_MODULES = (distributed, errors, storage)


@pytest.mark.parametrize("name", arraystore.__all__)
def test_every_public_name_has_an_entry(name: str) -> None:
    shown_with_module = any(name in module.__all__ and module.__name__ in ENTRIES for module in WHOLE_MODULES)
    assert f"arraystore.{name}" in ENTRIES or shown_with_module


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_entry_names_a_private_module(entry: str) -> None:
    assert not any(part.startswith("_") for part in entry.split("."))


def test_the_reference_lists_every_method_of_a_repository() -> None:
    page = (PAGES / "repository.md").read_text(encoding="utf-8")
    listed = re.search(r"members:\n(.*?\])\n", page, re.DOTALL)
    assert listed is not None
    names = re.findall(r"\w+", re.sub(r"#.*", "", listed[1]))
    public = {name for name in dir(Repository) if not name.startswith("_")}
    assert len(names) == len(set(names))
    assert set(names) == public - {"context"}
