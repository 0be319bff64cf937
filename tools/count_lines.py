"""Count the lines that the wheel installs, by part of the package: `python tools/count_lines.py`.

Lines of code are those that are left without blank lines, docstrings, comments and imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "arraystore"


@dataclass(frozen=True)
class Size:
    """Lines of some modules, and those of them that are code."""

    lines: int = 0
    code: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.lines + other.lines, self.code + other.code)


def size_of(source: str) -> Size:
    """Return the size of a module."""
    left_out = {number for node in ast.walk(ast.parse(source)) for number in _lines_beside_code(node)}
    lines = source.splitlines()
    code = sum(
        number not in left_out and bool(line.strip()) and not line.lstrip().startswith("#")
        for number, line in enumerate(lines, 1)
    )
    return Size(len(lines), code)


def _lines_beside_code(node: ast.AST) -> Iterator[int]:
    """Yield the lines of an import, or of a string that stands alone: a docstring, or one after a name."""
    alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    if alone or isinstance(node, ast.Import | ast.ImportFrom):
        yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def sizes_by_part(package: Path = PACKAGE) -> dict[str, Size]:
    """Return the sizes of what lies directly in the package, largest first."""
    sizes: dict[str, Size] = {}
    for path in package.rglob("*.py"):
        part = path.relative_to(package).parts[0].removesuffix(".py")
        sizes[part] = sizes.get(part, Size()) + size_of(path.read_text(encoding="utf-8"))
    return dict(sorted(sizes.items(), key=lambda item: -item[1].lines))


if __name__ == "__main__":
    parts = sizes_by_part()
    for name, size in [*parts.items(), ("in all", sum(parts.values(), Size()))]:
        print(f"{name:16}{size.lines:8,}{size.code:8,}")
