"""Icechunk's public names, modules and signatures over arraystore."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from typing import Any

import icechunk
import pytest

import arraystore.compat.icechunk as compat

MODULES = (
    "config",
    "conflicts",
    "credentials",
    "dask",
    "distributed",
    "ops",
    "repository",
    "session",
    "snapshots",
    "storage",
    "store",
    "testing",
    "types",
    "virtual",
    "xarray",
)


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_the_package_does_not_load_the_compatibility_layer() -> None:
    program = "import arraystore, sys; arraystore.Repository; print('arraystore.compat' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_public_name_of_icechunk_is_there() -> None:
    assert {name for name in public(icechunk) if name != "catalog"} - public(compat) == set()


def test_dir_shows_the_names_of_icechunk_and_nothing_else() -> None:
    assert public(compat) - public(icechunk) == set()
    assert all(hasattr(compat, name) for name in dir(compat))


@pytest.mark.parametrize("name", MODULES)
def test_every_name_of_a_module_of_icechunk_is_there(name: str) -> None:
    theirs = import_module(f"icechunk.{name}")
    ours = import_module(f"arraystore.compat.icechunk.{name}")
    assert set(getattr(theirs, "__all__", [])) - public(ours) == set()


CLASSES = [
    (name, thing)
    for name in icechunk.__all__
    if inspect.isclass(thing := getattr(icechunk, name)) and not name.startswith("Any") and name != "ErrorKind"
]


@pytest.mark.parametrize(("name", "theirs"), CLASSES, ids=[name for name, _ in CLASSES])
def test_every_member_of_a_class_of_icechunk_is_there(name: str, theirs: type) -> None:
    ours = getattr(compat, name)
    missing = {member for member in public(theirs) - members(ours) if not hasattr(ours, member)}
    assert missing - UNDOCUMENTED.get(name, set()) == set()


def members(thing: type) -> set[str]:
    """Return the public names of a class and of the attributes of its instances."""
    annotated = {name for base in thing.__mro__ for name in inspect.get_annotations(base)}
    return public(thing) | annotated | SET_BY_INIT.get(thing.__name__, set())


UNDOCUMENTED = {
    "ManifestPreloadCondition": {"And", "False", "NameMatches", "NumRefs", "Or", "PathMatches", "True"},
    "ManifestSplitCondition": {"And", "NameMatches", "Or", "PathMatches"},
    "RepositoryConfig": {"previous_file"},
}
"""What the compiled classes have beside what Icechunk's own stubs say."""

SET_BY_INIT = {
    "ConflictError": {"expected_parent", "actual_parent"},
    "RebaseFailedError": {"expected_parent", "actual_parent", "snapshot", "conflicts"},
}


FUNCTIONS = [(name, thing) for name in icechunk.__all__ if inspect.isroutine(thing := getattr(icechunk, name))]


@pytest.mark.parametrize(("name", "theirs"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_every_function_takes_the_arguments_of_icechunks(name: str, theirs: Any) -> None:
    assert parameters(theirs) == parameters(getattr(compat, name))


@pytest.mark.parametrize("name", sorted(public(icechunk.Repository)))
def test_every_method_of_a_repository_takes_the_arguments_of_icechunks(name: str) -> None:
    theirs, ours = getattr(icechunk.Repository, name), getattr(compat.Repository, name)
    if inspect.isroutine(theirs):
        assert set(parameters(theirs)) - set(parameters(ours)) == set()
        assert inspect.iscoroutinefunction(theirs) == inspect.iscoroutinefunction(ours)


def parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except ValueError:  # of the compiled module
        return []
