"""Operations of the matrix: what a session does, and what that means for a plain model.

Each runs on the same base.  `label` tells two sessions apart: what they write differs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import cpu
from zarr.core.sync import sync

from arraystore._session.session import Session
from tests.commit.model import Model, Thing, array, file, group

ITEMS = 8
MARKS = {"ours": 1000, "theirs": 2000}


@dataclass(frozen=True)
class Operation:
    """One thing that a session does.

    Parameters
    ----------
    name
        For tables.
    says
        What it does, for people.
    run
        Does it in a session, under a label.
    happens
        Does it to a model, as a session meant it that saw a view: `happens(model, view, label)`.
    isolation
        Of the session.
    on
        Path of the array that it needs, if any.
    """

    name: str
    says: str
    run: Callable[[Session, str], None]
    happens: Callable[[Model, Model, str], None]
    isolation: str = "snapshot"
    on: str = ""


# -- the base --------------------------------------------------------------------------------------------------


def base_model() -> Model:
    """What there is before: the last chunk of an array of eight items is not there."""
    values = [10, 11, 12, 13, 14, 15]
    return Model(
        {
            "": group("root"),
            "a": array("a", values, length=ITEMS),
            "o": array("o", values, "x", length=ITEMS),
            "g": group("g", title="g"),
            "g/a": array("g/a", values, length=ITEMS),
            "g/u": array("g/u", [*values, 16], "when"),
            "g/e": group("g/e"),
            "g/s": group("g/s"),
            "g/s/b": array("g/s/b", values, length=ITEMS),
            "g/notes.txt": file("g/notes.txt", b"notes"),
        }
    )


def build(session: Session, model: Model) -> None:
    """Write a model for real."""
    for path, thing in model.things.items():
        if thing.kind == "group":
            zarr.create_group(session.store, path=path, attributes=thing.attributes)
        elif thing.kind == "array":
            written = create_array(session, path, thing.length, thing.dimension)
            for number in thing.chunks:
                part = slice(number * 2, min(number * 2 + 2, thing.length))
                written[part] = np.array(thing.values(), "i4")[part]
        else:
            put(session, path, thing.chunks[0])


# -- what sessions do --------------------------------------------------------------------------------------------


def create_array(
    session: Session, path: str, length: int, dimension: str = "time", overwrite: bool = False
) -> zarr.Array[Any]:
    return zarr.create_array(
        session.store,
        name=path,
        shape=(length,),
        chunks=(2,),
        dtype="i4",
        compressors=None,
        fill_value=0,
        dimension_names=[dimension],
        overwrite=overwrite,
    )


def open_array(session: Session, path: str) -> zarr.Array[Any]:
    return zarr.open_array(session.store, path=path, mode="r+", zarr_format=3)


def put(session: Session, key: str, data: bytes) -> None:
    session.store.set_sync(key, cpu.Buffer.from_bytes(data))


def remove(session: Session, path: str) -> None:
    sync(session.store.delete_dir(path))


def rewrite(session: Session, path: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Write a metadata document anew."""
    found = session.store.get_sync(f"{path}/zarr.json")
    assert found is not None
    document = json.loads(found.to_bytes())
    change(document)
    put(session, f"{path}/zarr.json", json.dumps(document).encode())


def written(label: str, count: int) -> list[int]:
    """Values that only the session of this label writes."""
    return [MARKS[label] + number for number in range(count)]


# -- operations on one array ---------------------------------------------------------------------------------------


def array_operations(a: str) -> list[Operation]:
    """Return operations on the array at a path."""
    on_array = [*_metadata_operations(a), *_size_operations(a), *_chunk_operations(a)]
    return [*[replace(operation, on=a) for operation in on_array], *_node_operations(a)]


def _edit(a: str, change: Callable[[Thing, str], None]) -> Callable[[Model, Model, str], None]:
    return lambda model, view, label: change(model.same(view, a), label)


def _set_attribute(a: str, name: str, says: str, attribute: str, value: Callable[[str], Any]) -> Operation:
    def run(session: Session, label: str) -> None:
        open_array(session, a).attrs[attribute] = value(label)

    def change(thing: Thing, label: str) -> None:
        thing.attributes[attribute] = value(label)

    return Operation(name, says, run, _edit(a, change))


def _metadata_operations(a: str) -> list[Operation]:
    def rewritten(
        name: str, says: str, document: Callable[[dict[str, Any], str], None], change: Callable[[Thing, str], None]
    ) -> Operation:
        return Operation(
            name,
            says,
            lambda session, label: rewrite(session, a, lambda found: document(found, label)),
            _edit(a, change),
        )

    def to_big(document: dict[str, Any], _label: str) -> None:
        document["codecs"][0]["configuration"]["endian"] = "big"

    fill = {"ours": 7, "theirs": 9}
    scale = {"ours": 0.5, "theirs": 0.25}
    return [
        _set_attribute(a, "attrs", "set an attribute of the array", "note", lambda label: label),
        _set_attribute(a, "scale", "set its `scale_factor`", "scale_factor", lambda label: scale[label]),
        rewritten(
            "fill",
            "change its fill value",
            lambda document, label: document.update(fill_value=fill[label]),
            lambda thing, label: setattr(thing, "fill", fill[label]),
        ),
        rewritten("codecs", "change its codecs", to_big, lambda thing, _: setattr(thing, "endian", "big")),
        rewritten(
            "names",
            "change its dimension names",
            lambda document, label: document.update(dimension_names=[label]),
            lambda thing, label: setattr(thing, "dimension", label),
        ),
    ]


def _size_operations(a: str) -> list[Operation]:
    def grow_and_fill(session: Session, label: str) -> None:
        grown = open_array(session, a)
        grown.resize((12,))
        grown[8:12] = written(label, 4)

    def grown_and_filled(thing: Thing, label: str) -> None:
        thing.resize(12)
        thing.write(8, written(label, 4))

    def appending(count: int) -> Callable[[Session, str], None]:
        return lambda session, label: session.append({a: np.array(written(label, count), "i4")}, "time")

    return [
        Operation(
            "grow", "resize it up", lambda s, _: open_array(s, a).resize((12,)), _edit(a, lambda t, _: t.resize(12))
        ),
        Operation(
            "shrink", "resize it down", lambda s, _: open_array(s, a).resize((4,)), _edit(a, lambda t, _: t.resize(4))
        ),
        Operation("grow+write", "resize it up and write the new part", grow_and_fill, _edit(a, grown_and_filled)),
        Operation(
            "append", "append whole chunks", appending(2), _edit(a, lambda t, label: t.append(written(label, 2)))
        ),
        Operation(
            "append½",
            "append a chunk and a half",
            appending(3),
            _edit(a, lambda thing, label: thing.append(written(label, 3))),
        ),
    ]


def _chunk_operations(a: str) -> list[Operation]:
    def writing(name: str, says: str, start: int) -> Operation:
        def run(session: Session, label: str) -> None:
            open_array(session, a)[start : start + 2] = written(label, 2)

        return Operation(name, says, run, _edit(a, lambda thing, label: thing.write(start, written(label, 2))))

    def erased(thing: Thing, _label: str) -> None:
        del thing.chunks[0]

    return [
        writing("write", "write its first chunk", 0),
        writing("write2", "write its second chunk", 2),
        writing("new chunk", "write a chunk that was not there", 6),
        Operation("erase", "delete its first chunk", lambda s, _: s.store.delete_sync(f"{a}/c/0"), _edit(a, erased)),
    ]


def _node_operations(a: str) -> list[Operation]:
    def recreate(session: Session, label: str) -> None:
        create_array(session, a, 4, overwrite=True)[:] = written(label, 4)

    def recreated(model: Model, view: Model, label: str) -> None:
        model.remove(view, a)
        model.put(a, array(f"{label} {a}", written(label, 4)))

    def recreated_empty(model: Model, view: Model, label: str) -> None:
        model.remove(view, a)
        model.put(a, array(f"{label} {a}", [], length=4))

    def regrouped(model: Model, view: Model, label: str) -> None:
        model.remove(view, a)
        model.put(a, group(f"{label} {a}"))

    return [
        Operation("delete", "delete it", lambda s, _: remove(s, a), lambda model, view, _: model.remove(view, a)),
        Operation("re-create", "create it again (`overwrite=True`) and write it", recreate, recreated),
        Operation(
            "re-create empty",
            "create it again, without chunks",
            lambda session, _: void(create_array(session, a, 4, overwrite=True)),
            recreated_empty,
        ),
        Operation(
            "to group",
            "create a group in its place",
            lambda session, _: void(zarr.create_group(session.store, path=a, overwrite=True)),
            regrouped,
        ),
        moving("move", "move it to `/n`", a, "n"),
        moving("move into", "move it into the group `/g/e`", a, "g/e/a"),
    ]


def void(_value: object) -> None:
    """Drop a value, so that an expression may stand where nothing is returned."""


def moving(name: str, says: str, source: str, target: str) -> Operation:
    return Operation(
        name,
        says,
        lambda session, _: session.move(source, target),
        lambda model, view, _: model.move(view, source, target),
    )


# -- operations on the hierarchy -------------------------------------------------------------------------------------


def hierarchy_operations() -> list[Operation]:
    """Return operations on groups, files, and places where nothing was."""
    return [*_creations(), *_group_operations(), *_other_operations()]


def _creating(name: str, says: str, path: str, kind: str) -> Operation:
    def run(session: Session, label: str) -> None:
        if kind == "group":
            zarr.create_group(session.store, path=path)
        elif kind == "array":
            create_array(session, path, 4)[:] = written(label, 4)
        else:
            put(session, path, label.encode())

    def happens(model: Model, _view: Model, label: str) -> None:
        token = f"{label} {path}"
        things = {"group": group(token), "array": array(token, written(label, 4)), "file": file(token, label.encode())}
        model.put(path, things[kind])

    return Operation(name, says, run, happens)


def _creations() -> list[Operation]:
    def create_deep(session: Session, label: str) -> None:
        create_array(session, "n/x/y", 4)[:] = written(label, 4)

    def created_deep(model: Model, _view: Model, label: str) -> None:
        model.put("n", group(f"{label} n"))
        model.put("n/x", group(f"{label} n/x"))
        model.put("n/x/y", array(f"{label} n/x/y", written(label, 4)))

    def create_bare(session: Session, label: str) -> None:
        found = session.store.get_sync("g/s/b/zarr.json")
        assert found is not None
        put(session, "n/x/y/zarr.json", found.to_bytes())
        open_array(session, "n/x/y")[:] = written(label, 8)

    def created_bare(model: Model, _view: Model, label: str) -> None:
        model.put("n/x/y", array(f"{label} n/x/y", written(label, 8)))

    return [
        _creating("array", "create the array `/n`", "n", "array"),
        _creating("group", "create the group `/n`", "n", "group"),
        _creating("file", "create a file `/n/c/0`, the name of a chunk of an array `/n`", "n/c/0", "file"),
        Operation("deep array", "create the array `/n/x/y` and the groups above it", create_deep, created_deep),
        Operation(
            "bare array", "create the array `/n/x/y` without groups above it", create_bare, created_bare, on="g/s/b"
        ),
        _creating("nested array", "create the array `/g/n`", "g/n", "array"),
        _creating("nested group", "create the group `/g/n`", "g/n", "group"),
        _creating("nested file", "create the file `/g/new.txt`", "g/new.txt", "file"),
        _creating("into empty", "create the array `/g/e/a` in an empty group", "g/e/a", "array"),
    ]


def _group_operations() -> list[Operation]:
    def regroup(session: Session, _label: str) -> None:
        zarr.create_group(session.store, path="g", overwrite=True)

    def regrouped(model: Model, view: Model, label: str) -> None:
        model.remove(view, "g")
        model.put("g", group(f"{label} g"))

    def to_array(session: Session, label: str) -> None:
        create_array(session, "g", 4, overwrite=True)[:] = written(label, 4)

    def made_array(model: Model, view: Model, label: str) -> None:
        model.remove(view, "g")
        model.put("g", array(f"{label} g", written(label, 4)))

    def set_attribute(name: str, says: str, path: str) -> Operation:
        def run(session: Session, label: str) -> None:
            zarr.open_group(session.store, path=path, mode="r+", zarr_format=3).attrs["note"] = label

        return Operation(
            name, says, run, lambda model, view, label: model.same(view, path).attributes.update(note=label)
        )

    def deleting(name: str, says: str, path: str) -> Operation:
        return Operation(name, says, lambda s, _: remove(s, path), lambda model, view, _: model.remove(view, path))

    return [
        deleting("del group", "delete the group `/g` with all that is in it", "g"),
        deleting("del empty", "delete the empty group `/g/e`", "g/e"),
        Operation("re-group", "create the group `/g` again (`overwrite=True`)", regroup, regrouped),
        Operation("to array", "create an array in place of the group `/g`", to_array, made_array),
        set_attribute("g attrs", "set an attribute of the group `/g`", "g"),
        set_attribute("sub attrs", "set an attribute of the nested group `/g/s`", "g/s"),
        moving("move group", "move the group `/g` to `/n`", "g", "n"),
        moving("move sub", "move the nested group `/g/s` to `/g/n`", "g/s", "g/n"),
    ]


def _other_operations() -> list[Operation]:
    def write(session: Session, label: str) -> None:
        put(session, "g/notes.txt", label.encode())

    def wrote(model: Model, view: Model, label: str) -> None:
        model.same(view, "g/notes.txt").chunks[0] = label.encode()

    def append(session: Session, label: str) -> None:
        session.append({"g/u": np.array(written(label, 2), "i4")}, "when")

    def appended(model: Model, view: Model, label: str) -> None:
        model.same(view, "g/u").append(written(label, 2))

    return [
        Operation("write file", "write the file `/g/notes.txt`", write, wrote),
        Operation(
            "del file",
            "delete the file `/g/notes.txt`",
            lambda session, _: session.store.delete_sync("g/notes.txt"),
            lambda model, view, _: model.remove(view, "g/notes.txt"),
        ),
        Operation(
            "append to 7", "append to `/g/u`, whose 7 items do not fill their chunks", append, appended, on="g/u"
        ),
    ]


# -- serializable sessions -------------------------------------------------------------------------------------------


def reading_operations(a: str) -> list[Operation]:
    """Return operations that read something and write elsewhere, in serializable sessions."""

    def write_elsewhere(session: Session, label: str) -> None:
        open_array(session, "o")[0:2] = written(label, 2)

    def wrote_elsewhere(model: Model, view: Model, label: str) -> None:
        model.same(view, "o").write(0, written(label, 2))

    def read_all(session: Session, label: str) -> None:
        assert len(open_array(session, a)[:]) == ITEMS
        write_elsewhere(session, label)

    def read_part(session: Session, label: str) -> None:
        assert len(open_array(session, a)[0:2]) == 2
        write_elsewhere(session, label)

    def read_members(session: Session, label: str) -> None:
        assert len(list(zarr.open_group(session.store, path="g", mode="r", zarr_format=3).members())) == 4
        write_elsewhere(session, label)

    return [
        Operation("read array", "read all of it, write elsewhere", read_all, wrote_elsewhere, "serializable"),
        Operation("read chunk", "read its first chunk, write elsewhere", read_part, wrote_elsewhere, "serializable"),
        Operation(
            "read members",
            "look at the members of `/g`, write elsewhere",
            read_members,
            wrote_elsewhere,
            "serializable",
        ),
    ]
