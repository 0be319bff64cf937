"""A pipeline into a bucket: executors find the credentials in their environment, and nothing else knows them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
import pytest

from arraystore import Storage, s3_storage
from tests.s3server import S3Server
from tests.spark.clusters.drivers import pipeline_in_bucket
from tests.spark.clusters.masters import Cluster
from tests.spark.clusters.model import ROWS, collected, cube, history, new_repository, numbers
from tests.spark.clusters.processes import running_driver

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-clusters"), pytest.mark.timeout(900)]

PREFIX = "climate/cube"


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture
def storage(s3_server: S3Server, bucket: str) -> Storage:
    return s3_storage(
        bucket=bucket,
        prefix=PREFIX,
        region=s3_server.region,
        endpoint_url=s3_server.endpoint_url,
        allow_http=True,
        access_key_id=s3_server.access_key_id,
        secret_access_key=s3_server.secret_access_key,
    )


def test_a_pipeline_into_a_bucket_tells_nobody_the_credentials(
    workers: Cluster, storage: Storage, s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    new_repository(storage)
    place = {"endpoint_url": s3_server.endpoint_url, "region": s3_server.region, "allow_http": "true"}
    url = f"s3://{bucket}/{quote(PREFIX)}?{urlencode(place)}"
    events = tmp_path / "events"
    events.mkdir()
    job = {"settings": workers.settings | _event_log(events), "url": url}
    with running_driver(pipeline_in_bucket, tmp_path / "driver", workers.environment, **job) as driver:
        answer = driver.result()
        said = driver.tree.log.read_bytes()
    assert history(storage) == ["regions", "rows", "saved"]
    np.testing.assert_array_equal(cube(storage), numbers())
    assert answer["totals"] == numbers().sum(axis=(1, 2)).tolist()
    assert answer["loaded"] == numbers()[[2, 20]].ravel().tolist()
    assert collected(storage, needed=ROWS) == 0

    logged = b"".join(path.read_bytes() for path in events.rglob("*") if path.is_file())
    places = {
        "plans": answer["plans"].encode(),
        "what is shown": answer["shown"].encode(),
        "pickled fork": bytes.fromhex(answer["fork"]),
        "event log": logged,
        "log of the driver": said,
        "logs of the executors": _logs_of_executors(workers),
    }
    for name in ("plans", "event log"):
        assert b"MapInArrow" in places[name]
    assert bucket.encode() in places["pickled fork"]
    secret = s3_server.secret_access_key.encode()
    assert [name for name, text in places.items() if secret in text] == []


def _event_log(directory: Path) -> dict[str, str]:
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": directory.as_uri(),
        "spark.eventLog.compress": "false",
    }


def _logs_of_executors(cluster: Cluster) -> bytes:
    found = [path.read_bytes() for path in cluster.directory.glob("127.0.0.*/work/*/*/std*")]
    assert len(found) >= 4
    return b"".join(found)
