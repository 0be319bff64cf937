"""Objects that all simulated processes share.

Every method is one atomic effect, whose time the network decides.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence

from arraystore.errors import ObjectNotFoundError, StorageError
from arraystore.storage.keys import check_key
from arraystore.storage.protocol import ByteRange, ObjectInfo

__all__ = ["HINTS", "PAGE", "Bucket"]

PAGE = 1000
"""Objects on one page of a listing."""

HINTS = "hints/"
"""Keys that are overwritten, and of which old values may be read."""


class Bucket:
    """Objects under keys.

    Parameters
    ----------
    location
        Shown in messages.
    clock
        Tells when objects are written, in seconds.

    Attributes
    ----------
    objects
        The bytes of each object.
    gone
        The bytes of deleted objects, for checks.
    """

    def __init__(self, location: str = "simulated://", clock: Callable[[], float] = float) -> None:
        self.location = location
        self._clock = clock
        self._written: dict[str, float] = {}
        self.objects: dict[str, bytes] = {}
        self.gone: dict[str, bytes] = {}
        # Keys in order, by what comes before their last slash: new ones mostly come last there.
        self._folders: dict[str, list[str]] = {}
        self._old: dict[str, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self.objects)

    def get(self, key: str) -> bytes:
        """Return an object."""
        data = self.objects.get(key)
        if data is None:
            raise ObjectNotFoundError(key, self.location)
        return data

    def get_stale(self, key: str, rng: random.Random) -> bytes:
        """Return an earlier value of an object that changes."""
        old = self._old.get(key, [])
        choice = rng.randrange(len(old) + 1)
        if choice == len(old):
            raise ObjectNotFoundError(key, self.location)
        return old[choice]

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Return parts of an object."""
        data = self.get(key)
        for start, stop in ranges:
            if stop > len(data):
                raise StorageError(
                    f"{self.location}: bytes {start}..{stop} of {key!r} were asked for, but the object has "
                    f"{len(data)} bytes"
                )
        return [data[start:stop] for start, stop in ranges]

    def put(self, key: str, data: bytes) -> str:
        """Write an object; returns ``written`` or ``overwritten``."""
        old = self.objects.get(key)
        if old is None:
            check_key(key)
            self._add(key)
        elif key.startswith(HINTS):
            self._old.setdefault(key, []).append(old)
        self.objects[key] = data
        self._written[key] = self._clock()
        return "written" if old is None else "overwritten"

    def put_if_absent(self, key: str, data: bytes) -> str:
        """Write an object unless there is one: ``written``, ``same`` where what is there equals it, or ``exists``."""
        old = self.objects.get(key)
        if old is not None:
            return "same" if old == data else "exists"
        check_key(key)
        self._add(key)
        self.objects[key] = data
        self._written[key] = self._clock()
        return "written"

    def info(self, key: str) -> ObjectInfo:
        """Return the state of an object; the entity tag is the first half of the SHA-256 of its bytes, as hex."""
        data = self.get(key)
        return ObjectInfo(key, len(data), self._written[key], hashlib.sha256(data).hexdigest()[:32])

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, if they are there."""
        for key in keys:
            data = self.objects.pop(key, None)
            if data is not None:
                self.gone[key] = data
                folder = self._folders[_folder(key)]
                del folder[bisect_left(folder, key)]

    def _add(self, key: str) -> None:
        folder = self._folders.setdefault(_folder(key), [])
        if folder and key < folder[-1]:
            insort(folder, key)
        else:
            folder.append(key)

    def keys(self, prefix: str = "", start_after: str = "", most: int | None = None) -> list[str]:
        """Return keys in order: those with a prefix, after another key."""
        found: list[str] = []
        for folder, keys in self._folders.items():
            if folder.startswith(prefix) or prefix.startswith(folder):
                first = max(bisect_left(keys, prefix), bisect_right(keys, start_after))
                last = len(keys) if folder.startswith(prefix) else bisect_left(keys, prefix + chr(0x10FFFF))
                found += keys[first : last if most is None else min(last, first + most)]
        found.sort()
        return found if most is None else found[:most]

    def list_late(self, prefix: str, start_after: str, lag: float) -> list[ObjectInfo]:
        """Return one page of a listing that misses what was written within so many seconds."""
        newest = self._clock() - lag
        keys = self.keys(prefix, start_after)
        return [self._info(key) for key in keys if self._written[key] <= newest][:PAGE]

    def list(self, prefix: str, start_after: str) -> list[ObjectInfo]:
        """Return one page of a listing."""
        return [self._info(key) for key in self.keys(prefix, start_after, PAGE)]

    def _info(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, len(self.objects[key]), self._written[key])


def _folder(key: str) -> str:
    return key[: key.rfind("/") + 1]
