"""The house keeps its order: imports only go down, `format` does no input or output, files stay readable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "arraystore"
FILES = sorted(PACKAGE.rglob("*.py"))

FLOORS = (
    {"cli"},
    {"copying", "dask", "ingest", "simulation", "spark", "virtual", "xarray"},
    {"__init__", "_public", "public"},
    {
        "config",
        "containers",
        "context",
        "creation",
        "_config",
        "_context",
        "_forks",
        "_history",
        "_repository",
        "_session",
        "as_of",
        "diff",
        "diff_views",
        "distributed",
        "fork_nodes",
        "fork_session",
        "forks",
        "handed",
        "haul",
        "hierarchy",
        "history_graph",
        "listing",
        "missing",
        "provisional",
        "appends",
        "moving",
        "readdressing",
        "rebasing",
        "transplant",
        "transplant_places",
        "announcing",
        "detached",
        "repository",
        "repository_base",
        "repository_care",
        "repository_compaction",
        "repository_comparison",
        "repository_history",
        "repository_inspection",
        "operations",
        "repository_operations",
        "repository_refs",
        "repository_settings",
        "lease",
        "status",
        "upkeep",
        "repository_changes",
        "session",
        "session_forks",
        "session_homes",
        "session_view",
        "session_pickle",
        "store",
        "stream_progress",
        "virtual_checksums",
        "virtual_refs",
    },
    {"_changes", "_chunks", "_commit", "_environment", "_log", "_maintenance", "commit", "maintenance"},
    {"_format", "format"},
    {"storage"},
    {"_concurrency", "_conflicts", "_runtime", "concurrency", "conflicts", "errors", "runtime"},
)
"""From the top down.  Modules of one floor may import each other."""

NO_PLACE_IN_FORMAT = {"asyncio", "fsspec", "io", "obstore", "pathlib", "socket", "subprocess", "tempfile"}
LONGEST_FILE = 600


def floor_of(part: str) -> int:
    for number, parts in enumerate(FLOORS):
        if part in parts:
            return number
    raise AssertionError(f"arraystore.{part} has no floor: add it to FLOORS, and to the table in CONTRIBUTING.md")


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_by(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names of all modules that a file imports, within functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from arraystore import session` names a module with its last part.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(part: str, source: str) -> list[str]:
    """Tell which imports of a file go up, or bring what `format` does without."""
    found = []
    for name in imported_by(ast.parse(source)):
        top, _, rest = name.partition(".")
        if top == "arraystore":
            first = rest.partition(".")[0]
            target = first if any(first in parts for parts in FLOORS) else _part_or_package(first)
            if floor_of(target) < floor_of(part):
                found.append(f"{part} imports {name}, which is above it")
        elif part in {"format", "_format"} and top in NO_PLACE_IN_FORMAT:
            found.append(f"format imports {name}, but turns bytes into values and does nothing else")
    return found


def _part_or_package(name: str) -> str:
    """Tell a module without a floor from something that the package itself offers, such as `Repository`."""
    is_module = name and ((PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists())
    return name if is_module else "__init__"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_only_go_down(path: Path) -> None:
    assert violations(part_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("storage", "from arraystore._format import ids"),
        ("storage", "def f():\n    import arraystore._log.branch_log"),
        ("format", "from arraystore import session"),
        ("session", "from arraystore import Repository"),
        ("session", "import arraystore"),
        ("spark", "from arraystore.cli import main"),
        ("format", "import asyncio"),
        ("format", "from pathlib import Path"),
    ],
)
def test_an_import_that_goes_up_is_noticed(part: str, source: str) -> None:
    assert len(violations(part, source)) == 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE
