"""Run every example, and the code of README.md, docs/ and the harness, so that nothing is shown that does not work.

    python tools/run_examples.py [PAGE ...]

The pages about Spark are left to tools/run_spark_versions.py, unless named here.
Each page runs in a process, a namespace and an empty working directory of its own, its blocks in order; as many run
at once as there are processors.  A ``python`` block runs unless the line before it is ``<!-- no-run: reason -->``; a
``bash`` block runs only where the line before it is ``<!-- run -->``.  An example is a page of Python that is one
block; a notebook is run by tools/run_notebook.py.  The exit status is 1 when a block failed or when a mark is followed
by no block.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SECONDS_PER_PAGE = 600

_OPENING = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w+-]*)")
_NO_RUN = re.compile(r"^\s*<!--\s*no-run:\s*(?P<reason>\S.*?)\s*-->\s*$")
_RUN = re.compile(r"^\s*<!--\s*run\s*-->\s*$")
_MARK = re.compile(r"^\s*<!--\s*(no-)?run\b")


class PageError(Exception):
    """A page that cannot be understood."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    line: int
    """The number of its first line of code, from 1."""
    code: str
    runs: bool
    reason: str = ""
    """Why a block of Python is not run."""


def blocks_of(text: str, name: str = "page") -> Iterator[Block]:
    """Yield the blocks of Python and bash of a page.

    Raises
    ------
    PageError
        For a mark that is malformed or marks nothing, and for a block without end.
    """
    lines = text.splitlines()
    mark = ""
    mark_line = number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if _MARK.match(line):
            if mark:
                raise PageError(f"{name}:{mark_line}: this mark is not followed by a block")
            if not (_NO_RUN.match(line) or _RUN.match(line)):
                raise PageError(f"{name}:{number}: write <!-- run --> or <!-- no-run: reason -->")
            mark, mark_line = line, number
        elif opening := _OPENING.match(line):
            start = number
            while number < len(lines) and lines[number].strip() != opening["fence"]:
                number += 1
            if number == len(lines):
                raise PageError(f"{name}:{start}: this block has no end")
            code = textwrap.dedent("\n".join(lines[start:number])) + "\n"
            number += 1
            if block := _block(opening["language"], start + 1, code, mark):
                yield block
            elif mark:
                raise PageError(f"{name}:{mark_line}: only blocks of python and bash are run")
            mark = ""
        elif line.strip() and mark:
            raise PageError(f"{name}:{mark_line}: this mark is not followed by a block")
    if mark:
        raise PageError(f"{name}:{mark_line}: this mark is not followed by a block")


def _block(language: str, line: int, code: str, mark: str) -> Block | None:
    if language in {"python", "py"}:
        no_run = _NO_RUN.match(mark)
        return Block("python", line, code, runs=no_run is None, reason=no_run["reason"] if no_run else "")
    if language in {"bash", "sh", "shell", "console"}:
        return Block("bash", line, code, runs=bool(_RUN.match(mark)))
    return None


def run_page(page: Path) -> None:
    """Run the blocks of a page in this process and the current directory."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page.read_text(encoding="utf-8"), str(page)):
        if not block.runs:
            continue
        if block.language == "python":
            # Blank lines in front give tracebacks the line numbers of the page.
            source = "\n" * (block.line - 1) + block.code
            exec(compile(source, str(page), "exec"), namespace)
        else:
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
            status = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.code], env=os.environ | {"PATH": path}, check=False
            ).returncode
            if status:
                raise PageError(f"{page}:{block.line}: this block of bash ended with status {status}")


def check_page(page: Path) -> tuple[bool, str]:
    """Run a page in a process of its own; return whether all is well, and what to report."""
    name = os.path.relpath(page, ROOT)
    try:
        text = page.read_text(encoding="utf-8")
        blocks = list(blocks_of(text, name)) if page.suffix == ".md" else [Block("python", 1, text, runs=True)]
    except PageError as error:
        return False, f"FAILED {error}"
    ran = sum(block.runs for block in blocks)
    skipped = [block for block in blocks if block.reason]
    start = time.perf_counter()
    problem = _problem_of(page) if ran else ""
    verdict = "FAILED" if problem else "ok    "
    report = [f"{verdict} {name}: {ran} run, {len(skipped)} not run, {time.perf_counter() - start:.1f} s"]
    report += [f"       line {block.line} is not run: {block.reason}" for block in skipped]
    if problem:
        report.append(textwrap.indent(problem, "       "))
    return not problem, "\n".join(report)


def _problem_of(page: Path) -> str:
    """Run a page in a fresh process and directory; return what it printed if it failed, else nothing."""
    programs: dict[str, list[str | Path]] = {".py": [], ".ipynb": [ROOT / "tools" / "run_notebook.py"]}
    program = [*programs.get(page.suffix, [Path(__file__).resolve(), "--in-this-process"]), page]
    with tempfile.TemporaryDirectory(prefix="doc-blocks-", ignore_cleanup_errors=True) as directory:
        try:
            done = subprocess.run(
                [sys.executable, *program],
                cwd=directory,
                env=_environment_of(page),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS_PER_PAGE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it did not end within {SECONDS_PER_PAGE} s"
    return done.stdout + f"status {done.returncode}" if done.returncode else ""


def _environment_of(page: Path) -> dict[str, str]:
    """Return the environment of a page: those of the tests are read in a checkout, where `tests` can be imported."""
    in_tests = page.is_relative_to(ROOT / "tests")
    return os.environ | ({"PYTHONPATH": str(ROOT)} if in_tests else {})


def all_pages() -> list[Path]:
    """Return all examples, README.md, the pages of docs/ and those of the tests."""
    examples = sorted((ROOT / "examples").glob("*.py"))
    return [
        *(page for page in examples if '\nif __name__ == "__main__":' in page.read_text(encoding="utf-8")),
        *sorted((ROOT / "examples").glob("*.ipynb")),
        *ROOT.glob("README.md"),
        *(page for page in sorted((ROOT / "docs").rglob("*.md")) if not page.match("docs/spark*.md")),
        *sorted((ROOT / "tests").rglob("README.md")),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pages named, or all."""
    parser = argparse.ArgumentParser(description="Run every example, and the code of all pages.")
    parser.add_argument("pages", metavar="PAGE", nargs="*", type=Path)
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.in_this_process:
        run_page(options.pages[0])
        return 0
    pages = [page.resolve() for page in options.pages] or all_pages()
    good = 0
    with ThreadPoolExecutor(os.cpu_count()) as runs:
        for well, report in runs.map(check_page, pages):
            print(report, flush=True)
            good += well
    print(f"{good} of {len(pages)} pages are well")
    return 0 if good == len(pages) else 1


if __name__ == "__main__":
    sys.exit(main())
