"""Error messages and exit statuses."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

from arraystore._runtime.redaction import redact
from arraystore.cli.console import safe
from arraystore.errors import (
    ArrayStoreError,
    ConflictError,
    MergeConflictError,
    PermissionDeniedError,
    ReadOnlyError,
    RepositoryNotFoundError,
)

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NO_REPOSITORY = 10
EXIT_NOT_ALLOWED = 11
EXIT_CONFLICT = 12
EXIT_NOT_CONFIRMED = 13
EXIT_INTERRUPTED = 130

EXIT_STATUSES = (
    "Exit status: 0 success, 1 error, 2 invalid usage, 10 no repository there, 11 not allowed (credentials, "
    "or read-only now), 12 conflict, 13 not confirmed, 130 interrupted."
)


VERIFY_STATUSES = f"""{EXIT_STATUSES}

Of findings: 3 warnings only, 4 committed data cannot be read, 5 virtual chunks were not read because their sources
cannot be accessed.
"""


class NotConfirmedError(ArrayStoreError):
    """Operation was not confirmed."""


_BY_KIND: tuple[tuple[type[Exception], int], ...] = (
    (RepositoryNotFoundError, EXIT_NO_REPOSITORY),
    (ReadOnlyError, EXIT_NOT_ALLOWED),
    (PermissionDeniedError, EXIT_NOT_ALLOWED),
    (ConflictError, EXIT_CONFLICT),
    (MergeConflictError, EXIT_CONFLICT),
    (NotConfirmedError, EXIT_NOT_CONFIRMED),
)

TRACEBACK_VARIABLE = "ARRAYSTORE_TRACEBACK"


def print_error(error: Exception) -> int:
    """Print an error on standard error and return the exit status."""
    if os.environ.get(TRACEBACK_VARIABLE):
        print(safe(redact("".join(traceback.format_exception(error)))), file=sys.stderr, end="")
    print(f"error: {safe(redact(_message(error)))}", file=sys.stderr)
    return next((status for kind, status in _BY_KIND if isinstance(error, kind)), EXIT_ERROR)


def _message(error: Exception) -> str:
    if isinstance(error, ArrayStoreError):
        return " ".join([str(error), *getattr(error, "__notes__", ())])
    if isinstance(error, ImportError) and error.name:
        return (
            f"this command needs the package {error.name!r}, which is not installed: pip install {_extra(error.name)}"
        )
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename!r}" if error.filename else ""
        return f"{error.strerror}{where}; check that it exists and that you have permission"
    return (
        f"unexpected {type(error).__name__}: {error}. The command was aborted; "
        f"set {TRACEBACK_VARIABLE}=1 for a traceback, and report it"
    )


_EXTRAS = {
    "h5netcdf": "xarray",
    "h5py": "xarray",
    "netCDF4": "xarray",
    "pyarrow": "spark",
    "pyspark": "spark",
    "s3fs": "s3fs",
    "scipy": "xarray",
    "starlette": "ui",
    "uvicorn": "ui",
    "virtualizarr": "virtual",
    "gcsfs": "gcsfs",
    "xarray": "xarray",
}


def _extra(package: str) -> str:
    """Return the requirement that installs a package."""
    top = package.partition(".")[0]
    return f"'arraystore[{_EXTRAS[top]}]'" if top in _EXTRAS else top


def print_usage_error(error: Any) -> int:
    """Print the usage of the command and a usage error, and return the exit status."""
    context = getattr(error, "ctx", None)
    message = safe(redact(str(error.format_message())))
    if context is not None:
        print(context.get_usage(), file=sys.stderr)
        print(f"Try '{context.command_path} --help' for help.", file=sys.stderr)
    print(f"error: {message}", file=sys.stderr)
    return int(error.exit_code)
