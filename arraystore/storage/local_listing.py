"""Walking a directory tree in the order of the keys that it holds."""

from __future__ import annotations

import os
from collections.abc import Iterator

from arraystore.storage.protocol import ObjectInfo

__all__ = ["walk"]


def walk(root: str, prefix: str, start_after: str, hidden: str) -> Iterator[ObjectInfo]:
    """Yield what is below `root` in ascending order of keys; directories that cannot match are not read.

    Parameters
    ----------
    root
        Directory that keys are relative to.
    prefix, start_after
        As for `Storage.list`.
    hidden
        Name of a directory in the root that is not listed.
    """
    parent, slash, start_of_name = prefix.rpartition("/")
    if parent.partition("/")[0] != hidden:
        yield from _walk(root, parent + slash, start_of_name, start_after, hidden)


def _walk(root: str, directory: str, start_of_name: str, start_after: str, hidden: str) -> Iterator[ObjectInfo]:
    """`directory` is empty, or a key prefix that ends at a slash."""
    try:
        with os.scandir(f"{root}/{directory}") as entries:
            # A directory sorts as its name with the slash that its keys go on with: 'a-b' < 'a.b' < 'a/b' < 'a0'.
            found = sorted(
                (entry.name + "/" if entry.is_dir() else entry.name, entry)
                for entry in entries
                if entry.name.startswith(start_of_name) and (directory or entry.name != hidden)
            )
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in found:
        key = directory + name
        if name[-1] == "/":
            if key > start_after or start_after.startswith(key):
                yield from _walk(root, key, "", start_after, hidden)
        elif key > start_after:
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue  # deleted since the directory was read
            yield ObjectInfo(key, status.st_size, status.st_mtime)
