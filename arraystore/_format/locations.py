"""Locations of virtual chunks: a columnar table of URLs, as shared prefixes and suffixes, with checksums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.columns import decode_column, encode_column
from arraystore._format.types import Int64s
from arraystore._format.wire import read_tuple
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError

MAX_LOCATIONS = 1 << 20


@dataclass(frozen=True, eq=False)
class Locations:
    """Table of the URLs of virtual chunks."""

    prefixes: tuple[str, ...]
    """Distinct prefixes of URLs."""
    prefix: Int64s
    """Index of the prefix of each location."""
    suffix_ends: Int64s
    """End of the suffix of each location in `suffixes`; it starts at the end of the preceding one."""
    suffixes: bytes
    """Concatenated suffixes in UTF-8."""
    etag_ends: Int64s
    etags: bytes
    """Ends and concatenated entity tags, in the same form; an empty one means none."""
    modified: Int64s
    """Latest allowed time of modification of each location, in microseconds since 1970; 0 for no limit."""
    distinct: bool = False
    """True if all locations are known to differ."""

    def __len__(self) -> int:
        return len(self.prefix)

    def url(self, i: int) -> str:
        """Return the URL of location `i`."""
        start = int(self.suffix_ends[i - 1]) if i else 0
        suffix = self.suffixes[start : int(self.suffix_ends[i])].decode()
        return self.prefixes[int(self.prefix[i])] + suffix

    def etag(self, i: int) -> str | None:
        """Return the expected entity tag of the object, None for any."""
        start = int(self.etag_ends[i - 1]) if i else 0
        return self.etags[start : int(self.etag_ends[i])].decode() or None

    def not_modified_after(self, i: int) -> int | None:
        """Return the latest allowed time of modification in microseconds since 1970, None for any."""
        return int(self.modified[i]) or None

    def select(self, keep: Int64s) -> Locations:
        """Return these locations, in this order."""
        if not len(keep):
            return NO_LOCATIONS
        if len(keep) == len(self) and bool((keep == np.arange(len(self))).all()):
            return self
        suffix_ends, suffixes = _select_strings(self.suffix_ends, self.suffixes, keep)
        etag_ends, etags = _select_strings(self.etag_ends, self.etags, keep)
        prefix, modified = self.prefix[keep], self.modified[keep]
        return Locations(self.prefixes, prefix, suffix_ends, suffixes, etag_ends, etags, modified, self.distinct)

    def plain_suffixes(self) -> list[str] | None:
        """Return the suffixes, None unless all are ASCII."""
        if not self.suffixes.isascii():
            return None
        text = self.suffixes.decode()
        return [text[start:stop] for start, stop in _spans(self.suffix_ends)]

    def first_equal(self) -> Int64s:
        """Return, for each location, the index of the first equal one."""
        count = len(self)
        if self.distinct or count < 2:
            return np.arange(count, dtype=np.int64)
        columns: list[Sequence[Any]] = [_strings(self.suffix_ends, self.suffixes)]
        if bool((self.prefix != self.prefix[0]).any()):  # one URL can be split into prefix and suffix in two ways
            before = [prefix.encode() for prefix in self.prefixes]
            columns[0] = [before[i] + suffix for i, suffix in zip(self.prefix.tolist(), columns[0], strict=True)]
        if self.etags:
            columns.append(_strings(self.etag_ends, self.etags))
        if self.modified.any():
            columns.append(self.modified.tolist())
        rows = list(zip(*columns, strict=True)) if len(columns) > 1 else columns[0]
        if len(set(rows)) == count:
            return np.arange(count, dtype=np.int64)
        first_row: dict[Any, int] = {}
        return np.fromiter((first_row.setdefault(row, i) for i, row in enumerate(rows)), np.int64, count)

    def to_wire(self) -> tuple[Any, ...]:
        """Encode as a msgpack value."""
        return (
            len(self),
            self.prefixes,
            encode_column(self.prefix),
            encode_column(np.diff(self.suffix_ends, prepend=np.int64(0))),
            self.suffixes,
            encode_column(np.diff(self.etag_ends, prepend=np.int64(0))),
            self.etags,
            encode_column(self.modified),
        )

    @classmethod
    def from_wire(cls, name: str, value: Any) -> Locations:
        """Decode the value of `to_wire`; raises `FormatError`."""
        count, prefixes, prefix, suffix_lengths, suffixes, etag_lengths, etags, modified = read_tuple(
            name, value, int, tuple, bytes, bytes, bytes, bytes, bytes, bytes
        )
        if not 0 < count <= MAX_LOCATIONS or not prefixes or not all(type(p) is str for p in prefixes):
            raise FormatError(
                name, f"the table of virtual locations must have 1 to {MAX_LOCATIONS} rows and string prefixes"
            )
        table = cls(
            prefixes,
            decode_column(f"{name}: prefixes", prefix, count, len(prefixes) - 1),
            np.cumsum(decode_column(f"{name}: suffixes", suffix_lengths, count, len(suffixes))),
            suffixes,
            np.cumsum(decode_column(f"{name}: etags", etag_lengths, count, len(etags))),
            etags,
            decode_column(f"{name}: times", modified, count),
        )
        if int(table.suffix_ends[-1]) != len(suffixes) or int(table.etag_ends[-1]) != len(etags):
            raise FormatError(name, "the lengths of virtual locations must add up to their size")
        for blob, ends in ((suffixes, table.suffix_ends), (etags, table.etag_ends)):
            _check_utf8(name, blob, ends)
        return table


def _check_utf8(name: str, blob: bytes, ends: Int64s) -> None:
    try:
        blob.decode()
    except UnicodeDecodeError:
        raise FormatError(name, "a virtual location must be UTF-8") from None
    inside = ends[ends < len(blob)]
    if inside.size and bool(((np.frombuffer(blob, dtype=np.uint8)[inside] & 0xC0) == 0x80).any()):
        raise FormatError(name, "a virtual location ends within a character")


def _strings(ends: Int64s, blob: bytes) -> list[bytes]:
    return [blob[start:stop] for start, stop in _spans(ends)]


def _spans(ends: Int64s) -> Iterator[tuple[int, int]]:
    bounds = ends.tolist()
    return zip([0, *bounds], bounds, strict=False)


def _select_strings(ends: Int64s, blob: bytes, keep: Int64s) -> tuple[Int64s, bytes]:
    first, last = int(keep[0]), int(keep[-1])
    if last - first + 1 == len(keep) and bool((keep[1:] > keep[:-1]).all()):  # consecutive: one slice
        start = int(ends[first - 1]) if first else 0
        return ends[first : last + 1] - start, blob[start : int(ends[last])]
    lengths = np.diff(ends, prepend=np.int64(0))
    starts = ends - lengths
    new_lengths = lengths[keep]
    new_ends: Int64s = np.cumsum(new_lengths)
    total = int(new_ends[-1]) if len(keep) else 0
    # positions in the blob of all bytes of the result
    places = np.repeat(starts[keep] - (new_ends - new_lengths), new_lengths) + np.arange(total)
    return new_ends, np.frombuffer(blob, dtype=np.uint8)[places].tobytes()


def _empty() -> Int64s:
    return np.empty(0, dtype=np.int64)


NO_LOCATIONS = Locations((), _empty(), _empty(), b"", _empty(), b"", _empty())
"""Empty table."""


def common_directory(urls: Sequence[str]) -> str:
    """Return the longest common prefix that ends with a slash, empty if there is none."""
    if not urls:
        return ""
    first, last = min(urls), max(urls)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[: first.rfind("/", 0, length) + 1]


def locations_from_urls(
    urls: Sequence[str],
    etags: Sequence[str | None] | None = None,
    modified: npt.ArrayLike | None = None,
    prefix: str | None = None,
    distinct: bool = False,
) -> Locations:
    """Build a table with one prefix, by default the common directory of the URLs.

    `etags` and `modified` (microseconds since 1970, 0 for no limit) are the checksums; `distinct` promises that no
    two locations are equal.
    """
    if not urls:
        return NO_LOCATIONS
    if prefix is None:
        prefix = common_directory(urls)
    suffix_ends, suffixes = _joined_suffixes(urls, len(prefix))
    count = len(urls)
    etag_ends, tags = np.zeros(count, dtype=np.int64), b""
    if etags is not None:
        etag_ends, tags = _joined_suffixes([tag or "" for tag in etags], 0)
    times = np.zeros(count, dtype=np.int64) if modified is None else np.asarray(modified, dtype=np.int64)
    prefixes = np.zeros(count, dtype=np.int64)
    return Locations((prefix,), prefixes, suffix_ends, suffixes, etag_ends, tags, times, distinct)


_BATCH = 1 << 16


def _joined_suffixes(texts: Sequence[str], skip: int) -> tuple[Int64s, bytes]:
    """Return the strings without their first `skip` characters as concatenated UTF-8, and their ends.

    Strings are joined, encoded and split in batches, so that there is no object for each of a million.
    """
    lengths = np.empty(len(texts), dtype=np.int64)
    blobs: list[bytes] = []
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        joined = "\n".join(batch)
        if joined.count("\n") != len(batch) - 1:  # a line break within a string
            parts = [text[skip:].encode() for text in batch]
            lengths[start : start + len(batch)] = [len(part) for part in parts]
            blobs.append(b"".join(parts))
            continue
        if skip:
            joined = ("\n" + joined).replace("\n" + batch[0][:skip], "\n")[1:]
        encoded = joined.encode()
        breaks = np.flatnonzero(np.frombuffer(encoded, dtype=np.uint8) == ord("\n"))
        bounds = np.concatenate([[-1], breaks, [len(encoded)]])
        lengths[start : start + len(batch)] = np.diff(bounds) - 1
        blobs.append(encoded.replace(b"\n", b""))
    return np.cumsum(lengths), b"".join(blobs)


def concat_locations(tables: Sequence[Locations]) -> Locations:
    """Concatenate tables of locations."""
    tables = [table for table in tables if len(table)]
    if len(tables) < 2:
        return tables[0] if tables else NO_LOCATIONS
    numbers: dict[str, int] = {}
    prefix: list[Int64s] = []
    for table in tables:
        renumbered = np.array([numbers.setdefault(p, len(numbers)) for p in table.prefixes], dtype=np.int64)
        prefix.append(renumbered[table.prefix])
    return Locations(
        tuple(numbers),
        np.concatenate(prefix),
        np.cumsum(np.concatenate([np.diff(t.suffix_ends, prepend=np.int64(0)) for t in tables])),
        b"".join(t.suffixes for t in tables),
        np.cumsum(np.concatenate([np.diff(t.etag_ends, prepend=np.int64(0)) for t in tables])),
        b"".join(t.etags for t in tables),
        np.concatenate([t.modified for t in tables]),
    )
