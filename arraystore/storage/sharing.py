"""Whether other processes can open a storage: asked before work is sent to them, where an error would come too late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arraystore.errors import ArrayStoreError, InvalidInputError
from arraystore.storage.protocol import Storage

__all__ = ["check_shared"]


def check_shared(storage: Storage, who: str, dumps: Callable[[Any], object] | None = None) -> None:
    """Check that other processes can open a storage for themselves, before one of them fails to.

    Parameters
    ----------
    storage
        What they would open.
    who
        They, for the error.
    dumps
        What pickles it on its way to them; None where that is tried later, before anything is sent.

    Raises
    ------
    InvalidInputError
        If it is memory of this process, or cannot be pickled.
    StorageError
        If it holds credentials that are not to be pickled.
    """
    if not storage.shared:
        raise InvalidInputError(
            f"{storage.location} is memory of this process, which {who} cannot reach: use local_filesystem_storage, or "
            "an object store"
        )
    if dumps is None:
        return
    try:
        dumps(storage)
    except ArrayStoreError:
        raise
    except Exception as error:  # whatever parts of it raise
        raise InvalidInputError(
            f"{storage.location} cannot be opened by {who}, since its {type(storage).__name__} is not pickled "
            f"({type(error).__name__}: {error}): make the storage of what can be pickled, functions of a module for "
            "instance"
        ) from error
