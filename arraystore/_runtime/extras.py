"""Optional dependencies: modules that need some say how to install them."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_NEED_PYTHON_3_12 = ("icechunk", "virtualizarr")


def how_to_install(what: str, extra: str, package: str) -> str:
    """Return the message of an error: what needs a package that is not installed, and the extra that installs it."""
    newer = ", with Python 3.12 or newer" if package in _NEED_PYTHON_3_12 and sys.version_info < (3, 12) else ""
    return f"{what} needs the package {package!r}, which is not installed: pip install 'arraystore[{extra}]'{newer}"


def check_extra(module: str, extra: str, *packages: str) -> None:
    """Check that the packages that a module needs are installed; raises `ModuleNotFoundError` naming the extra."""
    for package in packages:
        if find_spec(package) is None:
            raise ModuleNotFoundError(how_to_install(module, extra, package), name=package)
