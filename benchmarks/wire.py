"""Counting requests on the wire: a proxy between a client and the S3 server that records every request.

Counting outside of the clients treats all alike, and what a client retries, probes or copies cannot hide.
Each request is held back for a fixed delay, so that requests sent together overlap visibly and requests that wait for
one another do not: the greatest number of requests of which none overlap is the number of round trips.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from benchmarks.places import S3Server

__all__ = ["Request", "Wire", "counted"]

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "te", "upgrade"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as seen by the proxy; times are those of one monotonic clock."""

    method: str
    path: str
    status: int
    started: float
    ended: float
    sent: int
    received: int


@dataclass(slots=True)
class Wire:
    """What passed through a proxy."""

    server: S3Server
    requests: list[Request] = field(default_factory=list)

    def take(self) -> list[Request]:
        """The requests since the last call."""
        taken, self.requests = self.requests, []
        return taken

    @staticmethod
    def round_trips(requests: list[Request]) -> int:
        """How many requests followed one another, at the least: the length of the longest chain of disjoint ones."""
        trips, free_at = 0, 0.0
        for request in sorted(requests, key=lambda one: one.ended):
            if request.started >= free_at:
                trips += 1
                free_at = request.ended
        return trips

    @staticmethod
    def summary(requests: list[Request]) -> str:
        """For instance ``3 GET, 1 PUT``."""
        counts = Counter(request.method for request in requests)
        return ", ".join(f"{count} {method}" for method, count in sorted(counts.items())) or "none"


def _handler(wire: Wire, upstream: str, delay: float) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        _upstream: http.client.HTTPConnection | None = None

        def log_message(self, *args: Any) -> None:
            """The list of requests is the log."""

        def forward(self) -> None:
            """Send the request on, after the delay, and its answer back."""
            started = time.monotonic()
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length) if length else None
            if delay:
                time.sleep(delay)
            if self._upstream is None:
                self._upstream = http.client.HTTPConnection(upstream, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
            self._upstream.request(self.command, self.path, body=body, headers=headers)
            answer = self._upstream.getresponse()
            payload = answer.read()
            wire.requests.append(
                Request(self.command, self.path, answer.status, started, time.monotonic(), length, len(payload))
            )
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_BY_HOP and (name.lower() != "content-length" or self.command == "HEAD"):
                    self.send_header(name, value)
            if self.command != "HEAD" and answer.status not in (204, 304):
                self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(payload)

    # The names by which the base class finds what serves a method.
    for method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.forward)
    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def counted(server: S3Server, delay: float = 0.0) -> Iterator[Wire]:
    """Put a counting proxy before `server`; the wire's own `server` is the one that clients should talk to."""
    wire = Wire(server)
    proxy = _Server(("127.0.0.1", 0), _handler(wire, urlsplit(server.endpoint_url).netloc, delay))
    wire.server = replace(server, endpoint_url=f"http://127.0.0.1:{proxy.server_address[1]}")
    thread = threading.Thread(target=proxy.serve_forever, name="counting-proxy", daemon=True)
    thread.start()
    try:
        yield wire
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
