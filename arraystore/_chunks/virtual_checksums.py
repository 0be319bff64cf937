"""Checksums of virtual references: the state that a source must have, as specified, or as it is now."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import numpy as np

from arraystore._chunks.virtual_containers import VirtualContainers
from arraystore._runtime import run
from arraystore._runtime.concurrency import bounded
from arraystore.errors import InvalidInputError, ObjectNotFoundError, StorageError, VirtualReferenceError
from arraystore.storage.object_state import modified_us

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_ETAG = 1024
_AT_ONCE = 32
_REMEDY = "pass the checksum that the source must have, or checksum=None for references that are never checked"


class FromSource(enum.Enum):
    """Type of `FROM_SOURCE`."""

    FROM_SOURCE = "from source"


FROM_SOURCE: Final = FromSource.FROM_SOURCE
"""Checksum that stands for the state in which the source is when the reference is written."""

Checksum: TypeAlias = str | datetime | np.datetime64 | int | float | FromSource | None
"""An entity tag; or a time after which the source must not have been modified, a number counting seconds since 1970;
or `FROM_SOURCE`; or None for a source that is never checked."""

SourceState = tuple[str | None, int]
"""Entity tag, None for any; and latest time of modification in microseconds since 1970, 0 for any."""


def checksum_state(checksum: Checksum) -> SourceState | None:
    """Return the state that a checksum specifies; None for the present state of the source."""
    if checksum is None:
        return None, 0
    if checksum is FROM_SOURCE:
        return None
    if isinstance(checksum, str):
        return _checked_etag(checksum), 0
    time = _microseconds(checksum)
    if not 0 < time < 1 << 62:
        raise InvalidInputError(f"the checksum {checksum!r} must be a time after 1970")
    return None, time


def _checked_etag(etag: str) -> str:
    if not etag or not etag.isprintable() or len(etag) > _LONGEST_ETAG:
        raise InvalidInputError(
            f"the checksum {etag[:80]!r} is not an entity tag: it must have 1 to {_LONGEST_ETAG} printable characters"
        )
    return etag


def _microseconds(time: object) -> int:
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise InvalidInputError(f"the checksum {time!r} has no time zone: use datetime(..., tzinfo=timezone.utc)")
        return (time - _EPOCH) // timedelta(microseconds=1)
    if isinstance(time, np.datetime64) and not np.isnat(time):
        return int(time.astype("datetime64[us]").astype(np.int64))
    if isinstance(time, int | np.integer) and not isinstance(time, bool):
        return int(time) * 1_000_000
    if isinstance(time, float | np.floating) and np.isfinite(time):
        return round(float(time) * 1_000_000)
    raise InvalidInputError(f"the checksum {time!r} is not an entity tag, a time, FROM_SOURCE or None")


def read_source_states(containers: VirtualContainers, urls: Iterable[str]) -> list[SourceState]:
    """Return the present states of sources: one request each, many at a time."""

    async def states() -> list[SourceState]:
        return await bounded(lambda url: _state(containers, url), urls, _AT_ONCE)

    return run(states())


async def _state(containers: VirtualContainers, url: str) -> SourceState:
    try:
        storage, key = containers.find(url)
        _, info = await storage.get_source_ranges(key, [])
    except ObjectNotFoundError:
        raise VirtualReferenceError(
            f"the source {url} does not exist, so its state cannot be recorded; {_REMEDY}"
        ) from None
    except VirtualReferenceError as error:
        raise VirtualReferenceError(f"{error.message}; or, to refer to it without a request, {_REMEDY}") from None
    except StorageError as error:
        raise StorageError(f"the state of the source {url} cannot be looked up: {error.message}; {_REMEDY}") from error
    if info.etag is not None:
        return info.etag, 0
    modified = modified_us(info)
    if not modified:
        raise VirtualReferenceError(
            f"the storage of the source {url} reports neither an entity tag nor a time of modification; {_REMEDY}"
        )
    return None, modified
