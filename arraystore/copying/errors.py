"""Errors of copies."""

from __future__ import annotations

from arraystore.errors import AlreadyExistsError, ArrayStoreError, InvalidInputError

__all__ = ["CopyDivergedError", "CopyError", "CopyIncompleteError", "CopyTargetError"]


class CopyError(ArrayStoreError):
    """Base class of errors of copies: a copy cannot be made, or is not complete."""


class CopyTargetError(CopyError, AlreadyExistsError, InvalidInputError):
    """A copy would overwrite other data at the target; nothing was changed."""


class CopyDivergedError(CopyError):
    """Source and target have diverged: each has changes of its own since the last copy; nothing was changed."""


class CopyIncompleteError(CopyError):
    """An object that the copy needs could not be copied; the copy is not usable yet, and what was copied stays."""
