"""Templates and generators of kerchunk's references (version 1 of fsspec's reference specification).

Expressions in ``{{ }}`` are evaluated here, not by a template engine: references come from others.
"""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from arraystore.virtual.errors import VirtualizeError

__all__ = ["resolved"]

_EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_STATEMENT = re.compile(r"\{[%#]")
_MOST_GENERATED = 10_000_000
_LONGEST = 10_000
"""Characters of a template's result."""
_MOST_EXPRESSIONS = 50
"""Expressions of a template."""
_DEEPEST = 2
"""Levels of templates that call templates: what can be written in a few lines must not take hours."""
_NUMBERS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_LARGEST = 1 << 63


def resolved(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the references of a document by key, with templates replaced and generators written out.

    Raises `VirtualizeError` for a template or a generator that is not valid.
    """
    if not isinstance(content.get("refs"), Mapping) and not content.get("gen"):
        return content  # version 0: the references themselves
    scope = _Scope(_templates(content.get("templates")))
    refs: Mapping[str, Any] = content.get("refs") or {}
    if scope.names:
        refs = {key: _located(value, scope) for key, value in refs.items()}
    generated = content.get("gen") or []
    if not isinstance(generated, Sequence) or not all(isinstance(each, Mapping) for each in generated):
        raise VirtualizeError("the generators ('gen') must be a list of mappings")
    return dict(itertools.chain(refs.items(), *(_generated(each, scope) for each in generated)))


def _templates(templates: Any) -> dict[str, Any]:
    if not isinstance(templates or {}, Mapping) or not all(
        isinstance(text, str) for text in (templates or {}).values()
    ):
        raise VirtualizeError("the templates must be a mapping of names to strings")
    return dict(templates or {})


def _located(value: Any, scope: _Scope) -> Any:
    if not isinstance(value, list | tuple) or not value or "{{" not in str(value[0]):
        return value
    return [scope.render(str(value[0])), *value[1:]]


def _generated(generator: Mapping[str, Any], scope: _Scope) -> Iterator[tuple[str, list[Any]]]:
    """Yield the references of a generator."""
    if "key" not in generator or "url" not in generator or ("offset" in generator) != ("length" in generator):
        raise VirtualizeError("a generator needs 'key', 'url' and 'dimensions', and both or none of 'offset', 'length'")
    dimensions = {name: _values(name, values) for name, values in _dimensions(generator).items()}
    if (count := prod(map(len, dimensions.values()))) > _MOST_GENERATED:
        raise VirtualizeError(f"a generator makes {count:,} references, more than {_MOST_GENERATED:,}: use Parquet")
    for row in itertools.product(*dimensions.values()):
        inner = _Scope({**scope.names, **dict(zip(dimensions, row, strict=True))})
        numbers = [
            _integer(inner.render(str(generator[name])), name) for name in ("offset", "length") if name in generator
        ]
        yield inner.render(str(generator["key"])), [inner.render(str(generator["url"])), *numbers]


def _dimensions(generator: Mapping[str, Any]) -> Mapping[str, Any]:
    dimensions = generator.get("dimensions")
    if not isinstance(dimensions, Mapping) or not dimensions:
        raise VirtualizeError("a generator needs 'dimensions', a mapping of names to ranges or lists")
    return dimensions


def _values(name: str, values: Any) -> Sequence[Any]:
    if isinstance(values, list):
        return values
    if isinstance(values, Mapping) and "stop" in values:
        steps = [values.get("start", 0), values["stop"], values.get("step", 1)]
        if all(type(step) is int and abs(step) < _LARGEST for step in steps) and steps[2]:
            return range(*steps)
    raise VirtualizeError(f"the dimension {name!r} of a generator must be a list or have 'stop', an integer")


def _integer(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise VirtualizeError(f"the {name!r} of a generator must be an integer, not {text[:80]!r}") from None


@dataclass(frozen=True)
class _Scope:
    """Values by name: strings, which are templates, and what a generator counts."""

    names: Mapping[str, Any]
    depth: int = 0

    def render(self, text: str) -> str:
        """Return a string with its expressions replaced."""
        if "{" not in text:
            return text
        if text.count("{{") > _MOST_EXPRESSIONS or _STATEMENT.search(text) or self.depth > _DEEPEST:
            raise VirtualizeError(
                f"the template {text[:200]!r} must have only expressions in {{{{ }}}}, and few of them"
            )
        result = _EXPRESSION.sub(lambda found: str(self._evaluate(found[1])), text)
        if "{{" in result or len(result) > _LONGEST:
            raise VirtualizeError(f"the template {text[:200]!r} does not become a location")
        return result

    def _evaluate(self, expression: str) -> str | int:
        try:
            if len(expression) <= _LONGEST:
                return self._value(ast.parse(expression.strip(), mode="eval").body, expression)
            raise _refused(expression)
        except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
            raise _refused(expression) from None

    def _value(self, node: ast.expr, expression: str) -> str | int:
        match node:
            case ast.Constant(value=str() | int() as value) if not isinstance(value, bool):
                return value
            case ast.Name(id=name) if name in self.names:
                return self._named(name, {})
            case ast.Call(func=ast.Name(id=name), args=[], keywords=given) if name in self.names:
                values = {word.arg: self._value(word.value, expression) for word in given if word.arg is not None}
                return self._named(name, values)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -_number(self._value(operand, expression), expression)
            case ast.BinOp(left=left, op=how, right=right) if type(how) in _NUMBERS:
                return _combined(
                    _NUMBERS[type(how)], self._value(left, expression), self._value(right, expression), expression
                )
            case _:
                raise _refused(expression)

    def _named(self, name: str, values: Mapping[str, Any]) -> str | int:
        """Return a value, or the result of a template, which sees nothing but these values."""
        value = self.names[name]
        if not isinstance(value, str) or "{{" not in value:
            return value if isinstance(value, str | int) else str(value)
        return _Scope(values, self.depth + 1).render(value)


def _combined(how: Callable[[Any, Any], Any], left: str | int, right: str | int, expression: str) -> str | int:
    if how is operator.add and isinstance(left, str) and isinstance(right, str):
        return left + right
    result: int = how(_number(left, expression), _number(right, expression))
    return _number(result, expression)


def _number(value: str | int, expression: str) -> int:
    if not isinstance(value, int) or abs(value) >= _LARGEST:
        raise _refused(expression)
    return value


def _refused(expression: str) -> VirtualizeError:
    return VirtualizeError(
        f"the expression {expression[:200]!r} of a template is not read: names, integers, strings, + - * // % and "
        "calls of templates are; write the references out with kerchunk"
    )
