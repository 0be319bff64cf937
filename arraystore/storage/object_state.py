"""States of objects that others may change: entity tags and times of modification, and how they compare."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from arraystore.storage.protocol import ObjectInfo

__all__ = ["describe_expected", "describe_info", "is_unchanged", "made_etag", "modified_us", "time_text"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def made_etag(modified_ns: int, size: int) -> str:
    """Return the entity tag of an object in a storage that has none: time of modification and size.

    No inode is in it, so that a copy that keeps the times, on another disk or machine, counts as the same object.
    """
    return f"{modified_ns:x}-{size:x}"


def modified_us(info: ObjectInfo) -> int | None:
    """Return the time of modification in microseconds since 1970."""
    return None if info.modified is None else round(info.modified * 1_000_000)


def is_unchanged(info: ObjectInfo, etag: str | None, modified: int | None) -> bool:
    """Tell whether an object has an entity tag, and was not modified after a time in microseconds; None is any.

    A time that is a whole second stands for all of it: that is how exact HTTP is.
    """
    if etag is not None and (info.etag is None or _bare(info.etag) != _bare(etag)):
        return False
    if modified is None:
        return True
    found = modified_us(info)
    last = modified + 999_999 if modified % 1_000_000 == 0 else modified
    return found is not None and found <= last


def _bare(etag: str) -> str:
    """Return an entity tag without quotes and mark of weakness, which clients and users leave out or not."""
    return etag.removeprefix("W/").strip('"')


def describe_expected(etag: str | None, modified: int | None) -> str:
    """Return a state that a reference is for, as text."""
    tag = [] if etag is None else [f"ETag {etag}"]
    time = [] if modified is None else [f"not modified after {time_text(modified)}"]
    return ", ".join(tag + time) or "an object that exists"


def describe_info(info: ObjectInfo) -> str:
    """Return the state of an object as text."""
    modified = modified_us(info)
    tag = "no ETag" if info.etag is None else f"ETag {info.etag}"
    time = "modified at an unknown time" if modified is None else f"modified {time_text(modified)}"
    return f"{tag}, {time}, {info.size} bytes"


def time_text(us: int) -> str:
    """Return microseconds since 1970 as text, whatever they are."""
    try:
        return (_EPOCH + timedelta(microseconds=us)).isoformat()
    except OverflowError:
        return f"{us} µs since 1970"
