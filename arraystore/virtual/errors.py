"""Errors of virtual datasets."""

from __future__ import annotations

from arraystore.errors import InvalidInputError

__all__ = ["VirtualizeError"]


class VirtualizeError(InvalidInputError):
    """File or dataset cannot be referred to, or does not fit what is in the group."""
