"""Optional dependencies: modules that need some say how to install them."""

from __future__ import annotations

from importlib.util import find_spec


def how_to_install(what: str, extra: str, package: str) -> str:
    """Return the text of an error: what needs a package that is not installed, and the extra that installs it."""
    return f"{what} needs the package {package!r}, which is not installed: pip install 'arraystore[{extra}]'"


def check_extra(module: str, extra: str, *packages: str) -> None:
    """Check that the packages that a module needs are installed; raises `ModuleNotFoundError` naming the extra."""
    for package in packages:
        if find_spec(package) is None:
            raise ModuleNotFoundError(how_to_install(module, extra, package), name=package)
