"""Writing an object unless there is one, and knowing for certain which it was."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable

from arraystore._environment import Environment
from arraystore.errors import ObjectNotFoundError, StorageError, UnsupportedStorageError
from arraystore.storage.comparing import holds
from arraystore.storage.protocol import Storage

__all__ = ["Put", "put_surely", "unsettled"]

_APPEND_TRIES = 6


class Put(enum.IntEnum):
    """What came of an attempt to create an object; true where it is there as it was to be."""

    TAKEN = 0
    FOUND = 1
    """Written by this attempt, or some time before it: an answer was lost, or given to a repetition."""
    WRITTEN = 2
    """Written by this attempt."""


async def unsettled() -> bool:
    """Leave a refusal as it is: the caller finds out by itself whether what is there is its own."""
    return False


async def put_surely(
    storage: Storage,
    environment: Environment,
    key: str,
    data: bytes,
    settle: Callable[[], Awaitable[bool]] | None = None,
) -> Put:
    """Write an object unless one of this key exists, and find out for certain which it was.

    What a storage leaves open after a failure is asked again: an object that equals `data` is this one.  A refusal says
    only that there is an object, which may be this one, too: whatever is between here and the storage may send a
    request twice, and give the answer to the second.  So it is settled by looking.

    Parameters
    ----------
    storage, environment
        Where, and time and chance.
    key, data
        What to write.
    settle
        Tells, after a refusal, whether the object that is there is this one; reads and compares it by default.

    Raises
    ------
    StorageError
        If the storage fails for so long that it stays unknown.
    """
    failure: Exception | None = None
    for attempt in range(_APPEND_TRIES):
        if attempt:
            await environment.sleep(0.05 * 2**attempt * (0.5 + environment.random()))
        try:
            if await (storage.put_if_absent(key, data) if attempt else storage.put_new(key, data)):
                return Put.FOUND if attempt else Put.WRITTEN
            found = await (settle() if settle is not None else holds(storage, key, data))
            return Put.FOUND if found else Put.TAKEN
        except UnsupportedStorageError:
            raise
        except ObjectNotFoundError as error:
            failure = StorageError(f"{key} was refused as existing, and does not exist")
            failure.__cause__ = error
        except StorageError as error:
            failure = error
    raise StorageError(f"the storage failed {_APPEND_TRIES} times in a row: {failure}") from failure
