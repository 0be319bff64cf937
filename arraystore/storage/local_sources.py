"""Files that others may change: containment in a directory, and state."""

from __future__ import annotations

import os
import stat

from arraystore.errors import VirtualReferenceError
from arraystore.storage.object_state import synthetic_etag
from arraystore.storage.protocol import ObjectInfo

__all__ = ["check_below", "file_info", "is_same_file"]


def file_info(key: str, status: os.stat_result) -> ObjectInfo:
    """Return the state of a file; its entity tag is derived from time of modification (ns) and size."""
    etag = synthetic_etag(status.st_mtime_ns, status.st_size)
    return ObjectInfo(key, status.st_size, (status.st_mtime_ns // 1000) / 1_000_000, etag)


def is_same_file(fd: int, path: str) -> bool:
    """Return whether a path still names an open file."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


def check_below(fd: int, path: str, root: str) -> None:
    """Raise `VirtualReferenceError` unless an open file is a regular one below the real path `root`.

    The open file is checked, not its path, so that replacing a symbolic link meanwhile has no effect.
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise VirtualReferenceError(
            f"{path} is not a regular file, so virtual chunks cannot be read from it; refer to a file"
        )
    real = _real_path(fd, path)
    if not real.startswith(root.rstrip("/") + "/"):
        raise VirtualReferenceError(
            f"{path} leads through a symbolic link out of its container {root}, to {real}, so virtual chunks cannot "
            "be read from it; open a container for that directory too, or create this one with "
            "local_filesystem_storage(path, follow_symlinks=True)"
        )


def _real_path(fd: int, path: str) -> str:
    """Return the real path of an open file, from /proc or by resolving its path to the same file."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        real = os.path.realpath(path)
        return real if is_same_file(fd, real) else "a different file"
