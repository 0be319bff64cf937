"""Classification of the object store client's errors, by type and first line of the message."""

from __future__ import annotations

import enum
import re
from typing import Any

__all__ = ["ErrorKind", "classify_error", "first_line", "is_refusal", "is_throttled", "remedy"]

_URL_QUERY = re.compile(r"\?[^\s)\"']+")
_TRANSIENT = re.compile(
    r"HTTP error|RequestTimeout|response body|error response|non-2xx status code: (?:408|429|5(?!01|05)\d\d)"
)
_THROTTLED = re.compile(r"non-2xx status code: (?:429|503)|<Code>SlowDown<")
_RETRIES_EXHAUSTED = re.compile(r"after \d+ retries")


class ErrorKind(enum.Enum):
    """Kind of a client error."""

    MISSING = "missing"
    EXISTS = "exists"
    TRANSIENT = "transient"
    """Worth a retry."""
    FINAL = "final"


def first_line(error: BaseException) -> str:
    """Return the error's message without debug output and queries, which may contain signatures."""
    text = str(error).strip()
    # A server's response may have several lines; the client's debug output follows an empty one.
    return " ".join(_URL_QUERY.sub("?…", text.partition("\n\nDebug source")[0]).split())[:600]


def _message(error: BaseException) -> str:
    return str(error).partition("\n\nDebug source")[0]


def classify_error(error: BaseException, exceptions: Any) -> ErrorKind:
    """Classify an error of the client, given its exception classes, which differ for a copy of the client."""
    text = _message(error)
    if isinstance(error, FileNotFoundError):
        return ErrorKind.FINAL if "NoSuchBucket" in text or "ContainerNotFound" in text else ErrorKind.MISSING
    if isinstance(error, exceptions.AlreadyExistsError):
        return ErrorKind.EXISTS
    # The client retries uploads in parts by itself, and nothing else.
    transient = (
        isinstance(error, exceptions.GenericError) and _TRANSIENT.search(text) and not _RETRIES_EXHAUSTED.search(text)
    )
    return ErrorKind.TRANSIENT if transient else ErrorKind.FINAL


def is_throttled(error: BaseException) -> bool:
    """Return whether the service asked to slow down."""
    return not isinstance(error, FileNotFoundError) and bool(_THROTTLED.search(_message(error)))


_REMEDIES = (
    ("NoSuchBucket", "create the bucket, or correct its name"),
    ("ContainerNotFound", "create the container, or correct its name"),
    ("SignatureDoesNotMatch", "check the secret key and the region"),
    ("InvalidAccessKeyId", "check the access key"),
    ("ExpiredToken", "get new credentials, or pass get_credentials so that they are refreshed"),
    ("RequestTimeTooSkewed", "set the clock of this machine"),
    ("without LOCATION", "pass the region of the bucket"),
    ("AuthorizationHeaderMalformed", "pass the region of the bucket"),
    (
        "status code: 416",
        "the object is shorter than the reference requires: it is not the object that the reference was written for",
    ),
    ("not supported", "use another backend or another endpoint"),
    ("URL scheme is not allowed", "use an https endpoint, or pass allow_http=True"),
    ("credential", "check the credentials: pass keys, get_credentials, from_env=True or anonymous=True"),
    ("error sending request", "check the endpoint, the network and the timeouts"),
    ("status code: 5", "try again later, or raise the limits in StorageSettings"),
    ("status code: 429", "try again later, or raise the limits in StorageSettings"),
    ("after ", "try again later, or raise the limits in StorageSettings"),
)


def remedy(error: BaseException, exceptions: Any) -> str:
    """Return advice for the user."""
    text = first_line(error)
    for sign, advice in _REMEDIES[:6]:
        if sign in text:
            return advice
    if isinstance(error, exceptions.PermissionDeniedError):
        return "check the credentials and the bucket's policy"
    if isinstance(error, exceptions.UnauthenticatedError):
        return "check the credentials: pass keys, get_credentials, from_env=True or anonymous=True"
    for sign, advice in _REMEDIES[6:]:
        if sign in text:
            return advice
    return "check the endpoint, the bucket and the credentials"


_REFUSED = re.compile(r"\n\s+status: 412,\n")


def is_refusal(error: Exception) -> bool:
    """Return whether a conditional write was answered with 412, not with a conflict of two writers (409).

    Only the error message tells; if its wording differs, this is False, and the object must be read.
    """
    return bool(_REFUSED.search(str(error)))
