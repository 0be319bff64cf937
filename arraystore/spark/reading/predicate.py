"""Predicates over values: comparisons of columns with numbers, joined by AND."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from arraystore._format.types import Array, Bools
from arraystore.errors import InvalidInputError

_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[^\W\d]\w*)|(?P<operator><=|>=|<>|!=|==|=|<|>)"
    r"|(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w)))"
)
_OPERATORS = {"==": "=", "<>": "!="}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_TRUE_OF_NAN = frozenset({">", ">=", "!="})
"""Comparisons that hold of NaN, which for Spark is greater than any other number."""

_MOST_DIGITS = 320
_WORDS = {"true": Fraction(1), "false": Fraction(0)}


@dataclass(frozen=True)
class Comparison:
    """Comparison of a column with a number."""

    column: str
    operator: str
    value: Fraction

    def holds(self, values: Array) -> Bools:
        """Tell of which values it holds; integers are compared exactly, floats with the nearest double."""
        if values.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                found = _COMPARE[self.operator](values.astype(np.float64), _nearest(self.value))
            return np.asarray(found | np.isnan(values) if self.operator in _TRUE_OF_NAN else found, dtype=np.bool_)
        whole = self._among_integers()
        if whole is None:
            return np.full(values.shape, self.operator == "!=")
        integers = values.view(np.uint8) if values.dtype.kind == "b" else values
        return np.asarray(_COMPARE[self.operator](integers, whole), dtype=np.bool_)

    def may_hold(self, least: Array, greatest: Array) -> Bools:
        """Tell in which intervals there may be a value, NaN aside, of which it holds."""
        if self.operator == "=":
            above = Comparison(self.column, ">=", self.value).holds(greatest)
            return above & Comparison(self.column, "<=", self.value).holds(least)
        # All others that hold within an interval hold at one of its ends.
        return self.holds(least) | self.holds(greatest)

    def _among_integers(self) -> int | None:
        """Return the integer that says the same of integers as the number does; None where it equals none of them."""
        if self.operator in (">", "<="):
            return math.floor(self.value)
        if self.operator in (">=", "<"):
            return math.ceil(self.value)
        return int(self.value) if self.value.denominator == 1 else None


def _nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # copysign would convert the value, too


def parse_predicate(text: str) -> tuple[Comparison, ...]:
    """Return the comparisons of a predicate; raises `InvalidInputError` for anything else."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without types
        raise InvalidInputError(f"where must be a string, not {type(text).__name__}")
    tokens = _tokens(text)
    comparisons: list[Comparison] = []
    for at in range(0, len(tokens), 4):
        comparisons.append(_comparison(text, tokens[at : at + 3]))
        joint = tokens[at + 3 : at + 4]
        if joint and (joint[0][0] != "word" or joint[0][1].upper() != "AND" or at + 4 == len(tokens)):
            raise _refusal(text, f"at {joint[0][1]!r}")
    if not comparisons:
        raise _refusal(text, "which is empty")
    return tuple(comparisons)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise _refusal(text, f"at {text[at:].strip()[:20]!r}")
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind]))
        at = match.end()
    return tokens


def _comparison(text: str, tokens: Sequence[tuple[str, str]]) -> Comparison:
    if len(tokens) < 3:
        raise _refusal(text, "which ends too early")
    (kind, name), (middle, sign), (last, literal) = tokens
    if kind not in ("word", "quoted") or middle != "operator":
        raise _refusal(text, f"at {name!r}")
    column = name[1:-1].replace("``", "`") if kind == "quoted" else name
    return Comparison(column, _OPERATORS.get(sign, sign), _number(text, last, literal))


def _number(text: str, kind: str, literal: str) -> Fraction:
    if kind == "word" and literal.lower() in _WORDS:
        return _WORDS[literal.lower()]
    mantissa, _, exponent = literal.lower().partition("e")
    if kind != "number":
        raise _refusal(text, f"at {literal!r}")
    if len(mantissa) > _MOST_DIGITS or len(exponent) > 4 or abs(int(exponent or 0)) > _MOST_DIGITS:
        raise InvalidInputError(f"where has a number of more digits than are compared: {literal[:40]!r}")
    return Fraction(literal)


def _refusal(text: str, where: str) -> InvalidInputError:
    return InvalidInputError(
        f"where={text[:200]!r} is not understood, {where}: give comparisons of columns with numbers or TRUE and FALSE, "
        'joined by AND, as in "t2m > 310 AND cloud <= 0.5"; filter the frame by anything else with its where()'
    )
