"""The house keeps its order: imports only go down, no floor imports itself in a circle, files stay readable."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("floors")  # one process parses all modules

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "arraystore"

FLOORS = (
    {"cli"},
    {"ui"},
    {"compat", "ingest", "virtual"},
    {"copying", "simulation", "spark", "xarray"},
    {"dask", "transforms"},
    {"arraystore"},
    {"distributed"},
    {"_repository"},
    {"_session"},
    {"_history"},
    {"_context"},
    {"_forks", "_maintenance"},
    {"_commit"},
    {"_changes"},
    {"_log"},
    {"_chunks"},
    {"_environment"},
    {"_format"},
    {"storage"},
    {"_conflicts", "_runtime", "errors"},
)
"""From the top down: a module imports from its own part of the package, and from parts on lower floors."""

GROUND = FLOORS[-1]
"""Its parts may import each other, in no circle."""

PLUG_IN = ("arraystore._runtime.engine", "arraystore.spark.spark_engine")
"""The one import that goes up: the engine of Spark is asked for by its name, below what is built on it."""

NO_PLACE_IN_FORMAT = {"asyncio", "fsspec", "io", "obstore", "pathlib", "socket", "subprocess", "tempfile"}
LONGEST_FILE = 600
MOST_AT_THE_TOP = 28

Modules = Mapping[str, ast.AST]


@cache
def modules_of(root: Path) -> dict[str, ast.AST]:
    """Return the syntax trees of all modules of the package, by their dotted names."""
    found = {}
    for path in sorted((root / "arraystore").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


@cache
def imported_by(tree: ast.AST) -> tuple[str, ...]:
    """Return the dotted names of all that a module imports, within functions, by name and for type checkers, too."""
    return tuple(name for node in ast.walk(tree) for name in _named_by(node))


def _named_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        # `from arraystore import errors` names a module with its last part.
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "lazy_module")):
        yield from (name.value for name in node.args if isinstance(name, ast.Constant))


def imports_within(modules: Modules) -> dict[str, set[str]]:
    """Return which modules of the package each of them imports."""
    return {
        name: {_module(modules, wanted) for wanted in imported_by(tree) if _is_ours(name, wanted)}
        for name, tree in modules.items()
    }


def _is_ours(name: str, wanted: str) -> bool:
    return wanted.partition(".")[0] == "arraystore" and (name, wanted) != PLUG_IN


def _module(modules: Modules, wanted: str) -> str:
    """Tell a module from a name within one."""
    return wanted if wanted in modules else wanted.rpartition(".")[0] or wanted


def part_of(module: str) -> str:
    """Return the part of the package that a module belongs to: what lies directly in its folder."""
    return module.split(".")[1] if "." in module else module


def floor_of(part: str) -> int:
    for number, parts in enumerate(FLOORS):
        if part in parts:
            return number
    raise AssertionError(f"arraystore.{part} has no floor: add it to FLOORS, and to the picture in CONTRIBUTING.md")


def upward_imports(modules: Modules) -> list[str]:
    """Tell which imports go up, or sideways to another part of the same floor."""
    return [
        f"{name} imports {target}"
        for name, targets in imports_within(modules).items()
        for target in sorted(targets)
        if not _may_import(part_of(name), part_of(target))
    ]


def _may_import(part: str, target: str) -> bool:
    return part == target or floor_of(target) > floor_of(part) or {part, target} <= GROUND


def circle(modules: Modules) -> list[str]:
    """Return the modules of one circle of imports, lazy ones and those for type checkers included."""
    graph = {name: targets - {name} for name, targets in imports_within(modules).items() if name != "arraystore"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_only_go_down() -> None:
    assert upward_imports(modules_of(ROOT)) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(modules_of(ROOT)) == []


def test_the_format_does_no_input_or_output() -> None:
    offenders = [
        f"{name} imports {wanted}"
        for name, tree in modules_of(ROOT).items()
        if part_of(name) == "_format"
        for wanted in imported_by(tree)
        if wanted.partition(".")[0] in NO_PLACE_IN_FORMAT
    ]
    assert offenders == []


def test_each_file_can_be_read_in_one_sitting() -> None:
    lengths = {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text("utf-8").splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_few_modules_and_packages_lie_at_the_top() -> None:
    parts = {part_of(name) for name in modules_of(ROOT)}
    assert len(parts - {"arraystore"}) <= MOST_AT_THE_TOP
    assert {part for parts in FLOORS for part in parts} == parts


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("arraystore.storage.local", "from arraystore._format import ids"),
        ("arraystore.storage.local", "def f():\n    import arraystore._log.branch_log"),
        ("arraystore._format.ids", "from arraystore import errors, Repository"),
        ("arraystore._session.session", "from arraystore import Repository"),
        ("arraystore._forks.merge", "from arraystore._maintenance import lease"),
        ("arraystore.spark.report", "from arraystore.cli import main"),
        ("arraystore._runtime.engine", "import_module('arraystore.spark')"),
        ("arraystore.transforms.engines", "def f():\n    importlib.import_module('arraystore.spark.spark_engine')"),
    ],
)
def test_an_import_that_goes_up_is_noticed(name: str, source: str) -> None:
    everything = modules_of(ROOT)
    assert len(upward_imports({**dict.fromkeys(everything, ast.parse("")), name: ast.parse(source)})) == 1


def test_a_circle_through_a_function_is_noticed() -> None:
    there = ast.parse("from arraystore._format import ids")
    back = ast.parse("def f():\n    from arraystore._format.box import Box")
    assert set(circle({"arraystore._format.box": there, "arraystore._format.ids": back, "arraystore": there})) == {
        "arraystore._format.box",
        "arraystore._format.ids",
    }


def test_each_name_of_a_type_is_defined_once() -> None:
    aliases = [alias for tree in modules_of(ROOT).values() for alias in _type_aliases(tree)]
    assert sorted({alias for alias in aliases if aliases.count(alias) > 1}) == []


def _type_aliases(tree: ast.AST) -> Iterator[str]:
    """Yield what a module defines as ``Name = generic[arguments]``; not what it takes out of a mapping by a key."""
    for node in tree.body if isinstance(tree, ast.Module) else ():
        match node:
            case ast.Assign(value=ast.Subscript(slice=index)) if not isinstance(index, ast.Constant):
                yield ast.unparse(node)
            case _:
                pass


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    questions = ("What ", "Which ", "Whether ", "How ", "Where ", "When ", "Who ", "Why ")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    offenders = [
        f"{name}: {docstring.splitlines()[0]}"
        for name, tree in modules_of(ROOT).items()
        for node in ast.walk(tree)
        if isinstance(node, documented) and (docstring := ast.get_docstring(node) or "").startswith(questions)
    ]
    assert offenders == []
