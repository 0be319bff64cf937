"""Removal of secrets from text that is shown or logged."""

from __future__ import annotations

import os
import re

__all__ = ["redact"]

_USER_IN_URL = re.compile(r"(?<=://)[^/\s@]*:[^/\s]*@|(?i:(?<=https://)|(?<=http://))[^/\s@]+@")
_SECRET_IN_QUERY = re.compile(
    r"(?i)([?&;\s](?:[\w.-]*(?:secret|token|signature|credential|password|access[-_]?key|account[-_]?key)[\w.-]*|sig)=)"
    r"[^&\s'\")]+"
)
_SECRET_VARIABLE = re.compile(r"(?i)secret|token|password|account_key|access_key$|sas|connection_string")
_SHORTEST_SECRET = 8


def redact(text: str) -> str:
    """Redact possible secrets: passwords and signatures in URLs, and values of secret environment variables."""
    text = _USER_IN_URL.sub("***@", text)
    text = _SECRET_IN_QUERY.sub(r"\1***", text)
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_SECRET and _SECRET_VARIABLE.search(name) and "/" not in value[:1]:
            text = text.replace(value, "***")
    return text
