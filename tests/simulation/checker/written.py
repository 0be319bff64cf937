"""Rule "objects": everything but hints is written once and never changed; nothing but garbage is deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from tests.simulation.checker.violations import Violation

__all__ = ["Happening", "rewritten_objects"]

_RULE = "objects"
_DELETED = "read"
"""What traces say of a request without an answer that has taken effect."""


class Happening(Protocol):
    """An effect on the bucket, as traces tell of it."""

    @property
    def time(self) -> float:
        """Virtual seconds."""
        ...

    @property
    def process(self) -> str:
        """Whose request it was, with the number of its life."""
        ...

    @property
    def operation(self) -> str:
        """What was asked for."""
        ...

    @property
    def key(self) -> str:
        """Of the object; of several, with blanks between them."""
        ...

    @property
    def effect(self) -> str:
        """What came of it."""
        ...


def rewritten_objects(events: Iterable[Happening], collectors: Collection[str] = ()) -> Iterator[Violation]:
    """Check everything that befell objects.

    A request that is repeated, or comes twice, writes the same bytes again; another life of a process has other ids.
    Who wrote an object may delete it, as folds do that came too late; if anything referred to it by then, the content
    tells.  What a collector deletes is judged by whether it was needed; logs and what they are found by are not its.
    """
    writers: dict[str, str] = {}
    for event in events:
        effect = event.effect.partition(",")[0]
        if event.operation == "delete":
            gone = [key for key in event.key.split(" ") if not _is_intent(key)] if effect == _DELETED else []
            if event.process in collectors:
                foreign = [key for key in gone if key == "repo" or _is_of_repository_log(key)]
            else:  # nobody may have named its own yet
                foreign = [key for key in gone if writers.get(key) != event.process]
            yield from (Violation(_RULE, f"{event.process} deleted it", key) for key in foreign)
        elif effect == "written":
            writers[event.key] = event.process
        elif effect == "overwritten" and not event.key.startswith("hints/"):
            writer = writers.get(event.key, "")
            if writer != event.process:
                yield Violation(_RULE, f"{event.process} overwrote what {writer or 'somebody'} had written", event.key)


def _is_intent(key: str) -> bool:
    return key.startswith("refs/") and "-" in key.rpartition("/")[2]


def _is_of_repository_log(key: str) -> bool:
    return key.startswith("refs/") and key.split("/")[2:3] == ["repository"]
