"""Errors of ingests: of sources and of their target group."""

from __future__ import annotations

from arraystore.errors import AlreadyExistsError, ArrayStoreError, InvalidInputError, NotFoundError


class IngestError(ArrayStoreError):
    """Base class: raised before any task starts, so nothing was written."""


class SourceNotFoundError(IngestError, NotFoundError):
    """A source does not exist."""


class SourceFormatError(IngestError):
    """A source cannot be read, or holds values that no array can hold."""


class VariableMismatchError(IngestError, InvalidInputError):
    """A variable of a source does not fit its target array."""


class AlignmentError(IngestError, InvalidInputError):
    """An append would start inside a chunk."""


class TargetExistsError(IngestError, AlreadyExistsError):
    """The group holds arrays of these names already, and no dimension to append along was given."""
