"""Configuration as JSON-like values, in a setting of the repository of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from arraystore.compat.icechunk import _manifests, _object_stores, _settings, config, virtual
from arraystore.compat.icechunk._object_stores import ChecksumAlgorithm
from arraystore.errors import FormatError

__all__ = ["from_saved", "to_saved"]

_SPLIT = _manifests.ManifestSplitDimCondition
_STORES = virtual.ObjectStoreConfig
_CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        config.CachingConfig,
        config.CompressionAlgorithm,
        config.CompressionConfig,
        config.RepoUpdateRetryConfig,
        config.RepositoryConfig,
        _manifests.ManifestConfig,
        _manifests.ManifestPreloadCondition,
        _manifests.ManifestPreloadConfig,
        _manifests.ManifestSplitCondition,
        _manifests.ManifestSplittingConfig,
        _manifests.ManifestVirtualChunkLocationCompressionConfig,
        _SPLIT.Axis,
        _SPLIT.DimensionName,
        _SPLIT.Any,
        _settings.StorageConcurrencySettings,
        _settings.StorageRetriesSettings,
        _settings.StorageSettings,
        _settings.StorageTimeoutSettings,
        _STORES.InMemory,
        _STORES.LocalFileSystem,
        _STORES.S3,
        _STORES.S3Compatible,
        _STORES.Tigris,
        _STORES.Gcs,
        _STORES.Azure,
        _STORES.Http,
        _object_stores.S3Options,
        ChecksumAlgorithm,
        virtual.VirtualChunkContainer,
    )
}
"""The only classes that are made of what is read."""


def to_saved(value: Any) -> Any:
    """Return a configuration as maps, lists and scalars."""
    if isinstance(value, Enum):
        return {"is": type(value).__name__, "value": value.value}
    if is_dataclass(value):
        named = {item.name: to_saved(getattr(value, item.name)) for item in fields(value)}
        return {"is": type(value).__name__, **{name: item for name, item in named.items() if item is not None}}
    if isinstance(value, Mapping):
        return {"is": "map", "items": [[key, to_saved(item)] for key, item in value.items()]}
    if isinstance(value, tuple | list):
        return [to_saved(item) for item in value]
    return value


def from_saved(value: Any) -> Any:
    """Return the configuration that was saved; raises `FormatError` for anything else."""
    if isinstance(value, list | tuple):
        return tuple(map(from_saved, value))
    if not isinstance(value, Mapping):
        return value
    named = dict(value)
    kind = named.pop("is", None)
    try:
        if kind == "map":
            return {key: from_saved(item) for key, item in named["items"]}
        return _CLASSES[str(kind)](**{name: from_saved(item) for name, item in named.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError("the saved configuration", f"{str(kind)[:80]} cannot be read: {error}") from None
