"""Expected length of a NetCDF-3 file, from its header.

The NetCDF library silently reads zeros where such a file is truncated; an interrupted copy must not enter a repository
as data.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from typing import BinaryIO

from arraystore.ingest.errors import SourceFormatError

_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
_STREAMING = {0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}
"""Record counts that mean that the writer did not know the count."""
_LONGEST_ITEM = 2**31


@dataclass(frozen=True, slots=True)
class _VariableExtent:
    """Location of a variable's values, or of those in the first record for a record variable."""

    begin: int
    nbytes: int
    is_record: bool


class _Header:
    """Reads the parts of a header one after the other."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        version = self._take(4)[3]
        self._count_bytes = 8 if version == 5 else 4
        self._offset_bytes = 4 if version == 1 else 8

    def _take(self, length: int) -> bytes:
        if length > _LONGEST_ITEM:
            raise ValueError("a length in the header exceeds 2 GiB")
        data = self._file.read(length)
        if len(data) != length:
            raise ValueError("it ends within its header")
        return data

    def _integer(self, width: int) -> int:
        return int(struct.unpack(">I" if width == 4 else ">Q", self._take(width))[0])

    def count(self) -> int:
        return self._integer(self._count_bytes)

    def _padded(self, length: int) -> None:
        self._take(length + -length % 4)

    def _list_length(self) -> int:
        self._integer(4)  # the tag: dimensions, attributes or variables, or absent
        return self.count()

    def _skip_attributes(self) -> None:
        for _ in range(self._list_length()):
            self._padded(self.count())
            kind = self._integer(4)
            self._padded(self.count() * _TYPE_BYTES[kind])

    def dimensions(self) -> list[int]:
        lengths: list[int] = []
        for _ in range(self._list_length()):
            self._padded(self.count())
            lengths.append(self.count())
        return lengths

    def variables(self, dimensions: list[int]) -> list[_VariableExtent]:
        self._skip_attributes()
        return [self._variable(dimensions) for _ in range(self._list_length())]

    def _variable(self, dimensions: list[int]) -> _VariableExtent:
        self._padded(self.count())
        shape = [dimensions[self.count()] for _ in range(self.count())]
        self._skip_attributes()
        kind = self._integer(4)
        self.count()  # the size as the writer saw it, which is wrong for large variables
        begin = self._integer(self._offset_bytes)
        is_record = bool(shape) and shape[0] == 0
        return _VariableExtent(begin, math.prod(shape[1:] if is_record else shape) * _TYPE_BYTES[kind], is_record)


def _needed_bytes(file: BinaryIO) -> int:
    header = _Header(file)
    records = header.count()
    placed = header.variables(header.dimensions())
    in_records = [variable for variable in placed if variable.is_record]
    # A single record variable is stored without padding between records.
    step = in_records[0].nbytes if len(in_records) == 1 else sum(v.nbytes + -v.nbytes % 4 for v in in_records)
    last = 0 if records in _STREAMING else max(0, records - 1)
    ends = [v.begin + v.nbytes + (last * step if v.is_record else 0) for v in placed if not v.is_record or records]
    return max(ends, default=0)


def check_classic_length(path: str) -> None:
    """Check that a NetCDF-3 file is as long as its header says."""
    try:
        with open(path, "rb") as file:
            needed = _needed_bytes(file)
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise SourceFormatError(f"source {path!r} looks like NetCDF-3 but cannot be read: {error}") from error
    actual = os.path.getsize(path)
    if actual < needed:
        raise SourceFormatError(
            f"source {path!r} is truncated: its header declares {needed} bytes, but it has {actual}; copy it again"
        )
