"""Repository object, hints, and prefixes and names of branches and tags in keys."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote, unquote

from arraystore._format.envelope import Kind, check_plain, encode_object, pack_body, read_object
from arraystore._format.ids import ID_BYTES, CheckpointId, id_to_text
from arraystore._format.wire import Id, Time, Wire, read_id, read_number, read_tuple
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError, InvalidInputError

REPOSITORY_KEY = "repo"
_LONGEST_NAME = 200


def name_in_key(name: str) -> str:
    """Encode the name of a branch or tag as one part of a key; raises `InvalidInputError` for an invalid name."""
    if not isinstance(name, str) or not name:
        raise InvalidInputError("the name of a branch or tag must be a non-empty string")
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise InvalidInputError(f"the name {name!r} must not contain control characters")
    try:
        encoded = quote(name, safe="")
    except UnicodeEncodeError:
        raise InvalidInputError(f"the name {name!r} must be valid Unicode") from None
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) > _LONGEST_NAME:
        raise InvalidInputError(
            f"the name {name[:40]!r}… is too long: its {len(encoded)} bytes must be <= {_LONGEST_NAME}"
        )
    return encoded


def read_name(name: str, value: Any) -> str:
    """Check the name of a branch or tag in a body; raises `FormatError`."""
    try:
        name_in_key(value)
    except InvalidInputError as error:
        raise FormatError(name, str(error)) from None
    return str(value)


Name = Annotated[str, read_name]


def name_from_key(part: str) -> str:
    """Decode the name of a branch or tag in a key."""
    return unquote(part)


def refs_prefix(repository: bytes) -> str:
    """Return the prefix of the logs of a repository.

    It contains the id of the repository, so that late writes of sessions of a previous repository in this location do
    not interfere.
    """
    return f"refs/{id_to_text(repository)}/"


def branches_prefix(repository: bytes) -> str:
    """Return the prefix of the logs of all branches."""
    return f"{refs_prefix(repository)}branch/"


def branch_prefix(repository: bytes, branch: str) -> str:
    """Return the prefix of the records of a branch."""
    return f"{branches_prefix(repository)}{name_in_key(branch)}/"


def history_prefix(repository: bytes, branch: str) -> str:
    """Return the prefix of the history pages and survivors of a branch."""
    return f"history/{id_to_text(repository)}/{name_in_key(branch)}/"


def hint_key(branch: str) -> str:
    """Return the key of a branch's hint."""
    return f"hints/{name_in_key(branch)}"


@dataclass(frozen=True)
class RepositoryInfo(Wire):
    """Content of the object ``repo``: id, time of creation and initial configuration of the repository."""

    id: Id
    time: Time
    config: Annotated[dict[str, Any], check_plain]


def encode_repository(info: RepositoryInfo) -> bytes:
    """Encode the object ``repo``."""
    return encode_object(Kind.REPOSITORY, pack_body(info))


def decode_repository(name: str, data: bytes | bytearray | memoryview) -> RepositoryInfo:
    """Decode the object ``repo``; raises `FormatError`."""
    info = RepositoryInfo.from_wire(name, read_object(name, Kind.REPOSITORY, data))
    if type(info.config) is not dict:
        raise FormatError(name, "the configuration must be a map")
    return info


@dataclass(frozen=True)
class Hint:
    """Position to start looking for the tip of a branch at; may be stale or missing."""

    sequence: int
    """Number of an existing record."""
    checkpoint: CheckpointId
    """Id of its checkpoint."""
    settings: int = 0
    """Number of the newest repository record known to the writer."""
    repository: bytes = bytes(ID_BYTES)
    """Id of the repository, which the key of a hint does not contain."""


def encode_hint(hint: Hint) -> bytes:
    """Encode a hint as an object."""
    return encode_object(Kind.HINT, pack_body((hint.repository, hint.sequence, hint.checkpoint, hint.settings)))


def decode_hint(name: str, data: bytes | bytearray | memoryview) -> Hint:
    """Decode a hint; raises `FormatError`."""
    repository, sequence, checkpoint, settings = read_tuple(
        name, read_object(name, Kind.HINT, data), read_id, read_number, read_id, read_number
    )
    return Hint(sequence, checkpoint, settings, repository)
