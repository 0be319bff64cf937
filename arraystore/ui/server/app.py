"""The application: files of the page, and views as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from arraystore._repository.repository import Repository
from arraystore.ui.assets import Asset, page_assets
from arraystore.ui.server.answers import Answer, answer
from arraystore.ui.server.guard import Guard

__all__ = ["make_app"]

_AT_ONCE = 8
"""Views that are computed at a time; others wait."""


def make_app(repository: Repository, token: str, hosts: Iterable[str]) -> ASGIApp:
    """Return the application for one repository, which answers requests with the token to these hosts."""
    room = asyncio.Semaphore(_AT_ONCE)
    assets = page_assets()

    async def compute(request: Request) -> Answer:
        async with room:
            return await answer(repository, request.path_params["name"], dict(request.query_params))

    async def view(request: Request) -> Response:
        found = await _unless_gone(request, compute(request))
        if found is None:
            return PlainTextResponse("the client has gone", 499)
        body = json.dumps(found.body, allow_nan=False, separators=(",", ":"))
        return Response(body.encode(errors="replace"), found.status, media_type="application/json")

    async def file(request: Request) -> Response:
        return _file(assets.get(request.path_params.get("name", "index.html")))

    routes = [Route("/", file), Route("/api/{name}", view), Route("/{name}", file)]
    pages = Starlette(routes=routes)
    pages.router.redirect_slashes = False  # it would lead past the token
    return Guard(pages, token, hosts)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Answer]) -> Answer | None:
    """Return an answer; None, without any more work for it, once its client has gone."""
    answering, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return answering.result() if answering.done() else None
    finally:
        answering.cancel()
        leaving.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _file(asset: Asset | None) -> Response:
    if asset is None:
        return PlainTextResponse("not found", 404)
    return Response(asset.data, media_type=asset.media_type)
