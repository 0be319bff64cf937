"""URLs of virtual chunks: which of them can name an object, and nothing outside of its container."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from arraystore.errors import InvalidKeyError
from arraystore.storage.keys import MAX_KEY_BYTES, check_key

__all__ = ["all_paths_plain", "object_path", "path_problem", "url_problem"]

# What a server, or a client, that decodes a URL may make of it: a part '.' or '..', or a control character.
_UNSAFE = re.compile(r"(?:\A|[/\\])\.{1,2}(?:[/\\?#;]|\Z)|[\x00-\x1f\x7f]")
_DECODINGS = 4
# Signs of anything that is worth a closer look, where paths are put one after the other with a bar between.
_SUSPECT = ("\\", "%", "|.", "|/", "||", "|?", "|#", "|;")
_SUSPECT_BELOW = ("/.", "//", "/|", "/?", "/#", "/;")


def object_path(url: str) -> str | None:
    """Return the path of a URL, without its first slash; None if it is no URL."""
    scheme, separator, rest = url.partition("://")
    if not (separator and rest and scheme.isascii() and scheme.replace("+", "").isalnum()):
        return None
    return rest.partition("/")[2]


def url_problem(url: str) -> str | None:
    """Return what is wrong with a URL, whatever the containers are; None for nothing."""
    path = object_path(url)
    if path is None:
        return "it is no URL: scheme://place/path is needed"
    return path_problem(path)


def path_problem(path: str) -> str | None:
    """Return what is wrong with a path below a container, percent-encoded or not; None for nothing."""
    if not path or path.endswith("/"):
        return "it names no object"
    try:
        check_key(path)
    except InvalidKeyError as error:
        return error.message
    for _ in range(_DECODINGS):
        if _UNSAFE.search(path):
            return "decoded, it has a part '.' or '..', or a control character"
        if "%" not in path:
            break
        path = unquote(path, errors="replace")
    return None


def all_paths_plain(paths: Sequence[str]) -> bool:
    """Tell whether there is surely nothing wrong with any of many paths; False where each has to be looked at."""
    joined = f"|{'|'.join(paths)}|"
    if joined.count("|") != len(paths) + 1 or not (joined.isascii() and joined.isprintable()):
        return False
    signs = _SUSPECT + _SUSPECT_BELOW if "/" in joined else _SUSPECT
    return not any(sign in joined for sign in signs) and max(map(len, paths)) <= MAX_KEY_BYTES // 2
