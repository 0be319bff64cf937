"""Answers of the server: a view for each name, as JSON with what it cost, or an error that a page can show."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from arraystore._repository.repository import Repository
from arraystore._runtime import submit
from arraystore.errors import ArrayStoreError, InvalidInputError, NotFoundError, PermissionDeniedError, StorageError
from arraystore.ui.tally import tally
from arraystore.ui.views import (
    chunk_map,
    conflicts,
    differences,
    hierarchy,
    history,
    overview,
    preview,
    storage_use,
    value_difference,
)
from arraystore.ui.views.json_value import json_value
from arraystore.ui.views.limits import MAX_COMMITS

__all__ = ["VIEWS", "Answer", "answer"]

_PATIENCE = 120.0
"""Seconds that a view may take."""

_LONGEST = 8_192
"""Characters of one parameter: a path has at most 4,096."""

_INTEGERS = re.compile(r"[0-9]{1,19}(?:,[0-9]{1,19}){0,63}")
_MESSAGE = 4_000


@dataclass(frozen=True)
class Answer:
    """Body of a response, and its status."""

    status: int
    body: dict[str, Any]


class Parameters:
    """Parameters of a request, checked as they are asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str, default: str | None = None) -> str:
        """Return a parameter; raises `InvalidInputError` if it is missing or too long."""
        value = self._values.get(name, default)
        if value is None:
            raise InvalidInputError(f"the parameter {name!r} is missing")
        if len(value) > _LONGEST:
            raise InvalidInputError(f"the parameter {name!r} must have at most {_LONGEST:,} characters")
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return integers >= 0 that are separated by commas; None if the parameter is missing or empty."""
        value = self._values.get(name, "")
        if not value:
            return None
        if _INTEGERS.fullmatch(value) is None:
            raise InvalidInputError(f"{name}={value[:80]!r} must be integers >= 0, at most 64, separated by commas")
        return tuple(map(int, value.split(",")))

    def integer(self, name: str, default: int) -> int:
        """Return an integer >= 0."""
        values = self.integers(name) or (default,)
        return values[0]


View = Callable[[Repository, Parameters], Awaitable[Any]]

VIEWS: Mapping[str, View] = {
    "overview": lambda repo, p: overview.repository_overview(repo),
    "history": lambda repo, p: history.history(repo, p.integer("limit", MAX_COMMITS)),
    "snapshot": lambda repo, p: history.snapshot(repo, p.text("id")),
    "tree": lambda repo, p: hierarchy.tree(repo, p.text("at")),
    "node": lambda repo, p: hierarchy.node(repo, p.text("at"), p.text("path", "")),
    "chunks": lambda repo, p: chunk_map.chunk_map(
        repo, p.text("at"), p.text("path"), p.integers("axes"), p.integers("index")
    ),
    "preview": lambda repo, p: preview.preview(
        repo, p.text("at"), p.text("path"), p.integers("axes"), p.integers("index")
    ),
    "diff": lambda repo, p: differences.differences(repo, p.text("from"), p.text("to")),
    "diff-node": lambda repo, p: differences.node_difference(
        repo, p.text("from"), p.text("to"), p.text("path", ""), p.integers("axes"), p.integers("index")
    ),
    "diff-values": lambda repo, p: value_difference.value_difference(
        repo, p.text("from"), p.text("to"), p.text("path"), p.integers("axes"), p.integers("index")
    ),
    "storage": lambda repo, p: storage_use.storage_use(
        repo, p.text("at"), None if p.integers("within") is None else p.integer("within", 0) / 1000
    ),
    "objects": lambda repo, p: storage_use.objects_in_use(repo, p.text("branch")),
    "garbage": lambda repo, p: storage_use.reclaimable(repo),
    "conflicts": lambda repo, p: conflicts.conflicts_of(repo, p.text("ours"), p.text("onto")),
}
"""Views by name, each with the parameters that it takes; all of them only read."""


async def answer(repository: Repository, name: str, values: Mapping[str, str]) -> Answer:
    """Compute a view on the loop of arraystore, and return it as JSON or as an error; raises no error itself."""
    began = time.perf_counter()
    with tally() as counted:
        try:
            result = await asyncio.wait_for(asyncio.wrap_future(submit(_compute(repository, name, values))), _PATIENCE)
            status, body = 200, {"result": result}
        except ArrayStoreError as error:
            status, body = _status_of(error), _error_body(type(error).__name__, error.kind, error)
        except TimeoutError:
            text = f"this view took more than {_PATIENCE:.0f} seconds, and was given up"
            status, body = 504, _error_body("TimeoutError", "timeout", text)
        except Exception as error:  # noqa: BLE001 - what a hostile repository makes zarr raise is shown, not raised
            status, body = 500, _error_body(type(error).__name__, "unexpected", error)
    cost = {"requests": counted.requests, "bytes": counted.bytes_read, "seconds": time.perf_counter() - began}
    return Answer(status, {**body, "cost": cost})


async def _compute(repository: Repository, name: str, values: Mapping[str, str]) -> Any:
    view = VIEWS.get(name)
    if view is None:
        raise NotFoundError(f"there is no view {name[:80]!r}")
    return json_value(await view(repository, Parameters(values)))


def _status_of(error: ArrayStoreError) -> int:
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, PermissionDeniedError):
        return 403
    if isinstance(error, InvalidInputError):
        return 400
    return 502 if isinstance(error, StorageError) else 422


def _error_body(kind: str, code: str, error: object) -> dict[str, Any]:
    return {"error": {"type": kind, "kind": code, "message": str(error)[:_MESSAGE]}}
