"""What can be wrong with a copy."""

from __future__ import annotations

from arraystore.errors import AlreadyExistsError, ArrayStoreError, InvalidInputError

__all__ = ["CopyDivergedError", "CopyError", "CopyIncompleteError", "CopyTargetError"]


class CopyError(ArrayStoreError):
    """Base class: a copy cannot be made, or is not complete."""


class CopyTargetError(CopyError, AlreadyExistsError, InvalidInputError):
    """The target holds something else, which a copy would overwrite; nothing was changed."""


class CopyDivergedError(CopyError):
    """Source and target were one once, and each has changes of its own since; nothing was changed."""


class CopyIncompleteError(CopyError):
    """Something that the copy needs could not be copied.  It is not usable yet; what was copied stays."""
