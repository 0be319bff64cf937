"""Walk of a directory tree in key order."""

from __future__ import annotations

import os
from collections.abc import Iterator

from arraystore.storage.protocol import ObjectInfo

__all__ = ["walk"]


def walk(root: str, prefix: str, start_after: str, hidden: str) -> Iterator[ObjectInfo]:
    """Yield the files below `root` as `Storage.list` does, except for its directory `hidden`.

    Directories that cannot match are not read.
    """
    parent, slash, start_of_name = prefix.rpartition("/")
    if parent.partition("/")[0] != hidden:
        yield from _walk(root, parent + slash, start_of_name, start_after, hidden)


def _walk(root: str, directory: str, start_of_name: str, start_after: str, hidden: str) -> Iterator[ObjectInfo]:
    """Yield the files below a directory, which is empty or a key prefix that ends with a slash."""
    try:
        with os.scandir(f"{root}/{directory}") as scan:
            # A directory sorts as its name with a slash, as its keys do: 'a-b' < 'a.b' < 'a/b' < 'a0'.
            entries = sorted(
                (entry.name + "/" if entry.is_dir() else entry.name, entry)
                for entry in scan
                if entry.name.startswith(start_of_name) and (directory or entry.name != hidden)
            )
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in entries:
        key = directory + name
        if name[-1] == "/":
            if key > start_after or start_after.startswith(key):
                yield from _walk(root, key, "", start_after, hidden)
        elif key > start_after:
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue  # deleted meanwhile
            yield ObjectInfo(key, status.st_size, status.st_mtime)
