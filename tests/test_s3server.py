"""The S3 servers of the test-suite keep what the storage tests rely on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import botocore.exceptions
import pytest

from tests import s3server
from tests.s3server import S3Server

pytestmark = pytest.mark.xdist_group("s3server")


@pytest.fixture(params=["s3_server", "minio_server"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


def test_buckets_are_new_and_empty(server: S3Server) -> None:
    first, second = server.new_bucket(), server.new_bucket()
    assert first != second
    assert "Contents" not in server.client().list_objects_v2(Bucket=first)


def test_put_if_absent_has_exactly_one_winner_among_sixteen(server: S3Server) -> None:
    client, bucket = server.client(), server.new_bucket()

    def attempt(number: int) -> int:
        try:
            client.put_object(Bucket=bucket, Key="race", Body=b"%d" % number, IfNoneMatch="*")
        except botocore.exceptions.ClientError as error:
            return error.response["ResponseMetadata"]["HTTPStatusCode"]
        return 200

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(attempt, range(16)))
    winners = [number for number, status in enumerate(outcomes) if status == 200]
    assert len(winners) == 1
    assert set(outcomes) <= {200, 409, 412}
    assert client.get_object(Bucket=bucket, Key="race")["Body"].read() == b"%d" % winners[0]


def test_a_run_has_one_server_for_all_who_ask(s3_server: S3Server) -> None:
    assert s3server.shared_server(s3server.SEAWEEDFS) == s3_server


def test_the_secret_is_not_in_the_repr(s3_server: S3Server) -> None:
    assert s3_server.secret_access_key not in repr(s3_server)


def test_a_killed_run_leaves_no_server_behind(tmp_path: Path) -> None:
    program = (
        "import sys; from tests import s3server\n"
        "with s3server.open_run() as run:\n"
        "    print(s3server.shared_server('seaweedfs').endpoint_url, run, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    root = Path(__file__).parents[1]
    owner = subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(root), "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    endpoint_url, run = owner.stdout.readline().split()
    server = S3Server(s3server.SEAWEEDFS, endpoint_url, "", "")
    assert s3server.accepts_connections(server)
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    limit = time.monotonic() + 15
    while s3server.accepts_connections(server) or (Path(run) / "seaweedfs").exists():
        assert time.monotonic() < limit, "the server outlived its run"
        time.sleep(0.05)
