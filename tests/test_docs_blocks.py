"""The runner of documentation code runs what it says, and a broken page cannot pass."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    path = Path(__file__).parents[1] / "tools" / "run_doc_blocks.py"
    spec = importlib.util.spec_from_file_location("run_doc_blocks", path)
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
    assert runner.check_page(path)


def test_a_failing_block_of_python_fails_the_page_at_its_own_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = page(tmp_path, "# Title\n\n```python\nfine = 1\nassert fine == 2\n```\n")
    assert not runner.check_page(path)
    assert f'{path}", line 5' in capsys.readouterr().out


def test_a_failing_block_of_bash_fails_the_page(tmp_path: Path) -> None:
    assert not runner.check_page(page(tmp_path, "<!-- run -->\n```bash\nfalse\ntrue\n```\n"))


def test_unmarked_bash_and_unrun_python_are_left_alone_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = page(tmp_path, "```bash\nfalse\n```\n<!-- no-run: needs a bucket -->\n```python\n1 / 0\n```\n")
    assert runner.check_page(path)
    assert "line 6 is not run: needs a bucket" in capsys.readouterr().out


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
    assert not runner.check_page(page(tmp_path, text))


def test_every_page_of_the_documentation_is_looked_at() -> None:
    root = Path(__file__).parents[1]
    assert root / "docs" / "index.md" in runner.all_pages()
