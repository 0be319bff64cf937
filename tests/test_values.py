"""Dataclasses with shared methods behave as those of the standard library."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field, replace
from functools import cached_property
from typing import Any

import pytest

from arraystore._runtime import values

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "frozen": {"frozen": True},
    "by identity": {"eq": False},
    "frozen by identity": {"frozen": True, "eq": False},
    "ordered": {"frozen": True, "order": True},
}


def made(maker: Any, form: str) -> type[Any]:
    @maker(**FORMS[form])
    class Point:
        """A point."""

        x: int
        y: int = 2
        names: list[str] = field(default_factory=list, repr=False)
        note: str = field(default="", compare=False)

        @cached_property
        def total(self) -> int:
            return self.x + self.y

    return Point


def both(form: str) -> tuple[type[Any], type[Any]]:
    return made(values.dataclass, form), made(dataclasses.dataclass, form)


def outcome(call: Any) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001
        return type(error), str(error)


every_form = pytest.mark.parametrize("form", FORMS)


@every_form
@pytest.mark.parametrize("arguments", [(1,), (1, 5), (1, 5, ["a"], "b"), (), (1, 2, [], "", 5)])
def test_instances_have_the_same_fields_and_refuse_the_same_arguments(form: str, arguments: tuple[Any, ...]) -> None:
    ours, theirs = both(form)
    ours.__init__.__qualname__ = theirs.__init__.__qualname__ = "Point.__init__"  # of messages
    assert outcome(lambda: dataclasses.asdict(ours(*arguments))) == outcome(
        lambda: dataclasses.asdict(theirs(*arguments))
    )


@every_form
def test_text_equality_hash_and_order_are_the_same(form: str) -> None:
    def look(cls: type[Any]) -> list[Any]:
        one, same, other = cls(1, 2, [], "a"), cls(1, 2, [], "b"), cls(1, 3)
        return [
            repr(one),
            one == one,
            one == same,
            one == other,
            one == (1, 2),
            outcome(lambda: one < other),
            outcome(lambda: one >= other),
            outcome(lambda: one < 5)[0] if isinstance(outcome(lambda: one < 5), tuple) else None,
            "hashable" if cls.__hash__ is object.__hash__ else outcome(lambda: hash(one)),
            one.total,
        ]

    ours, theirs = both(form)
    assert look(ours) == look(theirs)


@every_form
def test_fields_are_set_only_where_the_class_is_not_frozen(form: str) -> None:
    def change(cls: type[Any]) -> Any:
        point = cls(1)
        point.x = 5
        del point.note
        return point.x

    ours, theirs = both(form)
    assert outcome(lambda: change(ours)) == outcome(lambda: change(theirs))


def test_a_frozen_instance_is_hashed_by_its_fields_and_replaced_by_name() -> None:
    point = made(values.dataclass, "frozen")
    assert hash(Pair(1, 2)) == hash(Pair(1, 2)) != hash(Pair(1, 3))
    assert replace(point(1), y=7) == point(1, 7)
    with pytest.raises(FrozenInstanceError):
        Pair(1, 2).first = 3  # type: ignore[misc]


def test_each_instance_gets_a_default_of_its_own() -> None:
    point = made(values.dataclass, "plain")
    assert point(1).names is not point(1).names


@values.dataclass(frozen=True)
class Pair:
    """Two numbers, of which the second is at least the first."""

    first: int
    second: int

    def __post_init__(self) -> None:
        if self.second < self.first:
            raise ValueError("the second is less")


def test_what_is_done_after_the_fields_are_set_is_done() -> None:
    with pytest.raises(ValueError, match="the second is less"):
        Pair(2, 1)


def test_pickles_keep_the_fields() -> None:
    assert pickle.loads(pickle.dumps(Pair(1, 2))) == Pair(1, 2)


def test_a_class_keeps_the_methods_that_it_defines() -> None:
    @values.dataclass(frozen=True)
    class Named:
        """A name."""

        name: str

        def __repr__(self) -> str:
            return self.name

        def __hash__(self) -> int:
            return 7

    assert (repr(Named("a")), hash(Named("a")), Named("a") == Named("a")) == ("a", 7, True)


def test_a_class_without_fields_equals_its_like() -> None:
    @values.dataclass(frozen=True)
    class Nothing:
        """No field."""

    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert repr(Nothing()).endswith("Nothing()")


def test_a_field_that_is_no_parameter_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match=r"Hidden\.x: make this class with dataclasses\.dataclass instead"):

        @values.dataclass
        class Hidden:
            """A field that callers do not set."""

            x: int = field(init=False, default=1)
