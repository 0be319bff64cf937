"""Checks that every request passes: names of this machine, the token, and headers that keep a page to itself."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["CONTENT_SECURITY_POLICY", "Guard"]

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""No script or style but the files of the page, no request but to its server, and no text ever taken for markup."""

_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}

_METHODS = {"GET", "HEAD"}


class Guard:
    """Application in front of another one, which sees only requests with the token first, to a name of this machine.

    A page elsewhere whose name resolves to this machine (DNS rebinding) sends its own name as ``Host``.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        respond = _with_headers(send)
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, respond)
            return
        path = scope["path"][len(self._token) + 1 :]
        await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, respond)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        if Headers(scope=scope).get("host", "").lower() not in self._hosts:
            return PlainTextResponse("this address is not one of this server", 421)
        if scope["method"] not in _METHODS:
            return PlainTextResponse("this page only reads", 405, {"Allow": ", ".join(sorted(_METHODS))})
        token, slash, _ = scope["path"][1:].partition("/")
        if not slash or not secrets.compare_digest(token.encode(), self._token.encode()):
            return PlainTextResponse("not found: open the address that arraystore ui has printed", 404)
        return None


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def respond(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Any = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
        await send(message)

    return respond
