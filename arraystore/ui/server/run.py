"""Serving the page on the loopback interface."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arraystore._runtime.extras import check_extra
from arraystore.errors import InvalidInputError
from arraystore.storage.protocol import Storage

__all__ = ["PageServer", "serve"]

_LOOPBACK = "127.0.0.1"
_HTTP = 80


@dataclass(frozen=True)
class PageServer:
    """Server that is ready to run."""

    url: str
    """Address of the page, with its token."""
    run: Callable[[], None]
    """Serves until it is interrupted."""
    stop: Callable[[], None]
    """Ends `run`, from another thread."""


def prepare(storage: Storage, *, port: int = 0, authorize: Sequence[str] = ()) -> PageServer:
    """Open a repository and a port for its page.

    Raises
    ------
    ModuleNotFoundError
        If the packages of the extra ``ui`` are not installed.
    InvalidInputError
        If the port is not free.
    RepositoryNotFoundError
        If there is no repository.
    """
    check_extra("arraystore ui", "ui", "starlette", "uvicorn", "cftime")
    import uvicorn

    from arraystore.ui.opening import open_to_look
    from arraystore.ui.server.app import make_app

    repository = open_to_look(storage, authorize)
    bound = _bind(port)
    number = bound.getsockname()[1]
    token = secrets.token_urlsafe(24)
    ports = ["", f":{number}"] if number == _HTTP else [f":{number}"]  # browsers leave out the port of HTTP
    app = make_app(repository, token, [f"{name}{port}" for name in (_LOOPBACK, "localhost") for port in ports])
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none",
        limit_concurrency=128, timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)

    def stop() -> None:
        server.should_exit = True

    return PageServer(f"http://{_LOOPBACK}:{number}/{token}/", lambda: server.run(sockets=[bound]), stop)


def _bind(port: int) -> socket.socket:
    if not 0 <= port < 1 << 16:
        raise InvalidInputError(f"port={port} must be >= 0 and < 65536")
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((_LOOPBACK, port))
        bound.listen()  # a browser that is opened at once waits, and is not refused
    except OSError as error:
        bound.close()
        raise InvalidInputError(
            f"port {port} of {_LOOPBACK} cannot be opened ({error.strerror}): choose another one, or 0"
        ) from error
    return bound


def serve(
    storage: Storage,
    *,
    port: int = 0,
    authorize: Sequence[str] = (),
    started: Callable[[str], None] = print,
) -> None:
    """Serve a page to look at a repository, on this machine only, until it is interrupted.

    Parameters
    ----------
    storage
        Where the repository is; nothing is written to it.
    port
        Port on the loopback interface; 0 for any free one.
    authorize
        Containers of virtual chunks that previews may read, with the credentials of the environment.
    started
        Called with the address of the page, which has a secret in it.

    Raises
    ------
    RepositoryNotFoundError
        If there is no repository.
    InvalidInputError
        If the port is not free.
    """
    server = prepare(storage, port=port, authorize=authorize)
    started(server.url)
    server.run()
