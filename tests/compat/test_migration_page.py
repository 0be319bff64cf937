"""The page about migrating tells of every name of Icechunk what became of it, and of every test that does not pass."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import icechunk
import pytest

import arraystore
import arraystore.compat.icechunk as compat

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "migrating-from-icechunk.md").read_text(encoding="utf-8")
TESTS = tomllib.loads((ROOT / "tools" / "icechunk_tests.toml").read_text(encoding="utf-8"))
SECTIONS: dict[str, tuple[Any, Any, Any]] = {
    "Top level": (icechunk, compat, arraystore),
    "Repository": (icechunk.Repository, compat.Repository, arraystore.Repository),
    "Session": (icechunk.Session, compat.Session, arraystore.Session),
    "IcechunkStore": (icechunk.IcechunkStore, compat.IcechunkStore, arraystore.ArrayStore),
}


class Row(NamedTuple):
    name: str
    twin: bool
    state: str
    core: str


def rows(section: str) -> list[Row]:
    text = PAGE.split(f"### {section}\n", 1)[1].split("\n#", 1)[0]
    found = re.findall(r"^\| `(\w+)`( \(and `_async`\))? \| (\w+) \| ([^|]*)\|", text, re.MULTILINE)
    return [Row(name, bool(twin), state, core.strip()) for name, twin, state, core in found]


def names_of(thing: Any) -> Iterator[str]:
    for name in dir(thing):
        if not name.startswith("_") and not inspect.ismodule(getattr(thing, name)):
            yield name


@pytest.mark.parametrize("section", SECTIONS)
def test_every_name_has_a_row(section: str) -> None:
    listed = rows(section)
    told = {row.name for row in listed} | {row.name + "_async" for row in listed if row.twin}
    assert told == set(names_of(SECTIONS[section][0]))
    assert len(listed) == len({row.name for row in listed})


@pytest.mark.parametrize("section", SECTIONS)
def test_what_is_said_to_be_there_is_there(section: str) -> None:
    _, ours, core = SECTIONS[section]
    for row in rows(section):
        assert row.state in ("same", "other", "accepted", "absent")
        for name in (row.name, row.name + "_async")[: 1 + row.twin]:
            assert hasattr(ours, name) == (row.state != "absent"), name
        assert row.core != "same" or hasattr(core, row.name), row.name


def page_section(tests: Any) -> str:
    """Return the section that the runner prints by ``--page``."""
    spec = importlib.util.spec_from_file_location("run_icechunk_tests", ROOT / "tools" / "run_icechunk_tests.py")
    assert spec is not None
    assert spec.loader is not None
    runner = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = runner  # where dataclasses look
    spec.loader.exec_module(runner)
    return str(runner.page_section(tests))


def test_every_test_that_does_not_pass_is_named_with_its_reason() -> None:
    assert page_section(TESTS) in PAGE.split("## Icechunk's own tests\n", 1)[1]
