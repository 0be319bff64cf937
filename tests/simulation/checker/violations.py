"""What the checker reports."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RULES", "DecodingError", "Violation"]

RULES = {
    "objects": "every object but a hint is written once and never changed, and deleted by collectors only",
    "history": "logs are gap-free and linear, and each record carries what it has to",
    "commits": "every acknowledged commit is there once, every refused one is not, and nobody else's is",
    "content": "every snapshot is what the transactions in its history meant, node by node and chunk by chunk",
    "reads": "every read returned what the history says for its snapshot",
    "isolation": "no two transactions of concurrent bases changed the same thing, unless a solver was told to",
    "serializability": "serializable transactions read what the snapshot before theirs holds",
    "repeats": "what is appended as unique was not there, and nobody is refused for what is not there",
    "hierarchy": "one node a path, parents are groups, chunks are within the grid",
    "real time": "what was acknowledged is seen by all that begins later",
    "derived": "checkpoints, pages, hints and rewrites say what the log says",
    "references": "branches and tags are what their creators were told",
    "retention": "what is kept can be read, whatever is collected, and nothing else stays forever",
    "liveness": "everything that was begun has ended",
}
"""Names of the rules, and what each promises."""


class DecodingError(Exception):
    """An object is missing or not what the format says.

    Parameters
    ----------
    key
        Of the object.
    what
        Is wrong with it.
    """

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"{key}: {what}")
        self.key = key
        self.what = what


@dataclass(frozen=True)
class Violation:
    """Something that must never be.

    Parameters
    ----------
    rule
        One of `RULES`.
    what
        Went wrong, for people.
    where
        Key of an object, id of a snapshot, label of a transaction.
    """

    rule: str
    what: str
    where: str

    def __str__(self) -> str:
        return f"[{self.rule}] {self.where}: {self.what}"
