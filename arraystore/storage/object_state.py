"""State of objects that others may change: entity tag and time of modification."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from arraystore.storage.protocol import ObjectInfo

__all__ = [
    "describe_expected",
    "describe_info",
    "info_of",
    "is_unchanged",
    "modified_us",
    "synthetic_etag",
    "time_text",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def synthetic_etag(modified_ns: int, size: int) -> str:
    """Derive an entity tag from time of modification and size, for storages without entity tags.

    It contains no inode, so that a copy with the same times, on another disk or machine, counts as the same object.
    """
    return f"{modified_ns:x}-{size:x}"


def info_of(key: str, size: int, modified: float | None, etag: str | None) -> ObjectInfo:
    """Return the state of an object that a storage reports, with a derived entity tag if it reports none."""
    if etag is None and modified is not None:
        etag = synthetic_etag(round(modified * 1_000_000) * 1000, size)
    return ObjectInfo(key, size, modified, etag)


def modified_us(info: ObjectInfo) -> int | None:
    """Return the time of modification in microseconds since 1970."""
    return None if info.modified is None else round(info.modified * 1_000_000)


def is_unchanged(info: ObjectInfo, etag: str | None, modified: int | None) -> bool:
    """Return whether an object has this entity tag and was not modified after a time in microseconds; None is any.

    A time without a fraction of a second covers the whole second, the resolution of HTTP.
    """
    if etag is not None and (info.etag is None or _bare(info.etag) != _bare(etag)):
        return False
    if modified is None:
        return True
    actual = modified_us(info)
    last = modified + 999_999 if modified % 1_000_000 == 0 else modified
    return actual is not None and actual <= last


def _bare(etag: str) -> str:
    """Return an entity tag without quotes and weak prefix, which clients may omit."""
    return etag.removeprefix("W/").strip('"')


def describe_expected(etag: str | None, modified: int | None) -> str:
    """Format the state that a reference expects."""
    tag = [] if etag is None else [f"ETag {etag}"]
    time = [] if modified is None else [f"not modified after {time_text(modified)}"]
    return ", ".join(tag + time) or "an existing object"


def describe_info(info: ObjectInfo) -> str:
    """Format the state of an object."""
    modified = modified_us(info)
    tag = "no ETag" if info.etag is None else f"ETag {info.etag}"
    time = "modified at an unknown time" if modified is None else f"modified {time_text(modified)}"
    return f"{tag}, {time}, {info.size} bytes"


def time_text(us: int) -> str:
    """Format microseconds since 1970, out-of-range values included."""
    try:
        return (_EPOCH + timedelta(microseconds=us)).isoformat()
    except OverflowError:
        return f"{us} µs since 1970"
