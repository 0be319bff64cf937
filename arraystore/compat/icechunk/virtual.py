"""Virtual chunks: where they may come from, and where one is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from arraystore._session.virtual_references import VirtualChunkSpec
from arraystore.compat.icechunk._display import Record
from arraystore.compat.icechunk._object_stores import S3Options

__all__ = ["VirtualChunkContainer", "VirtualChunkSpec"]


@dataclass(frozen=True, repr=False)
class _Store(Record):
    """A kind of object store."""

    def __init_subclass__(cls) -> None:
        cls._title = f"icechunk.config.ObjectStoreConfig.{cls.__name__}"


@dataclass(frozen=True, repr=False)
class _S3Store(_Store):
    options: S3Options


@dataclass(frozen=True, repr=False)
class _CloudStore(_Store):
    opts: Mapping[str, str] | None = field(default=None, hash=False)


class ObjectStoreConfig:
    """Kinds of object stores that virtual chunks come from."""

    @dataclass(frozen=True, repr=False)
    class InMemory(_Store):
        """The memory of this process."""

    @dataclass(frozen=True, repr=False)
    class LocalFileSystem(_Store):
        """A local directory."""

        path: str

    class S3Compatible(_S3Store):
        """A service like S3."""

    class S3(_S3Store):
        """S3."""

    class Tigris(_S3Store):
        """Tigris."""

    class Gcs(_CloudStore):
        """Google Cloud Storage."""

    class Azure(_CloudStore):
        """Azure."""

    @dataclass(frozen=True, repr=False)
    class Http(_CloudStore):
        """HTTP."""

        headers: Mapping[str, str] | None = field(default=None, hash=False)


AnyObjectStoreConfig = (
    ObjectStoreConfig.InMemory
    | ObjectStoreConfig.LocalFileSystem
    | ObjectStoreConfig.S3
    | ObjectStoreConfig.S3Compatible
    | ObjectStoreConfig.Gcs
    | ObjectStoreConfig.Azure
    | ObjectStoreConfig.Tigris
    | ObjectStoreConfig.Http
)


@dataclass(repr=False, unsafe_hash=True)
class VirtualChunkContainer(Record):
    """Sources of virtual chunks: a prefix of URLs, and the object store that has it."""

    _title: ClassVar[str] = "icechunk.virtual.VirtualChunkContainer"

    url_prefix: str
    store: Any
    name: str | None = None
