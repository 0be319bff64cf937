"""Commands on object storage: what a URL says, what the environment says, and how much is asked for."""

from __future__ import annotations

import pytest

import arraystore.storage
from arraystore import CountingStorage, MemoryStorage, Repository, Storage
from tests.cli.conftest import Cli, commit
from tests.s3server import S3Server


class Far(MemoryStorage):
    """A storage where looking for a key is as dear as reading it."""

    cheap_probes = False


def test_on_s3_the_url_says_where_and_the_environment_who(
    cli: Cli, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_access_key)
    options = f"endpoint_url={s3_server.endpoint_url}&allow_http=true&force_path_style=true&region={s3_server.region}"
    url = f"s3://{s3_server.new_bucket('cli')}/climate?{options}"
    told = cli("init", url)
    assert s3_server.secret_access_key not in told.out
    cli("tag", "create", url, "v1")
    assert cli("log", url, "v1", "--json").json[0]["message"] == "Repository initialized"
    cli("gc", url, "--older-than", "now", "--yes")
    assert "nothing is wrong" in cli("verify", url).out
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong" * 5)
    refused = cli("log", url, code=11)
    assert refused.err.startswith("error: ")
    assert "wrongwrong" not in refused.err


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> CountingStorage:
    """Let every URL be the same storage, which holds 200 commits, and counts."""
    storage = CountingStorage(Far())
    repository = Repository.create(storage)
    for number in range(200):
        commit(repository, f"commit {number}", lambda root, number=number: root.attrs.update(number=number))
    repository.wait_for_maintenance()

    def from_url(url: str) -> Storage:
        return storage

    monkeypatch.setattr(arraystore.storage, "storage_from_url", from_url)
    storage.reset()
    return storage


def test_the_newest_of_a_long_history_costs_a_few_requests_and_its_end_some_more(
    cli: Cli, counted: CountingStorage
) -> None:
    assert len(cli("log", "far", "--limit", 3, "--json").json) == 3
    few = sum(counted.counts.requests.values())
    assert few <= 8
    counted.reset()
    assert len(cli("log", "far", "--json").json) == 201
    assert sum(counted.counts.requests.values()) <= few + 12
    counted.reset()
    cli("tree", "far", "--ref", "main~150")
    assert sum(counted.counts.requests.values()) <= 30
