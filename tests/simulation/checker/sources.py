"""Sources of virtual chunks: what each had when, and who was told in vain that it has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from tests.simulation.checker.logs import Logs
from tests.simulation.checker.states import lookup
from tests.simulation.checker.violations import Violation
from tests.simulation.observations import Observations, SourceLost, SourceVersion

__all__ = ["Sources", "groundless_losses"]

_RULE = "reads"


class Sources:
    """All versions of all sources, by URL."""

    def __init__(self, versions: Sequence[SourceVersion] = ()) -> None:
        self._versions: dict[str, list[SourceVersion]] = {}
        for version in versions:
            self._versions.setdefault(version.url, []).append(version)

    def read(self, url: str, etag: str, modified: int, start: int, stop: int) -> bytes:
        """Return bytes of a source in the state that a reference says."""
        for version in self._versions.get(url, ()):
            if version.data is not None and _fits(version.data, version.time, etag, modified):
                return version.data[start:stop]
        raise ValueError(f"{url} never was in the state {etag!r}, {modified}")

    def has_changed(self, url: str, chunk: bytes, until: float) -> bool:
        """Tell whether a source that once held a chunk was anything else after that, up to some time."""
        versions = self._versions.get(url, ())
        held = [at for at, each in enumerate(versions) if each.data is not None and chunk in each.data]
        return bool(held) and any(each.time <= until for each in versions[held[0] + 1 :])


def _fits(data: bytes, time: float, etag: str, modified: int) -> bool:
    return hashlib.sha256(data).hexdigest()[:32] == etag if etag else round(time * 1_000_000) == modified


def groundless_losses(logs: Logs, notes: Observations, sources: Sources) -> Iterator[Violation]:
    """Check everybody who was told that the source of a committed chunk has changed."""
    for seen in notes.seen:
        if isinstance(seen, SourceLost) and not seen.position:
            snapshot = logs.snapshot(seen.snapshot)
            chunk = None if snapshot is None else lookup(snapshot.nodes, seen.key)
            if chunk is None or not sources.has_changed(seen.url, chunk, seen.ended):
                what = f"{seen.process} was told at {seen.ended:.3f} that {seen.url} has changed, which {seen.key!r} "
                yield Violation(_RULE, what + "does not refer to, or which had not", seen.snapshot)
