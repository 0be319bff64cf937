"""Atomic, exclusive and durable writing of files, and the walk of a directory tree in key order."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from arraystore.errors import UnsupportedStorageError
from arraystore.storage.protocol import ObjectInfo

__all__ = ["fsync_entries", "fsync_path", "link_exclusively", "remove_leftovers", "walk", "write_file"]

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
# Errors of link(2) on filesystems without hard links.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL})
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
# A live writer takes minutes for a file, not days.
_LEFTOVER_SECONDS = 2 * 24 * 3600


def write_file(directory: str, parts: Iterable[bytes | bytearray | memoryview], *, fsync: bool) -> str:
    """Write the parts to a new file with a random name in `directory`, and return its path."""
    path = f"{directory}/{os.urandom(12).hex()}"
    try:
        fd = os.open(path, _FLAGS, 0o666)
    except FileNotFoundError:
        os.makedirs(directory, exist_ok=True)
        fd = os.open(path, _FLAGS, 0o666)
    try:
        try:
            for part in parts:
                _write_all(fd, part)
            if fsync:
                os.fsync(fd)
        finally:
            os.close(fd)
    except BaseException:
        os.unlink(path)
        raise
    return path


def _write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    written = os.write(fd, data)
    if written == len(data):
        return
    rest = memoryview(data)[written:]
    while rest:
        rest = rest[os.write(fd, rest) :]


def fsync_path(path: str) -> None:
    """Make a file's content, or a directory's entries, durable."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_entries(directory: str, *, ancestors: bool) -> None:
    """Make a directory's entries durable and, with `ancestors`, those of its parents up to the mount point."""
    _fsync_directory(directory)
    above = directory
    if not ancestors:
        return
    while not os.path.ismount(above):
        above = os.path.dirname(above)
        if not os.access(above, os.R_OK):
            return  # not ours, so it existed before
        _fsync_directory(above)


def _fsync_directory(path: str) -> None:
    try:
        fsync_path(path)
    except OSError as error:
        # Some network filesystems have no fsync of directories.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def link_exclusively(temporary: str, final: str) -> None:
    """Give a file its final name atomically, or raise `FileExistsError`; `temporary` may remain.

    Raises `UnsupportedStorageError` if the filesystem can neither link nor rename without replacing.
    """
    try:
        os.link(temporary, final)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _rename_exclusively(temporary, final)


def _rename_exclusively(temporary: str, final: str) -> None:
    rename = _renameat2()
    if rename is None:
        raise _exclusive_unsupported(final)
    code = rename(os.fsencode(temporary), os.fsencode(final))
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise _exclusive_unsupported(final)
    if code:
        raise OSError(code, os.strerror(code), temporary, None, final)


@cache
def _renameat2() -> Callable[[bytes, bytes], int] | None:
    """Return renameat2 as a function that returns an error number, None where the C library lacks it."""
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    function.restype = ctypes.c_int

    def rename(old: bytes, new: bytes) -> int:
        return 0 if function(_AT_FDCWD, old, _AT_FDCWD, new, _RENAME_NOREPLACE) == 0 else ctypes.get_errno()

    return rename


def _exclusive_unsupported(path: str) -> UnsupportedStorageError:
    return UnsupportedStorageError(
        f"the filesystem of {path!r} has neither hard links nor a rename without replacement, so concurrent commits "
        "would not be safe on it; put the repository on another filesystem or an object store"
    )


def remove_leftovers(directory: str) -> None:
    """Remove temporary files of writers that crashed days ago."""
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return
    oldest = time.time() - _LEFTOVER_SECONDS
    for entry in entries:
        try:
            if entry.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(entry.path)
        except FileNotFoundError:
            continue  # another process was quicker


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
