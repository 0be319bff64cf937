"""Bringing the listings of object stores into one order: ascending code points of whole keys.

Most stores list that way.  Those that keep directories inside (SeaweedFS, hierarchical namespaces of Azure) list part
by part: all of ``a/…`` before ``a-b``, although ``-`` is less than ``/``.  What is here works with both.
"""

from __future__ import annotations

from collections.abc import Iterator

from arraystore.storage.protocol import ObjectInfo

__all__ = ["Reorder", "beyond", "safe_offset"]


def safe_offset(prefix: str, start_after: str) -> str:
    """Return a key to start after in a listing of the prefix's directory; empty to start at its beginning.

    Nothing that starts with `prefix` and is greater than `start_after` comes before it, in either order; of the rest,
    most does.
    """
    directory = prefix[: prefix.rfind("/") + 1]
    wanted = max(start_after, prefix)
    if not wanted.startswith(directory):
        return ""
    for position in range(len(directory), len(wanted)):
        # Where a name goes on with less than a slash, the two orders part.
        if wanted[position] < "/":
            wanted = wanted[:position]
            break
    return _just_before(wanted.rstrip("/"), len(directory))


def _just_before(key: str, fixed: int) -> str:
    """A key a little less than `key`, and not a directory that it is in; empty if there is no simple one."""
    if len(key) <= fixed:
        return ""
    if key[-1] == "0":
        return f"{key[:-1]}.~"  # the slash comes between
    before = chr(ord(key[-1]) - 1)
    return f"{key[:-1]}{before}~" if "0" <= before <= "}" and before != "\\" else ""


def beyond(key: str, prefix: str) -> bool:
    """Whether neither `key` nor anything that is listed after it starts with `prefix`."""
    return key > prefix and not key.startswith(prefix)


class Reorder:
    """Takes objects as they are listed and gives them back in order of their keys.

    Held back is only what something that is still to come could precede: the content of a directory ``a`` as long as
    names that start with ``a`` come in.

    Parameters
    ----------
    directory
        What is listed: empty, or ending at a slash.
    """

    def __init__(self, directory: str) -> None:
        self._skip = len(directory)
        self._held: list[ObjectInfo] = []
        self._held_name = ""
        self._last = ""

    def add(self, info: ObjectInfo) -> Iterator[ObjectInfo]:
        """Take the next object; give back those whose turn it is.

        Raises
        ------
        ValueError
            If the listing is in neither order.
        """
        name, slash, _ = info.key[self._skip :].partition("/")
        if self._held and not name.startswith(self._held_name):
            yield from self.rest()
        if self._held or slash:
            self._held_name = self._held_name if self._held else name
            self._held.append(info)
        else:
            yield self._in_order(info)

    def rest(self) -> Iterator[ObjectInfo]:
        """Give back what is held."""
        held = sorted(self._held, key=lambda info: info.key)
        self._held = []
        for info in held:
            yield self._in_order(info)

    def _in_order(self, info: ObjectInfo) -> ObjectInfo:
        if info.key <= self._last:
            raise ValueError(f"{info.key!r} came after {self._last!r}")
        self._last = info.key
        return info
