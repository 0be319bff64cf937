"""Where virtual chunks are: a columnar table of URLs, each a shared prefix and a suffix of its own, with checksums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.columns import decode_column, encode_column
from arraystore._format.envelope import read_tuple
from arraystore._format.types import Int64s
from arraystore.errors import FormatError

__all__ = ["NO_LOCATIONS", "Locations", "common_directory", "concat_locations", "locations_from_urls"]

MAX_LOCATIONS = 1 << 20


@dataclass(frozen=True, eq=False)
class Locations:
    """URLs of virtual chunks.

    Parameters
    ----------
    prefixes
        Text that URLs start with, each once.
    prefix
        Per location, the index of its prefix.
    suffix_ends
        Per location, where its suffix ends in `suffixes`; it starts where the one before ends.
    suffixes
        All suffixes, UTF-8, one after the other.
    etag_ends, etags
        The same for entity tags; an empty one is none.
    modified
        Per location, the latest time of modification allowed, in microseconds since 1970; 0 is no limit.
    distinct
        Whether all locations are known to differ, so that nobody has to look for equal ones.
    """

    prefixes: tuple[str, ...]
    prefix: Int64s
    suffix_ends: Int64s
    suffixes: bytes
    etag_ends: Int64s
    etags: bytes
    modified: Int64s
    distinct: bool = False

    def __len__(self) -> int:
        return len(self.prefix)

    def url(self, i: int) -> str:
        """Return the URL of location `i`."""
        start = int(self.suffix_ends[i - 1]) if i else 0
        suffix = self.suffixes[start : int(self.suffix_ends[i])].decode()
        return self.prefixes[int(self.prefix[i])] + suffix

    def etag(self, i: int) -> str | None:
        """Return the entity tag that the object must have, None for any."""
        start = int(self.etag_ends[i - 1]) if i else 0
        return self.etags[start : int(self.etag_ends[i])].decode() or None

    def not_modified_after(self, i: int) -> int | None:
        """Return the latest time of modification in microseconds since 1970, None for any."""
        return int(self.modified[i]) or None

    def select(self, keep: Int64s) -> Locations:
        """Return only these locations, in the order given."""
        if not len(keep):
            return NO_LOCATIONS
        if len(keep) == len(self) and bool((keep == np.arange(len(self))).all()):
            return self
        suffix_ends, suffixes = _select_texts(self.suffix_ends, self.suffixes, keep)
        etag_ends, etags = _select_texts(self.etag_ends, self.etags, keep)
        prefix, modified = self.prefix[keep], self.modified[keep]
        return Locations(self.prefixes, prefix, suffix_ends, suffixes, etag_ends, etags, modified, self.distinct)

    def plain_suffixes(self) -> list[str] | None:
        """Return what follows the prefixes; None where that is not just ASCII."""
        if not self.suffixes.isascii():
            return None
        text = self.suffixes.decode()
        return [text[start:stop] for start, stop in _spans(self.suffix_ends)]

    def first_equal(self) -> Int64s:
        """Return, for each location, the first one of the same URL and checksum."""
        count = len(self)
        if self.distinct or count < 2:
            return np.arange(count, dtype=np.int64)
        columns: list[Sequence[Any]] = [_texts(self.suffix_ends, self.suffixes)]
        if bool((self.prefix != self.prefix[0]).any()):  # one URL may be cut into prefix and suffix in two ways
            before = [prefix.encode() for prefix in self.prefixes]
            columns[0] = [before[i] + suffix for i, suffix in zip(self.prefix.tolist(), columns[0], strict=True)]
        if self.etags:
            columns.append(_texts(self.etag_ends, self.etags))
        if self.modified.any():
            columns.append(self.modified.tolist())
        rows = list(zip(*columns, strict=True)) if len(columns) > 1 else columns[0]
        if len(set(rows)) == count:
            return np.arange(count, dtype=np.int64)
        known: dict[Any, int] = {}
        return np.fromiter((known.setdefault(row, i) for i, row in enumerate(rows)), np.int64, count)

    def to_wire(self) -> tuple[Any, ...]:
        """Return what goes into a body."""
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
        """Read what `to_wire` gave; raises `FormatError`."""
        count, prefixes, prefix, suffix_lengths, suffixes, etag_lengths, etags, modified = read_tuple(
            name, value, int, tuple, bytes, bytes, bytes, bytes, bytes, bytes
        )
        if not 0 < count <= MAX_LOCATIONS or not prefixes or not all(type(p) is str for p in prefixes):
            raise FormatError(name, "the table of virtual locations has a wrong size")
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
            raise FormatError(name, "the texts of virtual locations do not add up")
        for blob, ends in ((suffixes, table.suffix_ends), (etags, table.etag_ends)):
            _check_utf8(name, blob, ends)
        return table


def _check_utf8(name: str, blob: bytes, ends: Int64s) -> None:
    try:
        blob.decode()
    except UnicodeDecodeError:
        raise FormatError(name, "a virtual location is not UTF-8") from None
    inside = ends[ends < len(blob)]
    if inside.size and bool(((np.frombuffer(blob, dtype=np.uint8)[inside] & 0xC0) == 0x80).any()):
        raise FormatError(name, "a virtual location ends within a character")


def _texts(ends: Int64s, blob: bytes) -> list[bytes]:
    return [blob[start:stop] for start, stop in _spans(ends)]


def _spans(ends: Int64s) -> Iterator[tuple[int, int]]:
    bounds = ends.tolist()
    return zip([0, *bounds], bounds, strict=False)


def _select_texts(ends: Int64s, blob: bytes, keep: Int64s) -> tuple[Int64s, bytes]:
    first, last = int(keep[0]), int(keep[-1])
    if last - first + 1 == len(keep) and bool((keep[1:] > keep[:-1]).all()):  # neighbours in order: one slice
        start = int(ends[first - 1]) if first else 0
        return ends[first : last + 1] - start, blob[start : int(ends[last])]
    lengths = np.diff(ends, prepend=np.int64(0))
    starts = ends - lengths
    new_lengths = lengths[keep]
    new_ends: Int64s = np.cumsum(new_lengths)
    total = int(new_ends[-1]) if len(keep) else 0
    # gather all bytes at once: for each byte of the result, its place in the blob
    places = np.repeat(starts[keep] - (new_ends - new_lengths), new_lengths) + np.arange(total)
    return new_ends, np.frombuffer(blob, dtype=np.uint8)[places].tobytes()


def _empty() -> Int64s:
    return np.empty(0, dtype=np.int64)


NO_LOCATIONS = Locations((), _empty(), _empty(), b"", _empty(), b"", _empty())
"""The empty table."""


def common_directory(urls: Sequence[str]) -> str:
    """Return what all texts start with, up to a slash; empty if there is no such thing."""
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
    """Build a table with one prefix.

    Parameters
    ----------
    urls
        One a location.
    etags
        Entity tag of each, None for none.
    modified
        Latest time of modification of each, microseconds since 1970, 0 for none.
    prefix
        What all URLs start with, as `common_directory` finds it.
    distinct
        Whether no two of them are equal.
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
    """Return all texts without their first `skip` characters as UTF-8, and where each of them ends.

    Joined, encoded and cut a batch at a time, so that there is no object for each of a million texts.
    """
    lengths = np.empty(len(texts), dtype=np.int64)
    blobs: list[bytes] = []
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        joined = "\n".join(batch)
        if joined.count("\n") != len(batch) - 1:  # a line break within a text
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
    """Return all locations of several tables, in order."""
    tables = [table for table in tables if len(table)]
    if len(tables) < 2:
        return tables[0] if tables else NO_LOCATIONS
    known: dict[str, int] = {}
    prefix: list[Int64s] = []
    for table in tables:
        renumbered = np.array([known.setdefault(p, len(known)) for p in table.prefixes], dtype=np.int64)
        prefix.append(renumbered[table.prefix])
    return Locations(
        tuple(known),
        np.concatenate(prefix),
        np.cumsum(np.concatenate([np.diff(t.suffix_ends, prepend=np.int64(0)) for t in tables])),
        b"".join(t.suffixes for t in tables),
        np.cumsum(np.concatenate([np.diff(t.etag_ends, prepend=np.int64(0)) for t in tables])),
        b"".join(t.etags for t in tables),
        np.concatenate([t.modified for t in tables]),
    )
