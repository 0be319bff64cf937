"""The runner of examples and of documentation code runs what it says, and a broken page cannot pass."""

from __future__ import annotations

import codeop
import importlib.util
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    path = Path(__file__).parents[1] / "tools" / "run_examples.py"
    spec = importlib.util.spec_from_file_location("run_examples", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


runner = _load()


def page(directory: Path, text: str) -> Path:
    path = directory / "page.md"
    path.write_text(textwrap.dedent(text))
    return path


def test_blocks_share_a_namespace_and_run_in_order_in_an_empty_directory(tmp_path: Path) -> None:
    path = page(
        tmp_path,
        """
        ```python
        import os
        assert os.listdir() == []
        answer = 42
        ```

        <!-- run -->
        ```bash
        echo written > by-bash
        ```

        1. In a list:

            ```python
            assert answer == 42
            assert open("by-bash").read() == "written\\n"
            ```
        """,
    )
    assert runner.check_page(path)[0]


def test_a_failing_block_of_python_fails_the_page_at_its_own_line(tmp_path: Path) -> None:
    path = page(tmp_path, "# Title\n\n```python\nfine = 1\nassert fine == 2\n```\n")
    well, report = runner.check_page(path)
    assert not well
    assert f'{path}", line 5' in report


def test_a_failing_block_of_bash_fails_the_page(tmp_path: Path) -> None:
    assert not runner.check_page(page(tmp_path, "<!-- run -->\n```bash\nfalse\ntrue\n```\n"))[0]


def test_unmarked_bash_and_unrun_python_are_left_alone_and_reported(tmp_path: Path) -> None:
    path = page(tmp_path, "```bash\nfalse\n```\n<!-- no-run: needs a bucket -->\n```python\n1 / 0\n```\n")
    well, report = runner.check_page(path)
    assert well
    assert "line 6 is not run: needs a bucket" in report


@pytest.mark.parametrize(
    "text",
    [
        "<!-- no-run -->\n```python\n1 / 0\n```\n",
        "<!-- no-run: -->\n```python\n1 / 0\n```\n",
        "<!-- run -->\nwords in between\n```bash\ntrue\n```\n",
        "<!-- run -->\n",
        "<!-- run -->\n<!-- run -->\n```bash\ntrue\n```\n",
        "<!-- run -->\n```text\ntrue\n```\n",
        "```python\nno_end = 1\n",
    ],
)
def test_a_page_that_cannot_be_understood_fails(tmp_path: Path, text: str) -> None:
    assert not runner.check_page(page(tmp_path, text))[0]


@pytest.mark.parametrize(("code", "well"), [("assert __name__ == '__main__'", True), ("raise SystemExit(3)", False)])
def test_an_example_is_run_as_a_program(tmp_path: Path, code: str, well: bool) -> None:
    path = tmp_path / "example.py"
    path.write_text(code)
    assert runner.check_page(path)[0] is well


def test_one_page_that_fails_among_many_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("")
    bad.write_text("1 / 0")
    assert runner.main([str(good), str(bad), str(good)]) == 1
    assert "2 of 3 pages are well" in capsys.readouterr().out


def test_every_page_of_the_documentation_and_every_example_is_looked_at() -> None:
    root = Path(__file__).parents[1]
    pages = runner.all_pages()
    assert {root / "docs" / "index.md", root / "examples" / "daily_job.py", root / "examples" / "gallery.ipynb"} <= set(
        pages
    )
    assert root / "examples" / "demo_plot.py" not in pages  # a part of another


PROGRAMS = {"errors.md"}
"""Pages whose block is one long program, to be run and not typed."""


@pytest.mark.parametrize(
    "path", [each for each in runner.all_pages() if each.suffix == ".md"], ids=lambda path: path.name
)
def test_a_block_of_python_can_be_pasted_into_an_interactive_python(path: Path) -> None:
    """Python 3.11 and 3.12 take a line at a time, and end a compound statement at a blank line only."""
    blocks = [each for each in runner.blocks_of(path.read_text(encoding="utf-8")) if each.language == "python"]
    refused = [f"line {block.line + line}" for block in blocks if (line := _refused(block.code)) is not None]
    assert refused == [] or path.name in PROGRAMS


def _refused(code: str) -> int | None:
    """Return the number of the line that an interactive Python does not take, from 0; None if it takes all of them."""
    compiler, typed = codeop.CommandCompiler(), ""
    for number, line in enumerate([*code.split("\n"), ""]):
        typed += f"{line}\n"
        try:
            if compiler(typed.removesuffix("\n"), "<stdin>", "single") is not None:
                typed = ""
        except SyntaxError:
            return number
    return None


def test_a_block_that_cannot_be_pasted_is_noticed() -> None:
    assert _refused("for i in range(3):\n    print(i)\n\nprint(4)\n") is None
    assert _refused("for i in range(3):\n    print(i)\nprint(4)\n") == 2


def test_pages_that_are_followed_in_one_directory_do_not_meet_in_one_repository() -> None:
    made: dict[str, set[str]] = {}
    by_program = r"Repository\.create\(\w+\.local_filesystem_storage\(\"([\w-]+)\""
    by_command = r"^arraystore (?:init|ingest .*--repo) ([\w-]+)\s"
    created = re.compile(f"{by_program}|{by_command}", re.MULTILINE)
    for path in (Path(__file__).parents[1] / "docs").glob("*.md"):
        for match in created.finditer(path.read_text()):
            made.setdefault(match[1] or match[2], set()).add(path.name)
    assert {name: pages for name, pages in made.items() if len(pages) > 1} == {}
    assert len(made) > 5
