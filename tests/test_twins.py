"""Each asynchronous function has the signature of its synchronous twin: both are written by hand."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import arraystore

MODULES = ("arraystore.copying", "arraystore.distributed", "arraystore.storage")
ALONE = {"ForkSession.parts_async": "pickle is its twin"}


def public_holders() -> Iterator[tuple[str, Any]]:
    """Yield what may have twins: public classes, and public modules with functions."""
    for name in arraystore.__all__:
        if inspect.isclass(found := getattr(arraystore, name)):
            yield name, found
    for name in MODULES:
        yield name, importlib.import_module(name)


def pairs() -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Return synchronous and asynchronous functions, by the name of the latter."""
    return {
        f"{holder_name}.{name}": (getattr(holder, name.removesuffix("_async")), getattr(holder, name))
        for holder_name, holder in public_holders()
        for name in dir(holder)
        if name.endswith("_async") and not name.startswith("_") and f"{holder_name}.{name}" not in ALONE
    }


def of_twin(annotation: Any) -> Any:
    """Return the annotation that the result of an asynchronous twin has."""
    return f"Async{annotation}" if str(annotation).startswith("Iterator[") else annotation


def parameters(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default, each.annotation) for each in found]


@pytest.mark.parametrize("name", pairs())
def test_twins_have_one_signature(name: str) -> None:
    synchronous, asynchronous = pairs()[name]
    assert parameters(asynchronous) == parameters(synchronous)
    expected = of_twin(inspect.signature(synchronous).return_annotation)
    assert inspect.signature(asynchronous).return_annotation == expected


def test_there_are_twins_of_sessions_repositories_and_functions() -> None:
    expected = {"Session.commit_async", "ForkSession.changes_async", "Repository.create_branch_async"}
    assert expected | {"arraystore.distributed.merge_sessions_async"} <= set(pairs())
