"""Small objects: the repository itself, tags, hints, and the names of branches and tags in keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from arraystore._format.envelope import Kind, check_plain, check_time, encode_object, pack_body, read_object, read_tuple
from arraystore._format.ids import ID_BYTES, id_to_text
from arraystore._format.layer import read_id
from arraystore.errors import FormatError, InvalidInputError

__all__ = [
    "REPOSITORY_KEY",
    "Hint",
    "RepositoryInfo",
    "branch_prefix",
    "branches_prefix",
    "decode_hint",
    "decode_repository",
    "encode_hint",
    "encode_repository",
    "hint_key",
    "history_prefix",
    "name_from_key",
    "name_in_key",
    "read_name",
    "refs_prefix",
]

REPOSITORY_KEY = "repo"
_LONGEST_NAME = 200


def name_in_key(name: str) -> str:
    """Return the form of a branch's or tag's name that stands in keys: one path part, percent-encoded.

    Raises
    ------
    InvalidInputError
        If the name is empty, no text, or too long for a file name.
    """
    if not isinstance(name, str) or not name:
        raise InvalidInputError("a branch or tag needs a name that is not empty")
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise InvalidInputError(f"the name {name!r} contains control characters")
    try:
        encoded = quote(name, safe="")
    except UnicodeEncodeError:
        raise InvalidInputError(f"the name {name!r} is not valid unicode") from None
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) > _LONGEST_NAME:
        raise InvalidInputError(f"the name {name[:40]!r}… is too long: {len(encoded)} of {_LONGEST_NAME} bytes")
    return encoded


def read_name(name: str, value: str) -> str:
    """Check the name of a branch or tag in a body; raises `FormatError`."""
    try:
        name_in_key(value)
    except InvalidInputError as error:
        raise FormatError(name, str(error)) from None
    return value


def name_from_key(part: str) -> str:
    """Undo `name_in_key`."""
    return unquote(part)


def refs_prefix(repository: bytes) -> str:
    """Return what the keys of all logs of a repository start with.

    They name its id, so that what a session of another repository, one that was here before, writes late is nowhere
    in the way.
    """
    return f"refs/{id_to_text(repository)}/"


def branches_prefix(repository: bytes) -> str:
    """Return what the keys of the logs of all branches start with."""
    return f"{refs_prefix(repository)}branch/"


def branch_prefix(repository: bytes, branch: str) -> str:
    """Return what the keys of a branch's records start with."""
    return f"{branches_prefix(repository)}{name_in_key(branch)}/"


def history_prefix(repository: bytes, branch: str) -> str:
    """Return what the keys of a branch's history pages and survivors start with."""
    return f"history/{id_to_text(repository)}/{name_in_key(branch)}/"


def hint_key(branch: str) -> str:
    """Return the key of a branch's hint."""
    return f"hints/{name_in_key(branch)}"


@dataclass(frozen=True)
class RepositoryInfo:
    """What the object ``repo`` says: that there is a repository, which one, and how it was configured at first."""

    id: bytes
    time: int
    config: dict[str, Any]


def encode_repository(info: RepositoryInfo) -> bytes:
    """Return the object ``repo``."""
    return encode_object(Kind.REPOSITORY, pack_body((info.id, info.time, info.config)))


def decode_repository(name: str, data: bytes | bytearray | memoryview) -> RepositoryInfo:
    """Read the object ``repo``; raises `FormatError`."""
    identifier, time, config = read_tuple(name, read_object(name, Kind.REPOSITORY, data), bytes, int, dict)
    return RepositoryInfo(read_id(name, identifier), check_time(name, time), check_plain(name, config))


@dataclass(frozen=True)
class Hint:
    """Where to start looking for the tip of a branch; may be stale or missing.

    Parameters
    ----------
    sequence
        Number of a record that exists.
    checkpoint
        Id of the checkpoint of that record.
    settings
        Number of the newest repository record that its writer knew.
    repository
        Id of the repository; its key does not tell.
    """

    sequence: int
    checkpoint: bytes
    settings: int = 0
    repository: bytes = bytes(ID_BYTES)


def encode_hint(hint: Hint) -> bytes:
    """Return the object for a hint."""
    return encode_object(Kind.HINT, pack_body((hint.repository, hint.sequence, hint.checkpoint, hint.settings)))


def decode_hint(name: str, data: bytes | bytearray | memoryview) -> Hint:
    """Read a hint; raises `FormatError`."""
    repository, sequence, checkpoint, settings = read_tuple(
        name, read_object(name, Kind.HINT, data), bytes, int, bytes, int
    )
    if sequence < 0 or settings < 0:
        raise FormatError(name, "a negative number of a record")
    return Hint(sequence, read_id(name, checkpoint), settings, read_id(name, repository))
