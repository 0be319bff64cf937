"""Optional dependencies: modules that need some say how to install them."""

from __future__ import annotations

from importlib.util import find_spec


def check_extra(module: str, extra: str, *packages: str) -> None:
    """Check that the packages that a module needs are installed; raises `ModuleNotFoundError` naming the extra."""
    for package in packages:
        if find_spec(package) is None:
            raise ModuleNotFoundError(
                f"{module} needs the package {package!r}, which is not installed: pip install 'arraystore[{extra}]'",
                name=package,
            )
