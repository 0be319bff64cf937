"""The application: files of the page, and views as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from arraystore._repository.repository import Repository
from arraystore.ui.assets import Asset, page_assets
from arraystore.ui.server.answers import answer
from arraystore.ui.server.guard import Guard

__all__ = ["make_app"]

_AT_ONCE = 8
"""Views that are computed at a time; others wait."""


def make_app(repository: Repository, token: str, hosts: Iterable[str]) -> ASGIApp:
    """Return the application for one repository.

    Parameters
    ----------
    repository
        The repository, opened to be looked at.
    token
        First part of every path.
    hosts
        Values of the header ``Host`` that are answered.
    """
    room = asyncio.Semaphore(_AT_ONCE)
    assets = page_assets()

    async def view(request: Request) -> Response:
        async with room:
            found = await answer(repository, request.path_params["name"], dict(request.query_params))
        body = json.dumps(found.body, allow_nan=False, separators=(",", ":"))
        return Response(body.encode(errors="replace"), found.status, media_type="application/json")

    async def file(request: Request) -> Response:
        return _file(assets.get(request.path_params.get("name", "index.html")))

    routes = [Route("/", file), Route("/api/{name}", view), Route("/{name}", file)]
    pages = Starlette(routes=routes)
    pages.router.redirect_slashes = False  # it would lead past the token
    return Guard(pages, token, hosts)


def _file(asset: Asset | None) -> Response:
    if asset is None:
        return PlainTextResponse("not found", 404)
    return Response(asset.data, media_type=asset.media_type)
