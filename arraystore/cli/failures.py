"""Errors as sentences, and as exit codes."""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import Any

from arraystore.errors import ArrayStoreError

__all__ = ["EXIT_ERROR", "EXIT_INTERRUPTED", "EXIT_USAGE", "redacted", "tell", "tell_usage"]

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

TRACEBACK_VARIABLE = "ARRAYSTORE_TRACEBACK"

_USER_IN_URL = re.compile(r"(?<=://)[^/\s@]*:[^/\s]*@")
_SECRET_IN_QUERY = re.compile(
    r"(?i)([?&;\s](?:[\w.-]*(?:secret|token|signature|credential|password|access[-_]?key|account[-_]?key)[\w.-]*|sig)=)"
    r"[^&\s'\")]+"
)
_SECRET_VARIABLE = re.compile(r"(?i)secret|token|password|account_key|access_key$|sas|connection_string")
_SHORTEST_SECRET = 8


def redacted(text: str) -> str:
    """Return a text without what may be a secret: passwords and signatures in URLs, and secrets of the environment."""
    text = _USER_IN_URL.sub("***@", text)
    text = _SECRET_IN_QUERY.sub(r"\1***", text)
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_SECRET and _SECRET_VARIABLE.search(name) and "/" not in value[:1]:
            text = text.replace(value, "***")
    return text


def tell(error: Exception) -> int:
    """Say on the standard error stream what went wrong, in a sentence; return the exit code."""
    if os.environ.get(TRACEBACK_VARIABLE):
        print(redacted("".join(traceback.format_exception(error))), file=sys.stderr, end="")
    print(f"error: {redacted(_sentence(error))}", file=sys.stderr)
    return EXIT_ERROR


def _sentence(error: Exception) -> str:
    if isinstance(error, ArrayStoreError):
        return str(error)
    if isinstance(error, ImportError) and error.name:
        return (
            f"this command needs the package {error.name!r}, which is not installed: pip install {_extra(error.name)}"
        )
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename!r}" if error.filename else ""
        return f"{error.strerror}{where}; check that it exists and that you may use it"
    return (
        f"unexpected {type(error).__name__}: {error}. Nothing further was done; "
        f"set {TRACEBACK_VARIABLE}=1 to see where it comes from, and report it"
    )


_EXTRAS = {
    "h5netcdf": "xarray",
    "h5py": "xarray",
    "netCDF4": "xarray",
    "pyarrow": "spark",
    "pyspark": "spark",
    "s3fs": "s3fs",
    "scipy": "xarray",
    "gcsfs": "gcsfs",
    "xarray": "xarray",
}


def _extra(package: str) -> str:
    """What to install so that a package is there."""
    top = package.partition(".")[0]
    return f"'arraystore[{_EXTRAS[top]}]'" if top in _EXTRAS else top


def tell_usage(error: Any) -> int:
    """Say how the command is used, and what is wrong with how it was; return the exit code."""
    context = getattr(error, "ctx", None)
    said = redacted(str(error.format_message()))
    if context is not None:
        print(context.get_usage(), file=sys.stderr)
        print(f"Try '{context.command_path} --help' for help.", file=sys.stderr)
    print(f"error: {said}", file=sys.stderr)
    return int(error.exit_code)
