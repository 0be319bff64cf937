"""Validation of URLs of virtual chunks: they must name an object, and nothing outside of its container."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from arraystore.errors import InvalidKeyError
from arraystore.storage.keys import MAX_KEY_BYTES, check_key

__all__ = ["all_paths_plain", "object_path", "path_problem", "url_problem"]

# Parts '.' or '..' and control characters, as a server or client that decodes the URL may see them.
_UNSAFE = re.compile(r"(?:\A|[/\\])\.{1,2}(?:[/\\?#;]|\Z)|[\x00-\x1f\x7f]")
_DECODINGS = 4
# Substrings that need a closer look, in paths joined by bars.
_SUSPECT = ("\\", "%", "|.", "|/", "||", "|?", "|#", "|;")
_SUSPECT_BELOW = ("/.", "//", "/|", "/?", "/#", "/;")


def object_path(url: str) -> str | None:
    """Return the path of a URL without its first slash, None for a string that is not a URL."""
    scheme, separator, rest = url.partition("://")
    if not (separator and rest and scheme.isascii() and scheme.replace("+", "").isalnum()):
        return None
    return rest.partition("/")[2]


def url_problem(url: str) -> str | None:
    """Return the problem of a URL, regardless of containers; None if it is valid."""
    path = object_path(url)
    if path is None:
        return "it is not a valid URL: it must have the form scheme://host/path"
    return path_problem(path)


def path_problem(path: str) -> str | None:
    """Return the problem of a path below a container, percent-encoded or not; None if it is valid."""
    if not path or path.endswith("/"):
        return "it does not name an object"
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
    """Return whether many paths are certainly valid; False if each must be checked."""
    joined = f"|{'|'.join(paths)}|"
    if joined.count("|") != len(paths) + 1 or not (joined.isascii() and joined.isprintable()):
        return False
    signs = _SUSPECT + _SUSPECT_BELOW if "/" in joined else _SUSPECT
    return not any(sign in joined for sign in signs) and max(map(len, paths)) <= MAX_KEY_BYTES // 2
