"""A plain model of a hierarchy, and what zarr reads of a real one, in the same terms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr
from zarr.core.sync import sync

from arraystore._session.session import Session

CHUNK = 2
"""Length of every chunk, in items."""


@dataclass
class Thing:
    """A group, an array of one dimension, or a file; `token` says which one, wherever it goes."""

    token: str
    kind: str
    attributes: dict[str, Any] = field(default_factory=dict)
    length: int = 0
    fill: int = 0
    endian: str = "little"
    dimension: str = "time"
    chunks: dict[int, bytes] = field(default_factory=dict)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<i4" if self.endian == "little" else ">i4")

    def _chunk(self, number: int) -> np.ndarray:
        empty = np.full(CHUNK, self.fill, "i4")
        return np.frombuffer(self.chunks[number], self.dtype).copy() if number in self.chunks else empty

    def values(self) -> list[int]:
        """What a reader sees."""
        chunks = [self._chunk(number) for number in range(-(-self.length // CHUNK))]
        return [int(value) for chunk in chunks for value in chunk][: self.length]

    def write(self, start: int, values: list[int]) -> None:
        for place, value in enumerate(values, start):
            chunk = self._chunk(place // CHUNK)
            chunk[place % CHUNK] = value
            self.chunks[place // CHUNK] = chunk.astype(self.dtype).tobytes()

    def resize(self, length: int) -> None:
        self.length = length
        self.chunks = {number: data for number, data in self.chunks.items() if number * CHUNK < length}

    def append(self, values: list[int]) -> None:
        start = self.length
        self.length += len(values)
        self.write(start, values)


def group(token: str, **attributes: Any) -> Thing:
    return Thing(token, "group", attributes)


def array(token: str, values: list[int], dimension: str = "time", length: int | None = None) -> Thing:
    found = Thing(token, "array", length=len(values) if length is None else length, dimension=dimension)
    found.write(0, values)
    return found


def file(token: str, content: bytes) -> Thing:
    return Thing(token, "file", chunks={0: content})


class Model:
    """Things by path; paths of files end in something else than those of nodes, so one table is enough."""

    def __init__(self, things: dict[str, Thing]) -> None:
        self.things = things

    def copy(self) -> Model:
        return Model(deepcopy(self.things))

    def path_of(self, token: str) -> str:
        return next(path for path, thing in self.things.items() if thing.token == token)

    def same(self, view: Model, path: str) -> Thing:
        """The thing that a view has at a path, wherever it is here."""
        return self.things[self.path_of(view.things[path].token)]

    def put(self, path: str, thing: Thing) -> None:
        assert path not in self.things, f"there is something at {path!r}"
        self.things[path] = thing

    def remove(self, view: Model, path: str) -> None:
        """Remove what a view has at and below a path, wherever it is here."""
        for token in [thing.token for at, thing in view.things.items() if (at + "/").startswith(path + "/")]:
            del self.things[self.path_of(token)]

    def move(self, view: Model, path: str, target: str) -> None:
        """Move what a view has at a path, and what is below it here."""
        now = self.path_of(view.things[path].token)
        for at in [at for at in self.things if (at + "/").startswith(now + "/")]:
            self.put(target + at[len(now) :], self.things.pop(at))

    def contents(self) -> dict[str, Any]:
        """All that a reader can find out."""
        return {path: _told(thing) for path, thing in self.things.items()}

    def keys(self) -> list[str]:
        return sorted(key for path, thing in self.things.items() for key in _keys(path, thing))


def _keys(path: str, thing: Thing) -> Iterator[str]:
    if thing.kind == "file":
        yield path
        return
    yield f"{path}/zarr.json".lstrip("/")
    for number in thing.chunks:
        yield f"{path}/c/{number}"


def _told(thing: Thing) -> Any:
    if thing.kind == "group":
        return "group", thing.attributes
    if thing.kind == "file":
        return "file", thing.chunks[0]
    return "array", thing.attributes, thing.length, thing.fill, thing.endian, thing.dimension, thing.values()


# -- what zarr reads ----------------------------------------------------------------------------------------------


def keys_of(session: Session) -> list[str]:
    async def listed() -> list[str]:
        return [key async for key in session.store.list()]

    return sorted(sync(listed()))


def raw(session: Session) -> dict[str, bytes]:
    """Every key with its bytes, without the session noticing that it is read."""
    with session.hierarchy.untracked():
        values = {key: session.hierarchy.get_sync(key) for key in session_keys(session)}
    return {key: bytes(value) for key, value in values.items() if value is not None}


def session_keys(session: Session) -> list[str]:
    noted, session.hierarchy.reads = session.hierarchy.reads, None
    try:
        return keys_of(session)
    finally:
        session.hierarchy.reads = noted


def contents_of(session: Session) -> dict[str, Any]:
    """All that zarr reads, by path."""
    found: dict[str, Any] = {}
    keys = keys_of(session)
    paths = [key.removesuffix("zarr.json").rstrip("/") for key in keys if ("/" + key).endswith("/zarr.json")]
    for path in paths:
        found[path] = _read(session, path)
    for key in keys:
        if ("/" + key).endswith("/zarr.json"):
            continue
        at = key.rpartition("/c/")[0]
        if found.get(at, ("nothing",))[0] != "array":
            value = session.store.get_sync(key)
            assert value is not None
            found[key] = "file", value.to_bytes()
    return found


def _read(session: Session, path: str) -> Any:
    document = session.store.get_sync(f"{path}/zarr.json".lstrip("/"))
    assert document is not None
    if json.loads(document.to_bytes())["node_type"] == "group":
        return "group", dict(zarr.open_group(session.store, path=path, mode="r", zarr_format=3).attrs)
    node = zarr.open_array(session.store, path=path, mode="r", zarr_format=3)
    names = node.metadata.to_dict()["dimension_names"]
    endian = node.metadata.to_dict()["codecs"][0]["configuration"]["endian"]
    values = [int(value) for value in node[:]]
    return "array", dict(node.attrs), node.shape[0], int(node.fill_value), endian, names[0], values


def check_valid(session: Session, found: dict[str, Any] | None = None) -> None:
    """Check what must hold for any hierarchy, by listing it in every way that there is.

    `found` is what `contents_of` read, if it was called already.
    """
    keys = keys_of(session)
    assert len(keys) == len(set(keys)), "a key is listed twice"
    found = contents_of(session) if found is None else found
    for path in found:
        above = path
        while above:
            above = above.rpartition("/")[0]
            assert found.get(above, ("group",))[0] == "group", f"{path!r} is below the {found[above][0]} {above!r}"
    _check_listings(session, keys)
    _check_members(session, found)


def _check_listings(session: Session, keys: list[str]) -> None:
    directories = {key[:cut] for key in keys for cut, letter in enumerate(key) if letter == "/"} | {""}

    async def listed() -> dict[str, list[str]]:
        return {path: [name async for name in session.store.list_dir(path)] for path in directories}

    for path, names in sync(listed()).items():
        below = path + "/" if path else ""
        expected = {key[len(below) :].split("/")[0] for key in keys if key.startswith(below)}
        assert len(names) == len(set(names)), f"{path!r} lists a name twice"
        assert set(names) == expected, f"names below {path!r}"


def _check_members(session: Session, found: dict[str, Any]) -> None:
    nodes = {path for path, told in found.items() if told[0] != "file"}
    reachable = {path for path in nodes if path and all(above in nodes for above in _above(path))}
    members = {name for name, _ in zarr.open_group(session.store, mode="r").members(max_depth=None)}
    assert members == reachable, "members of the root group"


def _above(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path
