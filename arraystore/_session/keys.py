"""Keys of values in a store, and paths of nodes."""

from __future__ import annotations

from typing import Any

from arraystore._format.node import MAX_PATH
from arraystore._format.zarr_metadata import DOCUMENT_NAMES
from arraystore.errors import InvalidInputError, InvalidKeyError


def check_key(key: Any) -> str:
    """Check that a key is a relative Unicode path without empty, ``.`` or ``..`` parts; raises `InvalidKeyError`."""
    if not isinstance(key, str):
        raise InvalidKeyError(f"a key must be a string, not {type(key).__name__}")
    if not key or len(key) > MAX_PATH or "\0" in key:
        raise InvalidKeyError(f"{key[:80]!r} is not a valid key: it must have 1 to {MAX_PATH} characters and no NUL")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InvalidKeyError(f"{key[:80]!r} is not a valid key: it must be valid Unicode") from None
    for part in key.split("/"):
        if part in ("", ".", ".."):
            raise InvalidKeyError(
                f"{key[:80]!r} is not a valid key: it must be relative, without an empty part, '.' or '..'"
            )
    return key


def join(path: str, name: str) -> str:
    """Return the key of a name below a path."""
    return f"{path}/{name}" if path else name


def node_path(path: object) -> str:
    """Return the path of a node without slashes around it; raise `InvalidInputError` if it is not a string."""
    if isinstance(path, str):
        return path.strip("/")
    raise InvalidInputError(f"the path of a group or array must be a string, not {type(path).__name__}")


def split_document(key: str) -> tuple[str, str] | None:
    """Return path and name of the key of a metadata document; None for another key."""
    path, _, name = key.rpartition("/")
    return (path, name) if name in DOCUMENT_NAMES else None
