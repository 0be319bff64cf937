"""Dataclasses that are made in a quarter of the time, since their methods are shared and not compiled for each class.

To type checkers, and to `dataclasses.fields`, `replace` and `asdict`, they are what `dataclasses.dataclass` makes.  The
methods of a class are generated here for its `__init__` only.  What the modules of a first commit define is made this
way; see docs/decisions/031-imports.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter, ge, gt, le, lt
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

__all__ = ["dataclass"]

T = TypeVar("T")


def _dataclass(
    cls: type[T] | None = None, /, *, frozen: bool = False, eq: bool = True, order: bool = False
) -> type[T] | Callable[[type[T]], type[T]]:
    def make(cls: type[T]) -> type[T]:
        return _add_methods(cls, frozen, eq, order)

    return make if cls is None else make(cls)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _add_methods(cls: type[T], frozen: bool, eq: bool, order: bool) -> type[T]:
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    methods: dict[str, Any] = {"__init__": _init_of(cls, frozen), "__repr__": _repr}
    if eq:
        methods |= {"__eq__": _equal, "__hash__": _hash if frozen else None, "_compared": _compared_of(cls)}
    if order:
        methods |= _ORDER
    if frozen:
        methods |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    return cls


def _init_of(cls: type[Any], frozen: bool) -> Callable[..., None]:
    """Compile an `__init__` that sets the fields and calls `__post_init__`, if there is one."""
    names: dict[str, Any] = {"MISSING": MISSING, "set_field": object.__setattr__ if frozen else setattr}
    parameters, lines = ["self"], []
    for field in fields(cls):
        parameter, value = _parameter(cls, field, names)
        parameters.append(parameter)
        lines.append(f"set_field(self, {field.name!r}, {value})" if frozen else f"self.{field.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n    " + "\n    ".join(lines or ["pass"]), names)  # noqa: S102
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {field.name: field.type for field in fields(cls)} | {"return": None}
    return init


def _parameter(cls: type[Any], field: Field[Any], names: dict[str, Any]) -> tuple[str, str]:
    """Return the parameter of a field and the expression of its value; adds defaults to the names."""
    if not field.init or field.kw_only is True:
        raise TypeError(f"{cls.__qualname__}.{field.name}: make this class with dataclasses.dataclass instead")
    name, default = field.name, f"default_of_{field.name}"
    if field.default is not MISSING:
        names[default] = field.default
        return f"{name}={default}", name
    if field.default_factory is not MISSING:
        names[default] = field.default_factory
        return f"{name}=MISSING", f"{default}() if {name} is MISSING else {name}"
    return name, name


def _compared_of(cls: type[Any]) -> Any:
    names = [field.name for field in fields(cls) if field.compare]
    return attrgetter(*names) if names else staticmethod(_nothing)


def _nothing(value: object) -> tuple[()]:
    return ()


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({shown})"


def _equal(self: Any, other: object) -> Any:
    compared = self._compared
    if type(other) is not type(self):
        return NotImplemented
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, object], Any]:
    def method(self: Any, other: object) -> Any:
        compared = self._compared
        if type(other) is not type(self):
            return NotImplemented
        return compare(compared(self), compared(other))

    return method


_ORDER = {f"__{compare.__name__}__": _ordered(compare) for compare in (lt, le, gt, ge)}


def _refuse_assignment(self: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
