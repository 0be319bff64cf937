"""Dataclasses that are stored as the list of their fields, and readers of untrusted values.

The annotations of a `Wire` class are the description of its format: from them follow how it is encoded, decoded and
checked.  ``Annotated[type, reader, writer]`` tells what the type does not.  A *reader* is a type, a tuple of types,
or a function of a name for errors and a value, which checks the value and returns it decoded; a *writer*, which most
fields do not need, is a function that returns what `pack_body` encodes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NewType, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from arraystore._format.ids import ID_BYTES, split_ids
from arraystore.errors import FormatError

Read = Callable[[str, Any], Any]
Reader = type | tuple[type, ...] | Read

LATEST_TIME = 253_402_300_799_999_999
"""Last microsecond of the year 9999, the end of Python's calendar."""


def read_tuple(name: str, value: Any, *readers: Reader) -> tuple[Any, ...]:
    """Check that a value is a tuple of exactly these items, and decode them; raises `FormatError`."""
    if type(value) is not tuple or len(value) != len(readers):
        raise FormatError(name, f"expected a list of {len(readers)} values")
    return tuple(
        [
            item if type(item) is reader else _read(name, item, reader)
            for item, reader in zip(value, readers, strict=True)
        ]
    )


def _read(name: str, value: Any, reader: Any) -> Any:
    kind = type(reader)
    if kind is not type and kind is not tuple:
        return reader(name, value)
    allowed = reader if kind is tuple else (reader,)
    if type(value) not in allowed:
        raise FormatError(name, f"expected {[kind.__name__ for kind in allowed]}, got {type(value).__name__}")
    return value


def optional(reader: Reader) -> Read:
    """Return the reader of a value that may be None."""
    return lambda name, value: None if value is None else _read(name, value, reader)


def tuple_of(reader: Reader) -> Read:
    """Return the reader of any number of values."""
    return lambda name, value: tuple([_read(name, item, reader) for item in _read(name, value, tuple)])


def read_id(name: str, value: Any) -> bytes:
    """Check that a value is an id; raises `FormatError`."""
    if type(value) is not bytes or len(value) != ID_BYTES:
        raise FormatError(name, "expected an id")
    return value


def read_ids(name: str, value: Any) -> Any:
    """Split concatenated ids; raises `FormatError`."""
    if type(value) is not bytes or len(value) % ID_BYTES:
        raise FormatError(name, "expected concatenated ids, and they are truncated")
    return tuple(split_ids(value, bytes))


def read_number(name: str, value: Any) -> int:
    """Check the number of a record or of an attachment; raises `FormatError`."""
    if type(value) is not int or value < 0:
        raise FormatError(name, "a number of a record or attachment must be an integer >= 0")
    return value


def read_time(name: str, value: Any) -> int:
    """Check a time in microseconds since 1970; raises `FormatError`."""
    if type(value) is not int or not 0 <= value <= LATEST_TIME:
        raise FormatError(name, f"time {value!r:.40} must be between the years 1970 and 9999")
    return value


def read_isolation(name: str, value: Any) -> int:
    """Check an isolation level; raises `FormatError`."""
    if type(value) is not int or value not in (0, 1):
        raise FormatError(name, f"unknown isolation {value!r:.40}")
    return value


Id = Annotated[bytes, read_id]
Number = Annotated[int, read_number]
Time = Annotated[int, read_time]


class Wire:
    """Dataclass that is stored as the list of its fields, in order."""

    __slots__ = ()

    def to_wire(self) -> tuple[Any, ...]:
        """Return the fields, which `pack_body` encodes."""
        values = [(getattr(self, name), write) for name, _, write in _fields(type(self))]
        return tuple([value if write is None else write(value) for value, write in values])

    @classmethod
    def from_wire(cls, name: str, value: Any) -> Self:
        """Decode the list of the fields; raises `FormatError`."""
        item = cls(*read_tuple(name, value, *[reader for _, reader, _ in _fields(cls)]))
        item.check(name)
        return item

    def check(self, name: str) -> None:
        """Check the rules that concern several fields; raises `FormatError`."""


WireT = TypeVar("WireT", bound=Wire)


def rows_to_wire(rows: Mapping[str, Wire]) -> tuple[Any, ...]:
    """Return a table of named rows, sorted by name: each is the list of the name and the fields."""
    return tuple([(key, *row.to_wire()) for key, row in sorted(rows.items())])


def rows_of(cls: type[WireT], read_key: Reader) -> Read:
    """Return the reader of the value of `rows_to_wire`."""

    def read_row(name: str, value: Any) -> tuple[Any, WireT]:
        row = _read(name, value, tuple)
        return _read(name, row[0] if row else None, read_key), cls.from_wire(name, row[1:])

    read_rows = tuple_of(read_row)
    return lambda name, value: dict(read_rows(name, value))


def _describe(cls: Any) -> tuple[tuple[str, Reader, Callable[[Any], Any] | None], ...]:
    hints = get_type_hints(cls, include_extras=True)
    named = [(field.name, hints[field.name]) for field in fields(cls)]
    return tuple([(name, _reader(hint), (*getattr(hint, "__metadata__", ()), None, None)[1]) for name, hint in named])


_fields: Callable[[Any], tuple[tuple[str, Reader, Callable[[Any], Any] | None], ...]] = cache(_describe)
"""Name, reader and writer of each field of a class."""


def _reader(hint: Any) -> Reader:
    """Return the reader of the values that an annotation allows."""
    origin, arguments = get_origin(hint), get_args(hint)
    reader: Reader
    if origin is Annotated:
        reader = hint.__metadata__[0]
    elif origin is Union or origin is UnionType:
        readers = [_reader(argument) for argument in arguments]
        if all(isinstance(each, type) for each in readers):
            return tuple([each for each in readers if isinstance(each, type)])
        (reader,) = (each for each in readers if each is not NoneType)
        reader = optional(reader)
    elif origin is tuple:
        reader = tuple_of(_reader(arguments[0]))
    elif isinstance(hint, NewType):  # of an id
        reader = read_id
    elif issubclass(hint, Wire):
        reader = hint.from_wire
    elif issubclass(hint, enum.Enum):
        reader = enum_reader(hint)
    else:
        reader = hint
    return reader


def enum_reader(members: type[enum.Enum]) -> Read:
    """Return the reader of a member of an enumeration."""

    def read(name: str, value: Any) -> enum.Enum:
        try:
            return members(_read(name, value, int))
        except ValueError as error:
            raise FormatError(name, str(error)) from None

    return read
