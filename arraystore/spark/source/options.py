"""Typed and checked options of one load or save of the data source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from arraystore.errors import InvalidInputError
from arraystore.spark.creation.new_arrays import NewArrays
from arraystore.spark.source.option_parsing import (
    CHANGES,
    LOOK,
    LOOKS,
    READ,
    STREAM,
    VIEWS_ONLY,
    WRITE,
    RawOptions,
    check_names,
    check_url,
    check_use,
    flag_of,
)

if TYPE_CHECKING:
    from arraystore._repository.repository import Repository

_FLAGS = frozenset(
    {"allow_http", "anonymous", "from_env", "force_path_style", "requester_pays", "fsync", "use_ssl", "anon"}
)
_NUMBERS = {"network_stream_timeout_seconds": int, "listing_lag": float}


@dataclass(frozen=True)
class RepositoryLocation:
    """Location of a repository."""

    url: str
    """URL or directory."""
    storage: Mapping[str, Any] = field(default_factory=dict)
    """Options of the storage, none of them secret."""

    def repository(self) -> Repository:
        """Open the repository."""
        from arraystore._repository.repository import Repository
        from arraystore.storage.urls import storage_from_url

        try:
            storage = storage_from_url(self.url, **self.storage)
        except TypeError:
            names = ", ".join(f"storage.{name}" for name in sorted(self.storage))
            raise InvalidInputError(
                f"the storage of {self.url.partition('?')[0]!r} does not take all of {names}: see "
                "docs/storage.md for the options that there are"
            ) from None
        return Repository.open(storage)


@dataclass(frozen=True)
class ReadOptions:
    """A load of arrays."""

    location: RepositoryLocation
    """The repository."""
    ref: Mapping[str, Any]
    """Arguments that name the snapshot: at most one of branch, tag, snapshot_id and ref, or branch and as_of."""
    arrays: tuple[str, ...] | dict[str, str]
    """Paths of the arrays, or by column."""
    arguments: Mapping[str, Any]
    """Further arguments of `plan_read`; those that were not given are left out."""


@dataclass(frozen=True)
class WriteOptions:
    """A save of rows."""

    location: RepositoryLocation
    branch: str
    """Branch to commit to."""
    path: str
    """An array, or the group that `values` are in."""
    dims: tuple[str, ...] | dict[str, str] | None
    """Dimension columns, in the order of the dimensions, or by dimension; None for those with their names."""
    arguments: Mapping[str, Any]
    """Further arguments of `write_dataframe`; those that were not given are left out."""
    message: str | None
    """Message of the commit; None for one that names the arrays."""
    stream: str | None
    """Id of the stream; None for the id of the query."""
    batch: int | None
    """Number of the batch of the stream in a save of a DataFrame, which is then committed once."""
    restarted: bool
    """Whether a stream may begin anew under its id."""
    create: NewArrays | None = None
    """Choices for arrays that are created if they are missing; None if they must exist."""
    append_dim: str | None = None
    """Dimension along which arrays grow."""
    replace_where: Mapping[str, Any] | None = None
    """Region that the rows replace whole."""


@dataclass(frozen=True)
class ChangesOptions:
    """A load of changes."""

    location: RepositoryLocation
    branch: str
    """Branch whose history is read."""
    paths: tuple[str, ...] | None
    """Paths of the arrays; None for all."""
    start: str | None
    """Snapshot after which changes are read in batch; None for the first one."""
    first: str | None
    """Snapshot that is the first one whose changes are read, in batch or by a stream."""
    stop: str | None
    """Snapshot up to which; None for the newest."""
    starting_snapshot: str | None
    """Start of a stream: ``"earliest"``, ``"latest"``, or a snapshot, from whose successor on changes are read."""
    most: int | None
    """Snapshots that one batch of a stream covers; None for any number."""


@dataclass(frozen=True)
class LookOptions:
    """A load of rows about a repository."""

    location: RepositoryLocation
    kind: str
    """``"history"``, ``"list"`` or ``"refs"``."""
    ref: Mapping[str, Any]
    """Arguments that name the snapshot, as in `ReadOptions`."""
    path: str
    """Path below which nodes are listed."""
    limit: int | None
    """Most rows; None for all."""


def read_options(raw: RawOptions) -> ReadOptions:
    """Return the options of a load of arrays."""
    check_use(raw, READ)
    location = _location(raw)
    arrays = raw.names_or_mapping("arrays") or raw.names("array")
    if not arrays:
        raise InvalidInputError(
            "option 'array' is missing: name the array to read, or several with commas in 'arrays' "
            "(or set 'changes' to true to read what commits have changed)"
        )
    if raw.texts.keys() >= {"arrays", "array"}:
        raise InvalidInputError("options 'array' and 'arrays' are both given: name all arrays in one of them")
    arguments: dict[str, Any] = {
        "sel": raw.selection("sel"),
        "isel": raw.selection("isel"),
        "coords": raw.choice("coords", "index", "label", "none"),
        "dims": raw.names("dims") or None,
        **raw.given_flags("decode", "skip_missing"),
        "where": raw.text("where"),
        "layout": raw.choice("layout", "rows", "chunks"),
        "data": raw.choice("data", "binary", "array"),
        "chunks_per_task": raw.count("chunks_per_task"),
        "tasks": raw.count("tasks"),
    }
    return ReadOptions(location, _ref(raw), arrays, _without_none(arguments))


def write_options(raw: RawOptions, *, stream: bool) -> WriteOptions:
    """Return the options of a save of rows."""
    check_use(raw, STREAM if stream else WRITE)
    location = _location(raw)
    values = _values(raw)
    arguments: dict[str, Any] = {
        "value": raw.text("value"),
        "values": values,
        "coords": _coords(raw),
        "tolerance": raw.number_or_mapping("tolerance"),
        "partial": raw.choice("partial", "merge", "fill"),
        "on_null": raw.text("on_null"),
        "on_duplicate": raw.text("on_duplicate"),
        **raw.given_flags("lossy"),
    }
    return WriteOptions(
        location,
        raw.text("branch") or "main",
        _target(raw, values is not None),
        raw.names_or_mapping("dims") or None,
        _without_none(arguments),
        raw.text("message"),
        raw.text("stream"),
        _batch(raw, stream=stream),
        raw.flag("restarted"),
        create=_create(raw),
        append_dim=raw.text("append_dim"),
        replace_where=raw.selection("replace_where"),
    )


def _create(raw: RawOptions) -> NewArrays | None:
    """Return the choices for arrays that are created."""
    choices: dict[str, Any] = {
        "chunks": None if raw.text("chunks") == "auto" else raw.sizes("chunks"),
        "chunk_bytes": raw.count("chunk_bytes"),
        "units": raw.names_or_mapping("units") or None,
    }
    choices = _without_none(choices)
    if raw.flag("create"):
        if isinstance(choices.get("units"), tuple):
            raise InvalidInputError('option \'units\' must be JSON by name: {"time": "hours since 2000-01-01"}')
        return NewArrays(**choices)
    if choices:
        given = sorted(map(raw.called, choices))
        raise InvalidInputError(f"options {given} are for arrays that are created: set 'create' to true")
    return None


def changes_options(raw: RawOptions) -> ChangesOptions:
    """Return the options of a load of changes."""
    check_use(raw, CHANGES)
    starts = sorted({"from", "starting_version", "starting_snapshot"} & raw.texts.keys())
    if len(starts) > 1:
        named = " and ".join(repr(raw.called(name)) for name in starts)
        raise InvalidInputError(f"options {named} each say where to begin: give one of them")
    return ChangesOptions(
        _location(raw),
        raw.text("branch") or "main",
        raw.names("arrays") or raw.names("array") or None,
        raw.text("from"),
        raw.text("starting_version"),
        raw.text("to"),
        raw.text("starting_snapshot"),
        raw.count("max_snapshots_per_trigger"),
    )


def is_look(raw: RawOptions) -> bool:
    """Return whether a load asks for rows about the repository in place of values."""
    return any(raw.flag(kind) for kind in LOOKS)


def look_options(raw: RawOptions) -> LookOptions:
    """Return the options of a load of rows about a repository."""
    check_use(raw, LOOK)
    kinds = [kind for kind in LOOKS if raw.flag(kind)]
    if len(kinds) > 1:
        raise InvalidInputError(f"options {' and '.join(map(repr, kinds))} are different loads: give one of them")
    ref = _ref(raw)
    if kinds[0] != "list" and raw.text("group") is not None:
        raise InvalidInputError(f"option 'group' is of use with 'list', which it limits, not with {kinds[0]!r}")
    if kinds[0] == "refs" and ref != {"branch": "main"}:
        raise InvalidInputError("option 'refs' lists all branches and tags: leave out the options that name a snapshot")
    return LookOptions(_location(raw), kinds[0], ref, raw.text("group") or "", raw.count("limit"))


def raw_options(options: Mapping[str, str], *, remote: bool = False) -> RawOptions:
    """Return checked options with an absolute path; see `check_names`.

    `remote`: their caller may have another current directory than this process.
    """
    raw = check_names(options)
    url = _location(raw).url
    if "://" in url or os.path.isabs(url):
        return raw
    absolute = os.path.abspath(url)
    if remote:
        raise InvalidInputError(
            f"the path {url!r} is relative: with Spark Connect the server opens it, where it is {absolute!r}; give an "
            "absolute path that client, server and executors share"
        )
    return replace(raw, texts={**raw.texts, "path": absolute})


def snapshot_of(raw: RawOptions) -> str:
    """Return the snapshot that the options of a load name now."""
    from arraystore.spark.snapshots import pinned_session

    return pinned_session(_location(raw).repository(), **_ref(raw)).snapshot_id


def _location(raw: RawOptions) -> RepositoryLocation:
    url = raw.text("path")
    if url is None:
        raise InvalidInputError(
            "option 'path' is missing: it is the URL or the directory of the repository, as in "
            f".load('s3://bucket/prefix'). If this is a table: {VIEWS_ONLY}"
        )
    check_url(url)
    if url.startswith("memory:"):
        raise InvalidInputError(
            "a repository in memory cannot be reached by other processes: use a directory or a bucket"
        )
    return RepositoryLocation(url, {name: _storage_value(name, text) for name, text in raw.storage.items()})


def _storage_value(name: str, text: str) -> Any:
    if name in _FLAGS:
        return flag_of(f"storage.{name}", text)
    if name in _NUMBERS:
        if not text.replace(".", "", _NUMBERS[name] is float).isdigit():
            raise InvalidInputError(f"option 'storage.{name}' is {text!r}, and must be a number >= 0")
        return _NUMBERS[name](text)
    return text


def _ref(raw: RawOptions) -> dict[str, Any]:
    refs = {name: raw.text(name) for name in ("branch", "tag", "snapshot", "ref") if raw.text(name) is not None}
    if len(refs) > 1:
        raise InvalidInputError(
            f"options {' and '.join(repr(raw.called(name)) for name in sorted(refs))} each name a snapshot: give one"
            " of them"
        )
    as_of: datetime | None = raw.time("as_of")
    if as_of is not None and not {"branch"} >= set(refs):
        raise InvalidInputError(
            f"option {raw.called('as_of')!r} is a time in the history of a branch: give it with 'branch', or alone"
        )
    if "snapshot" in refs:
        return {"snapshot_id": refs["snapshot"]}
    if as_of is not None:
        return {"branch": refs.get("branch", "main"), "as_of": as_of}
    return refs or {"branch": "main"}


def _values(raw: RawOptions) -> dict[str, str] | None:
    """Return the columns of several arrays; a view of several arrays is written as it is read."""
    values = raw.names_or_mapping("values")
    if isinstance(values, dict) or values:
        return values if isinstance(values, dict) else {name: name for name in values}
    arrays = raw.names_or_mapping("arrays")
    if isinstance(arrays, dict):
        return {path: column for column, path in arrays.items()}
    return {path: path.strip("/").rpartition("/")[2] for path in arrays} or None


def _batch(raw: RawOptions, *, stream: bool) -> int | None:
    """Return the number of a batch, which a save of a DataFrame into a stream has to give."""
    number = raw.number("batch")
    if not stream and (number is None) != (raw.text("stream") is None):
        raise InvalidInputError(
            f"options {raw.called('stream')!r} and {raw.called('batch')!r} go together: the batch of this number "
            "(txnVersion) is committed to the stream (txnAppId) once"
        )
    return number


def _target(raw: RawOptions, several: bool) -> str:
    array, group = raw.text("array"), raw.text("group")
    if several:
        if array is not None or raw.text("value") is not None:
            raise InvalidInputError(
                "options 'values' and 'arrays' name several arrays; 'array' and 'value' are for one alone"
            )
        return group or ""
    if group is not None:
        raise InvalidInputError(
            "option 'group' is of use with 'values', which names the arrays in it and their columns"
        )
    if array is None:
        raise InvalidInputError(
            "option 'array' is missing: name the array to write to, as in array='temp', or several of a group in "
            "'values', as in '{\"temp\": \"t2m\"}'"
        )
    return array


def _coords(raw: RawOptions) -> str | dict[str, str] | None:
    """Return whether dimension columns hold positions or labels: all, or by dimension."""
    text = raw.text("coords")
    if text is None or not text.startswith("{"):
        return raw.choice("coords", "index", "label")
    by_dimension = raw.names_or_mapping("coords")
    assert isinstance(by_dimension, dict)
    return by_dimension


def _without_none(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}
