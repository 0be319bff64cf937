"""References of kerchunk show what xarray shows of them through kerchunk's own engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr
from kerchunk.hdf import SingleHdf5ToZarr
from kerchunk.netCDF3 import NetCDF3ToZarr

import arraystore as ars
from arraystore.virtual import VirtualizeError, from_kerchunk
from arraystore.virtual.reference_templates import resolved
from tests.virtual.conftest import Files, shown

ARRAY = {
    "zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4", "fill_value": 0, "order": "C", "compressor": None,
    "filters": None,
}  # fmt: skip
VALUES = np.arange(4, dtype="<i4")


def of_kerchunk(references: dict[str, Any]) -> xr.Dataset:
    options = {"storage_options": {"fo": references}, "consolidated": False, "zarr_format": 2}
    return xr.open_dataset("reference://", engine="zarr", backend_kwargs=options).load()


def references_to(path: str) -> dict[str, Any]:
    kind = NetCDF3ToZarr if Path(path).read_bytes().startswith(b"CDF") else SingleHdf5ToZarr
    return dict(kind(path, inline_threshold=100).translate())


def write_parquet(references: dict[str, Any], directory: Path, size: int) -> None:
    """Write references as kerchunk does: consolidated metadata, and files of so many chunks of an array."""
    refs = references["refs"]
    names = (".zarray", ".zattrs", ".zgroup")
    documents = {key: json.loads(refs[key]) for key in refs if key.rpartition("/")[2] in names}
    directory.mkdir()
    (directory / ".zmetadata").write_text(json.dumps({"metadata": documents, "record_size": size}))
    for path in (key.removesuffix("/.zarray") for key in documents if key.endswith("/.zarray")):
        array = documents[f"{path}/.zarray"]
        grid = tuple(-(-length // side) for length, side in zip(array["shape"], array["chunks"], strict=True))
        rows = [refs.get(f"{path}/{'.'.join(map(str, cell)) or '0'}") for cell in np.ndindex(grid)]
        (directory / path).mkdir()
        for number in range(0, len(rows), size):
            part = [*rows[number : number + size], *[None] * size][:size]
            urls = [row[0] if isinstance(row, list) else None for row in part]
            table = {
                "path": pa.array(urls, pa.string()).dictionary_encode(),
                "offset": [row[1] if isinstance(row, list) and len(row) > 1 else 0 for row in part],
                "size": [row[2] if isinstance(row, list) and len(row) > 1 else 0 for row in part],
                "raw": [row.encode() if isinstance(row, str) else None for row in part],
            }
            pq.write_table(pa.table(table), directory / path / f"refs.{number // size}.parq")


@pytest.mark.parametrize("form", ["mapping", "json", "parquet"])
def test_references_show_what_they_show_through_kerchunk(files: Files, form: str, tmp_path: Path) -> None:
    references = references_to(files.paths[1])
    source: Any = references
    if form == "json":
        source = tmp_path / "references.json"
        source.write_text(json.dumps(references))
    elif form == "parquet":
        source = tmp_path / "references.parq"
        write_parquet(references, source, 1)
    repo = files.repository()
    with repo.transaction("main", message=form) as store:
        from_kerchunk(source, store.session, group="g")
    expected = of_kerchunk(references)
    assert np.isnan(expected.rain).any()
    xr.testing.assert_identical(shown(repo, "g"), expected)


@pytest.fixture
def numbers(tmp_path: Path) -> Files:
    """A file of four numbers."""
    (tmp_path / "numbers.bin").write_bytes(VALUES.tobytes())
    return Files([str(tmp_path / "numbers.bin")], f"file://{tmp_path}/")


def read(repo: ars.Repository, references: Any, path: str = "a") -> Any:
    with repo.transaction("main", message="references") as store:
        from_kerchunk(references, store.session)
    return np.asarray(zarr.open_array(repo.readonly_session("main").store, path=path, mode="r")[...])


def test_templates_whole_files_inlined_and_missing_chunks_are_read(numbers: Files) -> None:
    whole = {**ARRAY, "chunks": [4]}
    refs = {
        ".zgroup": '{"zarr_format": 2}',
        "g/a/.zarray": json.dumps({**ARRAY, "shape": [8]}),
        "g/a/0": ["{{u}}", 0, 8],
        "g/a/1": ["{{ u }}", 8, 8],
        "g/a/2": "base64:BwAAAAgAAAA=",
        "whole/.zarray": json.dumps(whole),
        "whole/0": ["{{u}}"],
        "scalar/.zarray": json.dumps({**ARRAY, "shape": [], "chunks": []}),
        "scalar/0": ["{{u}}", 12, 4],
        "nested/.zarray": json.dumps({**ARRAY, "shape": [2, 2], "chunks": [1, 2], "dimension_separator": "/"}),
        "nested/1/0": ["{{u}}", 0, 8],
    }
    repo = numbers.repository()
    source = {"version": 1, "templates": {"u": numbers.paths[0]}, "refs": refs}
    assert read(repo, source, "g/a").tolist() == [0, 1, 2, 3, 7, 8, 0, 0]
    store = repo.readonly_session("main").store
    assert zarr.open_array(store, path="whole", mode="r")[:].tolist() == [0, 1, 2, 3]
    assert zarr.open_array(store, path="scalar", mode="r")[()] == 3
    assert zarr.open_array(store, path="nested", mode="r")[:].tolist() == [[0, 0], [0, 1]]


def generated(templates: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    """Return a document with a generator, of which some parts are other ones, or missing if None."""
    parts = {"key": "a/{{i}}", "url": "{{u}}", "offset": "{{i * 8}}", "length": "8", "dimensions": {"i": {"stop": 2}}}
    generator = {name: value for name, value in {**parts, **changed}.items() if value is not None}
    refs = {".zgroup": '{"zarr_format": 2}', "a/.zarray": json.dumps(ARRAY)}
    return {"version": 1, "templates": templates or {"u": "file:///x"}, "gen": [generator], "refs": refs}


def test_generators_and_templates_are_those_of_fsspec(numbers: Files) -> None:
    directory, name = numbers.paths[0].rsplit("/", 1)
    templates = {"d": directory, "f": "{{d}}/{{n}}", "n": name}
    array = {**ARRAY, "shape": [2, 4], "chunks": [1, 2]}
    refs = {
        ".zgroup": '{"zarr_format": 2}',
        "a/.zarray": json.dumps(array),
        "b/.zarray": json.dumps(ARRAY),
        "b/0": [f"{{{{f(d=d, n='{name}')}}}}", 8, 8],
    }
    generators = [
        {
            "key": "a/{{i}}.{{ j - 2 }}",
            "url": "{{f(d=d, n='" + name[:2] + "' + '" + name[2:] + "')}}",
            "offset": "{{(j - 2) * 8}}",
            "length": "{{ 4 + 4 }}",
            "dimensions": {"i": [0, 1], "j": {"start": 2, "stop": 4}},
        },
        {"key": "b/{{k}}", "url": "{{d}}/{{n}}", "offset": "0", "length": "8", "dimensions": {"k": [1]}},
    ]
    source = {"version": 1, "templates": templates, "gen": generators, "refs": refs}
    repo = numbers.repository()
    assert read(repo, source).tolist() == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert zarr.open_array(repo.readonly_session("main").store, path="b", mode="r")[:].tolist() == [2, 3, 0, 1]
    filesystem = fsspec.filesystem("reference", fo=source, simple_templates=False)
    assert dict(resolved(source)) == {**filesystem.references, **refs, "b/0": filesystem.references["b/0"]}


def test_references_with_metadata_of_zarr_v3_are_read(numbers: Files) -> None:
    store = zarr.storage.MemoryStore()
    zarr.create_array(store, name="a", shape=(4,), chunks=(2,), dtype="<i4", compressors=None, attributes={"unit": "m"})
    document = store._store_dict["a/zarr.json"].to_bytes().decode()
    refs = {
        "zarr.json": {"zarr_format": 3, "node_type": "group", "attributes": {"title": "t"}},
        "a/zarr.json": document,
    }
    refs |= {f"a/c/{number}": [numbers.paths[0], 8 * number, 8] for number in range(2)}
    repo = numbers.repository()
    assert read(repo, refs).tolist() == VALUES.tolist()
    group = zarr.open_group(repo.readonly_session("main").store, mode="r")
    assert dict(group.attrs) == {"title": "t"}
    assert dict(group["a"].attrs) == {"unit": "m"}


@pytest.mark.parametrize(
    ("refs", "reason"),
    [
        ({}, "no array and no group"),
        ({"version": 1, "gen": [{}], "refs": {}}, "a generator needs 'key'"),
        ({"version": 1, "gen": 3, "refs": {}}, "must be a list"),
        ({"version": 1, "templates": [], "gen": [{"key": "a", "url": "u"}], "refs": {}}, "needs 'dimensions'"),
        ({"version": 1, "templates": {"u": 3}, "refs": {}}, "names to strings"),
        (generated(dimensions={"i": {"stop": 10**9}}), "1,000,000,000 references"),
        (generated(dimensions={"i": {"stop": 2, "step": 0}}), "must be a list or have 'stop'"),
        (generated(offset="x"), "must be an integer"),
        (generated(length=None), "both or none"),
        (generated(url="{% for i in j %}"), "only expressions"),
        (generated(url="{{u.__class__}}"), "expression"),
        (generated(url="{{'x' * 1000000000}}"), "expression"),
        (generated(url="{{i * 9999999999 * 9999999999}}"), "expression"),
        (generated(url="{{1 // 0}}"), "expression"),
        (generated(url="{{loop}}", templates={"loop": "{{loop}}"}), "expression"),
        ({"templates": {}, "refs": {"a/.zarray": "[]"}}, "JSON document"),
        ({"templates": {"u": "x"}, "refs": {"a/.zarray": json.dumps(ARRAY), "a/0": ["{{f(1)}}", 0, 8]}}, "expression"),
        ({"a/.zarray": json.dumps({**ARRAY, "dtype": "nonsense"})}, "no counterpart"),
        ({"a/.zarray": json.dumps(ARRAY), "a/x": ["file:///x", 0, 8]}, "chunk keys that are not 1 numbers"),
        ({"a/.zarray": json.dumps(ARRAY), "a/0": ["file:///x", 0]}, "must be a string"),
        ({"a/.zarray": json.dumps(ARRAY), "a/0": ["x.nc", 0, 8]}, "relative"),
        ({"a/.zarray": json.dumps(ARRAY), "a/0": "base64:?"}, "base64"),
        ({"a/.zarray": json.dumps(ARRAY), "a/9": [None, 0, 8]}, "must be a string"),
        ({"a/.zarray": json.dumps(ARRAY), "a/9": ["file:///x", 0, 8]}, "outside of the grid"),
        ({"a/.zarray": json.dumps(ARRAY), "a/0": ["file:///x", 0, -8]}, "must be integers"),
        ({"a/.zarray": json.dumps(ARRAY), "a/0": ["file:///x", True, 8]}, "must be integers"),
        ({"a/.zarray": json.dumps(ARRAY), "a/0": ["file:///x", 1 << 70, 8]}, "must be integers"),
        ({"a/.zarray": json.dumps(ARRAY), "a/0": ["file:///x", 0, 8.5]}, "must be integers"),
        ({"a/.zarray": json.dumps(ARRAY), "a/0": "x", "a/00": ["file:///x", 0, 8]}, "chunk keys that are not 1"),
        ({"a/.zarray": json.dumps(ARRAY), f"a/{1 << 70}": ["file:///x", 0, 8]}, "chunk keys that are not 1"),
        ({"a/.zarray": "{"}, "JSON document"),
        ({"a/.zarray": json.dumps({**ARRAY, "fill_value": 1 << 70})}, "no counterpart"),
        ({"a/.zarray": json.dumps({**ARRAY, "shape": [1 << 70]})}, "does not describe an array"),
        ({5: "x"}, "keys of references must be strings"),
        ({"g/a/.zarray": json.dumps(ARRAY), "g/a/0": ["file:///x", 0, 8], "h/a/.zarray": json.dumps(ARRAY),
          "h/a/0": ["s3://elsewhere/x", 0, 8], "g/.zgroup": "{}", ".zattrs": '{"a": 1}', ".zgroup": "{}"},
         "none of the containers"),
        (3, "must be a mapping, a path or a URL"),
    ],
)  # fmt: skip
def test_malformed_references_are_refused_and_nothing_is_written(refs: Any, reason: str) -> None:
    repo = ars.Repository.create(
        ars.in_memory_storage(), authorize_virtual_chunk_access={"file:///": ars.in_memory_storage()}
    )
    session = repo.writable_session("main")
    with pytest.raises((ars.InvalidInputError, ars.VirtualReferenceError), match=reason):
        from_kerchunk(refs, session, checksum=None)
    assert not session.has_uncommitted_changes


def test_a_negative_size_in_parquet_is_not_taken_for_a_whole_file(numbers: Files, tmp_path: Path) -> None:
    refs = {"refs": {".zgroup": "{}", "a/.zarray": json.dumps(ARRAY), "a/0": [numbers.paths[0], 0, -8]}}
    write_parquet(refs, tmp_path / "references.parq", 2)
    with pytest.raises(VirtualizeError, match="negative size"):
        from_kerchunk(tmp_path / "references.parq", numbers.repository().writable_session("main"))


@pytest.mark.parametrize(("name", "content"), [("a.json", b"CDF"), ("a.json", b"[]"), (".zmetadata", b"{}")])
def test_files_of_something_else_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    repo = ars.Repository.create(ars.in_memory_storage())
    place = tmp_path if name == ".zmetadata" else tmp_path / name
    with pytest.raises(VirtualizeError, match="kerchunk"):
        from_kerchunk(place, repo.writable_session("main"))
