"""Attributes that a service keeps with an object: its storage class, and metadata of its user."""

from __future__ import annotations

import re
from collections.abc import Mapping

from arraystore.errors import InvalidInputError
from arraystore.storage.settings import StorageSettings

__all__ = ["CHUNKS", "Attributes", "check_storage_classes", "split_headers"]

CHUNKS = "chunks/"
"""Directory of the objects that have chunks; all others are metadata."""

_METADATA = "x-amz-meta-"
_NEVER_READ = {"s3": {"glacier", "deep_archive"}, "azure": {"archive"}}
"""Classes whose objects are read only after somebody has restored them, by provider."""


class Attributes:
    """Arguments of writes of the native client, by key."""

    def __init__(self, settings: StorageSettings, metadata: Mapping[str, str]) -> None:
        self._of_metadata = _arguments(metadata, settings.metadata_storage_class)
        self._of_chunks = _arguments(metadata, settings.chunks_storage_class)

    def of(self, key: str) -> Mapping[str, dict[str, str]]:
        """Return the arguments for an object; none unless it has attributes."""
        return self._of_chunks if key.startswith(CHUNKS) else self._of_metadata


def _arguments(metadata: Mapping[str, str], storage_class: str | None) -> dict[str, dict[str, str]]:
    attributes = {**metadata, **({} if storage_class is None else {"Storage-Class": storage_class})}
    return {"attributes": attributes} if attributes else {}


def check_storage_classes(kind: str, settings: StorageSettings) -> None:
    """Refuse classes whose objects could not be read."""
    for name in (settings.metadata_storage_class, settings.chunks_storage_class):
        if name is not None and name.lower() in _NEVER_READ.get(kind, ()):
            raise InvalidInputError(
                f"objects of the storage class {name} cannot be read until they are restored: choose a class that "
                "is read at once"
            )


def split_headers(kind: str, headers: Mapping[str, str] | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers of all requests, and the metadata that headers of S3 stand for; raises `InvalidInputError`."""
    plain: dict[str, str] = {}
    metadata: dict[str, str] = {}
    for name, value in (headers or {}).items():
        lower = name.lower()
        if not lower.startswith("x-amz-"):
            plain[name] = value
        elif kind == "s3" and re.fullmatch(_METADATA + "[a-z0-9_.-]+", lower):
            _check_metadata(name, value)
            metadata[lower.removeprefix(_METADATA)] = value
        else:
            raise InvalidInputError(
                f"the header {name!r} must be signed, and extra headers are sent unsigned: leave it out, and use the "
                "arguments of the storage and its settings"
            )
    return plain, metadata


def _check_metadata(name: str, value: str) -> None:
    if not re.fullmatch(r"[ -~]*", value) or value != value.strip():
        raise InvalidInputError(
            f"the value of the header {name!r} must be printable ASCII, without spaces around it: encode it"
        )
