from __future__ import annotations

from datetime import UTC, datetime

import pytest

from arraystore.errors import InvalidInputError
from arraystore.spark.source.option_parsing import check_names, is_for_writing
from arraystore.spark.source.options import (
    RepositoryLocation,
    changes_options,
    raw_options,
    read_options,
    write_options,
)


def load(**options: str) -> object:
    return read_options(raw_options({"path": "/data/repo", **options}))


def save(of_stream: bool = False, **options: str) -> object:
    return write_options(raw_options({"path": "/data/repo", **options}), stream=of_stream)


def refusal(make: object, **options: str) -> str:
    assert callable(make)
    with pytest.raises(InvalidInputError) as caught:
        make(**options)
    return str(caught.value)


def test_a_load_with_nothing_but_an_array_reads_the_main_branch_as_read_dataframe_does():
    options = read_options(raw_options({"path": "/data/repo", "array": "temp"}))

    assert options.location == RepositoryLocation("/data/repo", {})
    assert options.ref == {"branch": "main"}
    assert options.arrays == ("temp",)
    assert options.arguments == {}


def test_all_options_of_a_load_arrive_with_their_types():
    options = load(
        arrays='["a/u", "a/v"]',
        tag="v1",
        sel='{"time": {"start": "2020-01-01", "stop": "2020-02-01"}, "lat": 51.5}',
        isel='{"lon": [0, 5], "lev": {"stop": 3, "step": 2}}',
        coords="LABEL",
        layout="chunks",
        decode="true",
        skip_missing="False",
        chunks_per_task="8",
        data="array",
        tasks="4",
        dims="t,y",
    )

    assert options.arrays == ("a/u", "a/v")
    assert options.ref == {"tag": "v1"}
    assert options.arguments == {
        "sel": {"time": slice("2020-01-01", "2020-02-01"), "lat": 51.5},
        "isel": {"lon": [0, 5], "lev": slice(None, 3, 2)},
        "coords": "label",
        "layout": "chunks",
        "data": "array",
        "decode": True,
        "skip_missing": False,
        "chunks_per_task": 8,
        "tasks": 4,
        "dims": ("t", "y"),
    }


@pytest.mark.parametrize(
    ("options", "ref"),
    [
        ({"branch": "dev"}, {"branch": "dev"}),
        ({"snapshot": "ABC"}, {"snapshot_id": "ABC"}),
        ({"snapshotid": "ABC"}, {"snapshot_id": "ABC"}),
        ({"ref": "x"}, {"ref": "x"}),
        ({"asof": "2026-01-31T12:00:00+00:00"}, {"branch": "main", "as_of": datetime(2026, 1, 31, 12, tzinfo=UTC)}),
        (
            {"branch": "dev", "as_of": "2026-01-31T12:00:00Z"},
            {"branch": "dev", "as_of": datetime(2026, 1, 31, 12, tzinfo=UTC)},
        ),
    ],
)
def test_each_way_to_name_a_snapshot_is_understood(options: dict[str, str], ref: dict[str, object]):
    assert load(array="temp", **options).ref == ref


def test_arrays_may_be_told_by_column():
    assert load(arrays='{"u": "winds/u_ms", "v": "winds/v_ms"}').arrays == {"u": "winds/u_ms", "v": "winds/v_ms"}


def test_names_are_understood_without_underscores_because_spark_lower_cases_them():
    options = load(array="temp", skipmissing="true", chunkspertask="2")
    assert options.arguments == {"skip_missing": True, "chunks_per_task": 2}
    told = refusal(load, array="t", chunkspertask="2", chunks_per_task="2")
    assert "options 'chunksPerTask' and 'chunks_per_task' are the same one" in told


def test_a_save_of_one_array_and_one_of_several_are_told_apart():
    one = save(array="temp", dims="t,y,x", value="t2m", coords="label", tolerance="0.01", partial="fill")
    many = save(group="winds", dims='{"time": "t"}', values='{"u": "u_ms"}', tolerance='{"lat": 0.5}')
    listed = save(dims='["t"]', values="u,v", coords='{"t": "label"}')

    assert (one.path, one.dims) == ("temp", ("t", "y", "x"))
    assert one.arguments == {"value": "t2m", "coords": "label", "tolerance": 0.01, "partial": "fill"}
    assert (one.branch, one.message, one.stream, one.restarted) == ("main", None, None, False)
    assert (many.path, many.dims) == ("winds", {"time": "t"})
    assert many.arguments == {"values": {"u": "u_ms"}, "tolerance": {"lat": 0.5}}
    assert (listed.path, listed.arguments) == (
        "",
        {"values": {"u": "u", "v": "v"}, "coords": {"t": "label"}},
    )


def test_a_stream_may_be_named_and_what_spark_adds_to_its_options_is_let_through():
    options = {
        "array": "temp", "dims": "t", "value": "v", "stream": "daily", "restarted": "true",
        "checkpointlocation": "/cp", "queryname": "q",
    }  # fmt: skip

    found = save(of_stream=True, **options)

    assert (found.stream, found.restarted) == ("daily", True)


def test_a_save_may_be_the_batch_of_a_stream_by_the_names_of_delta():
    found = save(array="t", txnAppId="daily", txnVersion="3")
    assert (found.stream, found.batch) == ("daily", 3)
    assert save(array="t", stream="daily", batch="0").batch == 0
    assert "'stream' and 'batch' go together" in refusal(save, array="t", stream="d")
    assert "'stream' and 'txnVersion' go together" in refusal(save, array="t", txnversion="1")
    assert "an integer >= 0" in refusal(save, array="t", stream="d", batch="-1")
    assert "'restarted' has no effect in writing" in refusal(save, array="t", stream="d", batch="1", restarted="true")


def test_names_of_delta_are_understood():
    assert load(array="t", versionAsOf="ABC").ref == {"snapshot_id": "ABC"}
    assert load(array="t", timestampAsOf="2026-01-31T12:00:00Z").ref["as_of"] == datetime(2026, 1, 31, 12, tzinfo=UTC)
    feed = changes_options(
        raw_options({"path": "/r", "readChangeFeed": "true", "startingVersion": "A", "endingVersion": "B"})
    )
    assert (feed.start, feed.first, feed.stop) == (None, "A", "B")
    assert "each say where to begin" in refusal(
        lambda: changes_options(raw_options({"path": "/r", "changes": "true", "startingversion": "A", "from": "B"}))
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"timestampasof": "yesterday"}, "option 'timestampAsOf' is 'yesterday', and must be a time"),
        ({"timestampasof": "2026-01-31T12:00:00Z", "tag": "v1"}, "option 'timestampAsOf' is a time in the history"),
        ({"asof": "yesterday"}, "option 'asOf' is 'yesterday', and must be a time"),
        ({"as_of": "yesterday"}, "option 'as_of' is 'yesterday', and must be a time"),
        ({"timestampasof": "yesterday", "asof": "today"}, "options 'asOf' and 'timestampAsOf' are the same one"),
        ({"skipmissing": "perhaps"}, "option 'skipMissing' is 'perhaps', and must be true or false"),
        ({"skip_missing": "perhaps"}, "option 'skip_missing' is 'perhaps', and must be true or false"),
        ({"versionasof": "A", "tag": "v1"}, "options 'versionAsOf' and 'tag' each name a snapshot"),
        ({"snapshotid": "A", "tag": "v1"}, "options 'snapshotId' and 'tag' each name a snapshot"),
        ({"endingversion": "A"}, "option 'endingVersion' has no effect in reading"),
        ({"txnappid": "s"}, "option 'txnAppId' has no effect in reading"),
    ],
)
def test_errors_name_options_as_they_were_given(options: dict[str, str], told: str) -> None:
    assert told in refusal(load, array="t", **options)


def test_errors_of_values_name_other_names_too() -> None:
    assert "option 'txnVersion' is '-1'" in refusal(save, array="t", txnappid="s", txnversion="-1")
    assert "option 'readChangeFeed' is 'maybe'" in refusal(
        lambda: raw_options({"path": "/r", "readchangefeed": "maybe"}).flag("changes")
    )
    assert "option 'timestampAsOf' has no effect in reading changes" in refusal(
        lambda: changes_options(raw_options({"path": "/r", "changes": "true", "timestampasof": "x"}))
    )


def test_options_of_a_view_serve_reading_and_inserting():
    options = {"array": "g/temp", "value": "kelvin", "skipMissing": "true", "onNull": "fill", "message": "m"}
    assert load(**options).arguments == {"skip_missing": True}
    assert save(**options).arguments == {"value": "kelvin", "on_null": "fill"}
    assert save(arrays="g/u,g/v").arguments == {"values": {"g/u": "u", "g/v": "v"}}
    assert save(arrays='{"east": "g/u"}').arguments == {"values": {"g/u": "east"}}
    assert "'isel' has no effect in writing" in refusal(save, array="t", isel='{"t": 0}')


def test_a_load_of_changes_is_one_that_says_so():
    given = raw_options({"path": "/r", "changes": "true", "from": "A", "to": "B", "arrays": "u,v"})
    streamed = raw_options(
        {"path": "/r", "changes": "true", "startingSnapshot": "latest", "maxsnapshotspertrigger": "5"}
    )

    assert given.flag("changes")
    assert not raw_options({"path": "/r", "array": "t"}).flag("changes")
    assert changes_options(given).start == "A"
    assert changes_options(given).stop == "B"
    assert changes_options(given).paths == ("u", "v")
    assert (changes_options(streamed).starting_snapshot, changes_options(streamed).most) == ("latest", 5)
    assert changes_options(streamed).paths is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "option 'array' is missing"),
        ({"array": "t", "arrays": "u"}, "both given"),
        ({"array": "t", "branch": "a", "tag": "b"}, "'branch' and 'tag' each name a snapshot"),
        ({"array": "t", "tag": "b", "asof": "2026-01-31T12:00:00+00:00"}, "give it with 'branch', or alone"),
        ({"array": "t", "asof": "2026-01-31T12:00:00"}, "a time with a time zone"),
        ({"array": "t", "asof": "yesterday"}, "a time with a time zone"),
        ({"array": "t", "sel": "{lat: 1}"}, "option 'sel' is not JSON"),
        ({"array": "t", "sel": "[1]"}, "a JSON object by dimension"),
        ({"array": "t", "sel": '{"lat": null}'}, "selects along 'lat' with 'null'"),
        ({"array": "t", "isel": '{"lat": {"begin": 0}}'}, "a range has start, stop and step"),
        ({"array": "t", "isel": '{"lat": {}}'}, "a range has start, stop and step"),
        ({"array": "t", "decode": "yes"}, "must be true or false"),
        ({"array": "t", "layout": "cubes"}, "must be one of rows, chunks"),
        ({"array": "t", "coords": "labels"}, "must be one of index, label, none"),
        ({"array": "t", "tasks": "0"}, "an integer >= 1"),
        ({"array": "t", "tasks": "-1"}, "an integer >= 1"),
        ({"array": "t", "tasks": "9" * 5000}, "an integer >= 1"),
        ({"arrays": "[1]"}, "must be names"),
        ({"arrays": '{"u": 1}'}, "must be names"),
        ({"array": '{"u": "v"}'}, "must be names"),
        ({"array": "t", "dims": '{"t": "x"}'}, "must be names"),
        ({"array": "t", "stream": "v"}, "'stream' has no effect in reading, but in writing"),
        ({"array": "t", "from": "A"}, "'from' has no effect in reading, but in reading changes"),
        ({"array": "t", "brnach": "dev"}, "did you mean 'branch'"),
        ({"array": "t", "chunkspertsk": "1"}, "did you mean 'chunks_per_task'"),
        ({"array": "t", "paths": '["a", "b"]'}, "load one repository at a time"),
        ({"array": "t", "storage.fsync": "maybe"}, "'storage.fsync'"),
    ],
)
def test_a_load_that_cannot_be_is_refused_in_a_sentence_that_says_why(options: dict[str, str], told: str):
    assert told in refusal(load, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dims": "t", "value": "v"}, "option 'array' is missing"),
        ({"dims": "t", "array": "t", "values": "u"}, "'array' and 'value' are for one alone"),
        ({"dims": "t", "array": "t", "value": "v", "group": "g"}, "'group' is of use with 'values'"),
        ({"dims": "t", "array": "t", "tag": "v1"}, "'tag' has no effect in writing"),
        ({"dims": "t", "array": "t", "value": "v", "partial": "keep"}, "must be one of merge, fill"),
        ({"dims": "t", "array": "t", "value": "v", "tolerance": "wide"}, "option 'tolerance' is not JSON"),
        ({"dims": "t", "array": "t", "value": "v", "tolerance": "true"}, "a number for each dimension"),
        ({"dims": "t", "values": '{"u": 1}'}, "must be names"),
        ({"dims": "t", "array": "t", "value": "v", "chunks": "4"}, "set 'create' to true"),
        ({"dims": "t", "array": "t", "value": "v", "create": "true", "chunks": "4,0"}, "must be integers >= 1"),
        ({"dims": "t", "array": "t", "mode": "append"}, ".mode('append')"),
    ],
)
def test_a_save_that_cannot_be_is_refused_in_a_sentence_that_says_why(options: dict[str, str], told: str):
    assert told in refusal(save, **options)


@pytest.mark.parametrize(
    "name",
    [
        "access_key_id", "aws_secret_access_key", "storage.secret_access_key", "storage.session_token", "storage.key",
        "storage.access_key",
        "storage.account_key", "storage.sas_token", "storage.service_account_key", "storage.headers", "password",
        "fs.s3a.secret.key", "storage.get_credentials", "storage.key_id", "storage.pickle_credentials",
    ],
)  # fmt: skip
def test_secrets_are_refused_and_never_repeated(name: str):
    told = refusal(load, array="t", **{name: "hunter2-top-secret"})

    assert "looks like a credential" in told
    assert "hunter2" not in told


@pytest.mark.parametrize("name", ["sig", "X-Amz-Signature", "x-goog-credential", "token"])
def test_signed_urls_are_refused_and_never_repeated(name: str):
    told = refusal(lambda: raw_options({"path": f"https://host/repo?sv=1&{name}=hunter2-top-secret", "array": "t"}))
    assert f"{name!r} in its query, which looks like a credential" in told
    assert "hunter2" not in told
    raw_options({"path": "s3://bucket/repo?region=eu-north-1&anonymous=true", "array": "t"})
    raw_options({"path": "/what?token=1", "array": "t"})


def test_options_of_the_storage_reach_it_with_their_types():
    options = {
        "array": "t", "storage.region": "eu-west-1", "storage.allow_http": "true",
        "storage.endpoint_url": "http://127.0.0.1:9000", "storage.network_stream_timeout_seconds": "5",
        "storage.listing_lag": "0.5",
    }  # fmt: skip

    assert load(**options).location.storage == {
        "region": "eu-west-1",
        "allow_http": True,
        "endpoint_url": "http://127.0.0.1:9000",
        "network_stream_timeout_seconds": 5,
        "listing_lag": 0.5,
    }


def test_an_option_that_the_storage_does_not_know_is_named(tmp_path):
    location = RepositoryLocation(str(tmp_path), {"region": "eu-west-1"})

    with pytest.raises(InvalidInputError, match=r"does not take all of storage\.region"):
        location.repository()


@pytest.mark.parametrize(
    ("path", "told"), [(None, "option 'path' is missing"), ("", "TEMPORARY VIEW"), ("memory://x", "in memory")]
)
def test_a_place_that_other_processes_cannot_reach_is_refused(path: str | None, told: str):
    with pytest.raises(InvalidInputError, match=told):
        raw_options({"array": "t"} if path is None else {"path": path, "array": "t"})


def test_a_save_is_recognised_by_options_that_no_load_has():
    assert is_for_writing(check_names({"path": "/r", "array": "t", "value": "v"}))
    assert is_for_writing(check_names({"path": "/r", "array": "t", "checkpointLocation": "/cp"}))
    assert not is_for_writing(check_names({"path": "/r", "array": "t", "dims": "t", "branch": "main"}))
