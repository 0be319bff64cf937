"""Directory of cached objects and ranges of objects, shared by the processes of a machine.

An entry is a file: a checksum, then the bytes.  It is written under another name and renamed, so that no process sees a
part of one, and verified on each read: one that is damaged is removed, and counts as missing.  No locks are needed.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
import uuid
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from arraystore.storage.protocol import BytesLike

__all__ = ["DiskCache"]

_logger = logging.getLogger("arraystore")

_HEADER = 4
_TEMPORARY = ".new-"
_ABANDONED = 3600.0
"""Seconds after which a file under a temporary name has no writer any more."""

_FILL = 0.9
"""Part of the limit that is left after an eviction, so that not every write has to make room."""

_SCAN_EVERY = 16
"""Part of the limit, as its divisor, that a process writes between two looks at what others have written."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file of the cache."""

    used: float
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counts of a cache."""

    entries: int = 0
    bytes: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0


class DiskCache:
    """Objects and ranges of objects in files below a directory, of at most `limit` bytes in all."""

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory = directory
        self.limit = limit
        self.counts = _Counts()
        """As far as this process knows: others write and evict as well."""
        self._unscanned = -1  # bytes written here since the last scan; less than 0 before the first
        self._failed = False

    def read(self, name: str, start: int, stop: int | None) -> bytes | None:
        """Return a range of an object, or the whole of it where `stop` is None; None if it is not there."""
        for first, last, path in self._candidates(name, start, stop):
            data = self._load(path, _seed(name, first, last))
            if data is not None and (stop is None or stop - first <= len(data)):
                self.counts = replace(self.counts, hits=self.counts.hits + 1)
                return data if stop is None else data[start - first : stop - first]
        self.counts = replace(self.counts, misses=self.counts.misses + 1)
        return None

    def _candidates(self, name: str, start: int, stop: int | None) -> list[tuple[int, int, Path]]:
        """Return the files that hold a range, with their ranges; an end of -1 is that of the object."""
        place = self._place(name)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            spans = [(*span, place / file) for file in os.listdir(place) if (span := _span(file)) is not None]
            if stop is None:
                return [each for each in spans if each[1] < 0]
            return [each for each in spans if each[1] < 0 or (each[0] <= start and stop <= each[1])]
        return []

    def _load(self, path: Path, seed: int) -> bytes | None:
        try:
            framed = path.read_bytes()
        except OSError:  # evicted meanwhile, or not to be read: it is fetched instead
            return None
        data = framed[_HEADER:]
        if len(framed) < _HEADER or int.from_bytes(framed[:_HEADER], "little") != zlib.crc32(data, seed):
            _logger.warning("%s is damaged, and removed from the cache", path)
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):  # evicted meanwhile
            os.utime(path)
        return data

    def write(self, name: str, start: int, stop: int | None, data: BytesLike) -> None:
        """Keep bytes of an object; where that fails, it is logged once, and nothing is kept."""
        size = _HEADER + len(data)
        if size > self.limit // 2:
            return
        last = -1 if stop is None else stop
        place = self._place(name)
        temporary = place / f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            place.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(zlib.crc32(data, _seed(name, start, last)).to_bytes(_HEADER, "little"))
                file.write(data)
            temporary.replace(place / f"{start}-{last}")
        except OSError as error:
            self._tell(error)
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            return
        self.counts = replace(self.counts, entries=self.counts.entries + 1, bytes=self.counts.bytes + size)
        self._make_room(size)

    def _tell(self, error: OSError) -> None:
        if not self._failed:
            self._failed = True
            _logger.warning("nothing can be written to the cache in %s: %s", self.directory, error)

    def forget(self, name: str) -> None:
        """Remove what is kept of an object."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for file in os.listdir(self._place(name)):
                (self._place(name) / file).unlink(missing_ok=True)

    # -- room -----------------------------------------------------------------------------------------------

    def _make_room(self, written: int) -> None:
        """Evict what was used least recently, if there is too much, others' entries included."""
        self._unscanned = self._unscanned + written if self._unscanned >= 0 else self.limit
        if self.counts.bytes <= self.limit and self._unscanned < self.limit // _SCAN_EVERY:
            return
        entries = self._scan()
        total, evicted = sum(entry.size for entry in entries), 0
        if total > self.limit:
            for entry in sorted(entries, key=lambda each: each.used):
                if total <= _FILL * self.limit:
                    break
                Path(entry.path).unlink(missing_ok=True)
                total, evicted = total - entry.size, evicted + 1
        self._unscanned = 0
        evictions = self.counts.evictions + evicted
        self.counts = replace(self.counts, entries=len(entries) - evicted, bytes=total, evictions=evictions)

    def _scan(self) -> list[_Entry]:
        """Return all entries, and remove what writers that died have left."""
        found: list[_Entry] = []
        for folder, _, files in os.walk(self.directory):
            for file in files:
                path = os.path.join(folder, file)
                try:
                    status = os.stat(path)
                except FileNotFoundError:
                    continue
                if _span(file) is not None:
                    found.append(_Entry(status.st_mtime, path, status.st_size))
                elif file.startswith(_TEMPORARY) and time.time() - status.st_mtime > _ABANDONED:
                    Path(path).unlink(missing_ok=True)
        return found

    def _place(self, name: str) -> Path:
        digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
        return self.directory / digest[:2] / digest


def _span(file: str) -> tuple[int, int] | None:
    """Return the range in the name of a file; None for one of another kind."""
    first, _, last = file.partition("-")
    return (int(first), int(last)) if first.isdecimal() and last.removeprefix("-").isdecimal() else None


def _seed(name: str, first: int, last: int) -> int:
    """Return the start of a checksum, so that no entry is taken for another."""
    return zlib.crc32(f"{name}\0{first}-{last}".encode())
