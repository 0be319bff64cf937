"""Other libraries' names over this one: programs that were written for them run after changing an import."""

from importlib import import_module
from typing import Any

__all__ = ["icechunk"]  # pyright: ignore[reportUnsupportedDunderAll] - imported when it is asked for


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
