"""Every command has an example in the documentation that runs."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from arraystore.cli.failures import EXIT_STATUSES
from tests.cli.test_endings import commands
from tests.test_docs_blocks import runner

ROOT = Path(__file__).parents[2]
STATUSES = re.findall(r"(\d+) [a-z]", EXIT_STATUSES)


@cache
def _typed() -> list[list[str]]:
    """Return the words of all commands in blocks that run, continued lines joined."""
    pages = [
        page for page in runner.all_pages() if page.suffix == ".md" and "tests" not in page.relative_to(ROOT).parts
    ]
    blocks = [block for page in pages for block in runner.blocks_of(page.read_text(encoding="utf-8"))]
    shell = "\n".join(block.code.replace("\\\n", " ") for block in blocks if block.language == "bash" and block.runs)
    return [_words(found) for found in re.findall(r"\barraystore ([^\n|;&)]*)", shell)]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation that goes on in the next line
        return text.split()


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_an_example_that_runs(command: tuple[str, ...]) -> None:
    assert any(tuple(words[: len(command)]) == command for words in _typed())


@pytest.mark.parametrize("status", STATUSES)
def test_the_page_of_commands_tells_every_exit_status(status: str) -> None:
    assert f"\n| {status} | " in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
