"""Where the contenders write: all of one case on the same file system, in memory, or on the same S3 server."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Place", "PlaceMaker", "S3Server"]


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server to talk to, with the keys of a throw-away identity."""

    endpoint_url: str
    bucket: str
    access_key_id: str
    secret_access_key: str
    region: str = "us-east-1"


@dataclass(frozen=True, slots=True)
class Place:
    """One empty prefix. Exactly one of `path` and `server` is set, or neither for memory."""

    kind: str
    path: Path | None = None
    server: S3Server | None = None
    prefix: str = ""

    @property
    def directory(self) -> Path:
        """The directory of a local place."""
        if self.path is None:
            raise ValueError(f"a {self.kind} place has no directory; this case needs --storage local")
        return self.path


@dataclass(frozen=True, slots=True)
class PlaceMaker:
    """Gives out fresh places of one kind."""

    kind: str
    root: Path
    server: S3Server | None = None

    @contextmanager
    def fresh(self) -> Iterator[Place]:
        """One empty place, cleared away afterwards."""
        name = uuid.uuid4().hex[:12]
        if self.kind == "local":
            path = Path(tempfile.mkdtemp(prefix="bench-", dir=self.root))
            try:
                yield Place("local", path=path)
            finally:
                shutil.rmtree(path, ignore_errors=True)
        elif self.kind == "s3":
            yield Place("s3", server=self.server, prefix=name)
        else:
            yield Place("memory", prefix=name)
