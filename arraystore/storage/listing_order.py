"""Ordering of listings of object stores by code points of whole keys.

Most stores list that way.  Those that keep directories inside (SeaweedFS, hierarchical namespaces of Azure) list part
by part: all of ``a/…`` before ``a-b``, although ``-`` is less than ``/``.  This module supports both orders.
"""

from __future__ import annotations

from collections.abc import Iterator

from arraystore.storage.protocol import ObjectInfo

__all__ = ["Reorder", "beyond", "safe_offset"]


def safe_offset(prefix: str, start_after: str) -> str:
    """Return a key to start a listing of the prefix's directory after; empty to start at its beginning.

    In either order no key with the prefix that is greater than `start_after` precedes it, and most other keys do.
    """
    directory = prefix[: prefix.rfind("/") + 1]
    wanted = max(start_after, prefix)
    if not wanted.startswith(directory):
        return ""
    for position in range(len(directory), len(wanted)):
        # The two orders differ where a name continues with a character below the slash.
        if wanted[position] < "/":
            wanted = wanted[:position]
            break
    return _just_before(wanted.rstrip("/"), len(directory))


def _just_before(key: str, fixed: int) -> str:
    """Return a key just below `key` that is not one of its directories; empty if there is no simple one."""
    if len(key) <= fixed:
        return ""
    if key[-1] == "0":
        return f"{key[:-1]}.~"  # the slash sorts in between
    before = chr(ord(key[-1]) - 1)
    return f"{key[:-1]}{before}~" if "0" <= before <= "}" and before != "\\" else ""


def beyond(key: str, prefix: str) -> bool:
    """Return whether neither `key` nor any key listed after it starts with `prefix`."""
    return key > prefix and not key.startswith(prefix)


class Reorder:
    """Buffer that takes objects in the order of a backend and returns them in order of their keys.

    It holds back only objects that a later one could precede: the content of a directory ``a`` while names that start
    with ``a`` arrive.  `directory` is the listed directory: empty, or ending with a slash.
    """

    def __init__(self, directory: str) -> None:
        self._skip = len(directory)
        self._held: list[ObjectInfo] = []
        self._held_name = ""
        self._last = ""

    def add(self, info: ObjectInfo) -> Iterator[ObjectInfo]:
        """Add the next object and yield those that are complete; raises `ValueError` in neither order."""
        name, slash, _ = info.key[self._skip :].partition("/")
        if self._held and not name.startswith(self._held_name):
            yield from self.rest()
        if self._held or slash:
            self._held_name = self._held_name if self._held else name
            self._held.append(info)
        else:
            yield self._in_order(info)

    def rest(self) -> Iterator[ObjectInfo]:
        """Yield the objects that are held back."""
        held = sorted(self._held, key=lambda info: info.key)
        self._held = []
        for info in held:
            yield self._in_order(info)

    def _in_order(self, info: ObjectInfo) -> ObjectInfo:
        if info.key <= self._last:
            raise ValueError(f"{info.key!r} came after {self._last!r}")
        self._last = info.key
        return info
