"""What an error of the object store client means, told from its type and the first line of its text."""

from __future__ import annotations

import enum
import re
from typing import Any

__all__ = ["Verdict", "first_line", "judge", "refused_at_once", "remedy"]

_URL_QUERY = re.compile(r"\?[^\s)\"']+")
_BROKEN_OFF = re.compile(r"HTTP error|RequestTimeout|response body")
_RETRIES_SPENT = re.compile(r"after \d+ retries")


class Verdict(enum.Enum):
    """What to do about an error."""

    MISSING = "missing"
    EXISTS = "exists"
    PASSING = "passing"
    """Worth another attempt, which the client itself has not made."""
    FINAL = "final"


def first_line(error: BaseException) -> str:
    """The error's own words, without the client's internals and without queries, which can hold signatures."""
    text = str(error).strip()
    # A server's answer may go over several lines; the client's debug dump follows an empty one.
    return " ".join(_URL_QUERY.sub("?…", text.partition("\n\nDebug source")[0]).split())[:600]


def judge(error: BaseException, exceptions: Any) -> Verdict:
    """Classify an error.

    Parameters
    ----------
    error
        What the client raised.
    exceptions
        The client's own exception classes: a copy of the client has others.
    """
    text = str(error).partition("\n\nDebug source")[0]
    if isinstance(error, FileNotFoundError):
        return Verdict.FINAL if "NoSuchBucket" in text or "ContainerNotFound" in text else Verdict.MISSING
    if isinstance(error, exceptions.AlreadyExistsError):
        return Verdict.EXISTS
    # The client repeats server errors and connection errors by itself, but not a conditional write whose answer did not
    # come, nor a response that broke off.
    passing = (
        isinstance(error, exceptions.GenericError) and _BROKEN_OFF.search(text) and not _RETRIES_SPENT.search(text)
    )
    return Verdict.PASSING if passing else Verdict.FINAL


_REMEDIES = (
    ("NoSuchBucket", "create the bucket, or correct its name"),
    ("ContainerNotFound", "create the container, or correct its name"),
    ("SignatureDoesNotMatch", "check the secret key and the region"),
    ("InvalidAccessKeyId", "check the access key"),
    ("ExpiredToken", "get fresh credentials, or give get_credentials so that they are renewed"),
    ("RequestTimeTooSkewed", "set the clock of this machine"),
    ("without LOCATION", "give the region that the bucket is in"),
    ("AuthorizationHeaderMalformed", "give the region that the bucket is in"),
    ("416", "the object is shorter than the reference says: it is not the object that the reference was made for"),
    ("not supported", "use another backend or another endpoint"),
    ("URL scheme is not allowed", "use an https endpoint, or allow_http=True"),
    ("credential", "check the credentials: give keys, get_credentials, from_env=True or anonymous=True"),
    ("error sending request", "check the endpoint, the network and the time limits"),
    ("after ", "try again later, or raise the limits in StorageSettings"),
)


def remedy(error: BaseException, exceptions: Any) -> str:
    """What the user can do."""
    text = first_line(error)
    for sign, advice in _REMEDIES[:6]:
        if sign in text:
            return advice
    if isinstance(error, exceptions.PermissionDeniedError):
        return "check the credentials and the bucket's policy"
    if isinstance(error, exceptions.UnauthenticatedError):
        return "check the credentials: give keys, get_credentials, from_env=True or anonymous=True"
    for sign, advice in _REMEDIES[6:]:
        if sign in text:
            return advice
    return "check the endpoint, the bucket and the credentials"


_NO_RETRY = re.compile(r"\n\s+retries: 0,\n")
_REFUSED = re.compile(r"\n\s+status: 412,\n")


def refused_at_once(error: Exception) -> bool:
    """Tell whether a conditional write was refused with 412 by the first answer that the client got.

    The client repeats requests by itself, and after a lost answer a 412 may be due to its own first one.  Only the
    text of the error tells; where that is worded otherwise, this is False, and the object has to be read to be sure.
    """
    text = str(error)
    return bool(_NO_RETRY.search(text) and _REFUSED.search(text))
