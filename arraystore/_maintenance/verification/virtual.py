"""Verification of virtual chunks: invalid locations, changed sources, and unreachable ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from arraystore._chunks.reader import ChunkReader
from arraystore._chunks.virtual_source import VirtualSource
from arraystore._format.locations import Locations
from arraystore._maintenance.verification.findings import Collector, Use
from arraystore.errors import NotFoundError, SourceChangedError, StorageError, VirtualReferenceError
from arraystore.storage.protocol import ByteRange, BytesLike
from arraystore.storage.source_urls import all_paths_plain, object_path, url_problem

_MOST_PLACES = 1000
_OTHERS = "other places"
_CHANGED_REPAIR = "restore the source, or write the references to it again with set_virtual_refs and commit"
_SOURCE_REPAIR = "restore the object that the chunk refers to, or write the chunk again"
_BAD_REPAIR = "write these chunks again, or references to objects within a container; no reader follows this one"


def report_bad_locations(collector: Collector, name: str, table: Locations, use: Use) -> None:
    """Report the locations of a manifest that could lead out of any container, which are never read."""
    if _surely_good(table):
        return
    for number in range(len(table)):
        url = table.url(number)
        problem = url_problem(url)
        if problem is not None:
            what = f"virtual chunks refer to {url[:200]!r}, which no reader follows: {problem}"
            collector.warning(name, what, _BAD_REPAIR, [use])


def _surely_good(table: Locations) -> bool:
    """Tell whether no location has to be checked by itself."""
    heads = [object_path(prefix) for prefix in table.prefixes if prefix.endswith("/")]
    if len(heads) < len(table.prefixes):
        return False
    suffixes = table.plain_suffixes()
    if not suffixes:
        return suffixes is not None
    return all(head is not None and all_paths_plain([head + "x"]) for head in heads) and all_paths_plain(suffixes)


class UnreadChunks:
    """Numbers of virtual chunks that could not be read, by place and reason; of a thousand places at most."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, place: str, chunks: int) -> None:
        """Add chunks."""
        self.counts[place if place in self.counts or len(self.counts) < _MOST_PLACES else _OTHERS] += chunks


class SourceReader:
    """Reads virtual chunks, and counts those that this process cannot read."""

    def __init__(self, reader: ChunkReader, collector: Collector) -> None:
        self._reader = reader
        self._collector = collector
        self.unread = UnreadChunks()

    async def read(
        self, table: Locations, location: int, ranges: Sequence[ByteRange], use: Use
    ) -> list[BytesLike] | None:
        """Read chunks of one source; None if that fails."""
        url = table.url(location)
        if url_problem(url) is not None:
            return None  # which is reported for the manifest
        try:
            source = self._reader.virtual_source(table, location)
        except VirtualReferenceError:
            self._note(url, "in no container that is open to this process", len(ranges))
            return None
        try:
            return await source.read(ranges)
        except SourceChangedError as error:
            self._collector.error(url, f"chunks cannot be read: {error.message}", _CHANGED_REPAIR, [use])
        except VirtualReferenceError as error:
            self._collector.warning(url, f"no reader follows it: {error.message}", _BAD_REPAIR, [use])
        except (StorageError, NotFoundError) as error:
            if await _reachable(source):
                self._collector.error(url, f"chunks cannot be read: {error}", _SOURCE_REPAIR, [use])
            else:
                self._note(url, str(error), len(ranges))
        return None

    def _note(self, url: str, reason: str, chunks: int) -> None:
        self.unread.add(f"{url.rpartition('/')[0]}/: {reason}", chunks)


async def _reachable(source: VirtualSource) -> bool:
    """Tell whether a source can be read at all, so that its bytes are the reason of a failure."""
    try:
        await source.storage.get_source_ranges(source.key, [])
    except StorageError:
        return False
    except NotFoundError:
        return True
    return True
