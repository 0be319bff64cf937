"""What can be wrong with sources, and with a group that is to take them."""

from __future__ import annotations

from arraystore.errors import AlreadyExistsError, ArrayStoreError, InvalidInputError, NotFoundError

__all__ = [
    "AlignmentError",
    "IngestError",
    "SourceFormatError",
    "SourceNotFoundError",
    "TargetExistsError",
    "VariableMismatchError",
]


class IngestError(ArrayStoreError):
    """Base class: raised before any task starts, so nothing was written."""


class SourceNotFoundError(IngestError, NotFoundError):
    """There is nothing at the place that a source names."""


class SourceFormatError(IngestError):
    """A source is there but cannot be read, or holds what no array can hold."""


class VariableMismatchError(IngestError, InvalidInputError):
    """A variable of a source does not fit the array that is to take it."""


class AlignmentError(IngestError, InvalidInputError):
    """An append would start inside a chunk."""


class TargetExistsError(IngestError, AlreadyExistsError):
    """The group holds arrays of these names already, and no dimension to append along was given."""
