"""Examples and benchmarks import only what the package has."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "examples").glob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_each_name_that_a_file_imports_from_the_package_exists(path: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    wanted = [(node.module, alias.name) for node in imports for alias in node.names]
    missing = [
        (module, name)
        for module, name in wanted
        if module != "arraystore.virtual" or sys.version_info >= (3, 12)  # VirtualiZarr needs it
        if module is not None and module.split(".")[0] == "arraystore" and not _has(module, name)
    ]
    assert missing == []


def _has(module: str, name: str) -> bool:
    if hasattr(import_module(module), name):
        return True
    try:
        import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True
