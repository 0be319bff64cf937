"""Conditional PUTs whose outcome is certain."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable

from arraystore._environment import Environment
from arraystore.errors import ObjectNotFoundError, PermissionDeniedError, StorageError, UnsupportedStorageError
from arraystore.storage.protocol import Storage, holds

_APPEND_TRIES = 6


class Put(enum.IntEnum):
    """Outcome of an attempt to create an object; true where the object exists as it was to be."""

    TAKEN = 0
    FOUND = 1
    """Written by this attempt, or an earlier one whose answer was lost, or went to a repetition."""
    WRITTEN = 2
    """Written by this attempt."""


async def unsettled() -> bool:
    """Leave a refusal as it is: the caller checks by itself whether the object is its own."""
    return False


async def _may_be_there(storage: Storage, key: str) -> bool:
    """Return whether an object exists, or whether this cannot be determined."""
    try:
        await storage.get(key)
    except ObjectNotFoundError:
        return False
    except StorageError:
        return True
    return True


async def put_surely(
    storage: Storage,
    environment: Environment,
    key: str,
    data: bytes,
    settle: Callable[[], Awaitable[bool]] | None = None,
) -> Put:
    """Write an object unless one of this key exists, and determine the outcome for certain.

    An outcome that a storage leaves open after a failure is asked for again: an object that equals `data` is this one.
    A refusal says only that there is an object, which may be this one, too: an intermediary may repeat a request, and
    return the answer to the second. So `settle` tells then whether the object is this one, by default by reading and
    comparing it. Raises `StorageError` if the storage fails for so long that it stays unknown, and
    `PermissionDeniedError` if the credentials do not allow to write it, and it is not there.
    """
    failure: Exception | None = None
    refused = False
    for attempt in range(_APPEND_TRIES):
        if attempt:
            await environment.sleep(0.05 * 2**attempt * (0.5 + environment.random()))
        try:
            if await (storage.put_if_absent(key, data) if attempt else storage.put_new(key, data)):
                return Put.FOUND if attempt else Put.WRITTEN
            refused = True
            own = await (settle() if settle is not None else holds(storage, key, data))
            return Put.FOUND if own else Put.TAKEN
        except UnsupportedStorageError:
            raise
        except PermissionDeniedError as error:
            # An intermediary may have repeated a PUT that was written, or reading is what is denied.
            if not (attempt or refused or await _may_be_there(storage, key)):
                raise
            failure = error
        except ObjectNotFoundError as error:
            failure = StorageError(f"the storage refused {key} as existing, and it does not exist")
            failure.__cause__ = error
        except StorageError as error:
            failure = error
    raise StorageError(f"the storage failed {_APPEND_TRIES} times in a row: {failure}") from failure
