"""Files that belong to others: whether an open one lies below a directory, and in which state it is."""

from __future__ import annotations

import os
import stat

from arraystore.errors import VirtualReferenceError
from arraystore.storage.object_state import made_etag
from arraystore.storage.protocol import ObjectInfo

__all__ = ["check_below", "file_info", "is_same_file"]


def file_info(key: str, status: os.stat_result) -> ObjectInfo:
    """Return the state of a file; its entity tag is made of the time of modification, in nanoseconds, and the size."""
    etag = made_etag(status.st_mtime_ns, status.st_size)
    return ObjectInfo(key, status.st_size, (status.st_mtime_ns // 1000) / 1_000_000, etag)


def is_same_file(fd: int, path: str) -> bool:
    """Tell whether a path still names an open file."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


def check_below(fd: int, path: str, root: str) -> None:
    """Refuse an open file that is no regular one, or that symbolic links have led to outside of a directory.

    What is looked at is the open file, not its path: who exchanges a link meanwhile gains nothing.

    Raises
    ------
    VirtualReferenceError
        If it is not below `root`, a real path.
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise VirtualReferenceError(f"{path} is no regular file, so no virtual chunk is read from it; name a file")
    real = _real_path(fd, path)
    if not real.startswith(root.rstrip("/") + "/"):
        raise VirtualReferenceError(
            f"{path} leads through a symbolic link out of its container {root}, to {real}, so no virtual chunk is read "
            "from it; open a container for that directory, too, or make this one with "
            "local_filesystem_storage(path, follow_symlinks=True)"
        )


def _real_path(fd: int, path: str) -> str:
    """Return where an open file is; the system tells, or else its path is resolved and has to be the same file."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        real = os.path.realpath(path)
        return real if is_same_file(fd, real) else "another file than was opened"
