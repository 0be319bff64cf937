"""Targets: whole repositories in which one object is not what it was, payloads of forks, and metadata documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

import zarr
from zarr.core.buffer import cpu
from zarr.core.sync import _collect_aiterator, sync

from arraystore import Repository, Session
from arraystore._format.box import Box
from arraystore._format.envelope import bind_object
from arraystore._format.ids import id_to_text
from arraystore._format.refs import REPOSITORY_KEY, decode_repository
from arraystore._format.zarr_changes import dimension_of, reads_alike, same_shape, with_length
from arraystore._format.zarr_metadata import DOCUMENT_NAMES, array_info, node_type
from arraystore.errors import ArrayStoreError, InvalidInputError
from arraystore.storage import MemoryStorage
from tests.copying.support import objects as objects_on
from tests.fuzz.mutate import TEXTS, change_bytes, change_tree, pack, unpack
from tests.fuzz.states import a_repository, repository_of, same_ids
from tests.fuzz.target import Target, body_trees, change_object

__all__ = ["store_targets"]


def store_targets() -> Iterator[Target]:
    """Yield the targets of this module."""
    yield _repository()
    yield _listing()
    yield _merge()
    yield _documents()


# -- a repository with a hostile object ----------------------------------------------------------------


def _repository() -> Target:
    """One object is replaced, and everything is read: the input is its key and its bytes."""
    objects = a_repository()
    wanted = [key for key in objects if not key.startswith("chunks/")]
    seeds = [pack((key, objects[key])) for key in _few(wanted)]
    return Target(
        "repository", seeds, _read_with, use=lambda found: None, change=_change_one, refusals=(ArrayStoreError,),
        measured=False,
    )  # fmt: skip


def _few(keys: list[str]) -> list[str]:
    """Leave out most of the records, which are alike."""
    return [key for key in keys if "/branch/main/" not in key or int(key[-12:]) in (0, 1, 2, 8, 64, 70, 72, 73)]


def _change_one(rng: Random, data: bytes, target: Target) -> bytes:
    key, value = unpack(data)
    trees = body_trees([value])
    inner = Target(target.name, [value], decode=bytes)
    inner.__dict__["trees"] = trees
    changed = change_object(rng, value, inner)
    under_id = key.startswith(("snapshots/", "manifests/", "transactions/", "collections/")) or "/kept/" in key
    return pack((key, bind_object(key, changed) if under_id and len(changed) >= 16 else changed))


def _read_with(data: bytes) -> Any:
    key, value = unpack(data)
    repository = repository_of({**a_repository(), key: value})
    found: list[Any] = [repository.list_branches(), repository.list_tags(), repository.config]
    found += [repository.get_metadata(), repository.get_status(), repository.feature_flags()]
    failure: ArrayStoreError | None = None
    for reference in ({"branch": "main"}, {"branch": "side/é"}, {"branch": "reset"}, {"tag": "v1"}):
        try:
            found.append([(entry.id, entry.message, entry.metadata) for entry in repository.ancestry(**reference)])
            found.append(read_everything(repository.readonly_session(**reference)))
        except ArrayStoreError as error:
            failure = error
    if failure is not None:
        raise failure
    return found


def read_everything(session: Session) -> int:
    """Read every key."""
    keys = sync(_collect_aiterator(session.store.list()))
    total = 0
    for key in keys:
        value = session.store.get_sync(key)
        total += 0 if value is None else len(value)
    return total


# -- keys that do not belong into a bucket ----------------------------------------------------------------

ODD = [
    *(
        "refs/{id}/branch/main/00000000000²",
        "refs/{id}/branch/main/٠٠٠٠٠٠٠٠٠٠٧٣",
        "refs/{id}/branch/main/x",
        "refs/{id}/branch/main/1/2",
    ),
    *(
        "refs/{id}/branch/%zz/000000000000",
        "refs/{id}/branch/%00/000000000000",
        "refs/{id}/branch/a b/0",
        "refs/{id}/branch/x",
    ),
    *("refs/branch/main/000000000000", "refs/00000000000000000001/branch/main/000000000000", "refs/{id}/x"),
    *(
        "refs/{id}/tag/%ff",
        "refs/{id}/tag/%C3",
        "refs/{id}/tag/a/b",
        "refs/{id}/tag/%2e",
        "hints/x",
        "history/{id}/main/1/x",
        "history/{id}/x/y/z",
    ),
    *(
        "refs/{id}/branch/main/999999999999",
        "refs/{id}/branch/main/000000000099-00000000000000000000",
        "snapshots/x",
        "repo/x",
    ),
]


def _id() -> str:
    return id_to_text(decode_repository(REPOSITORY_KEY, a_repository()[REPOSITORY_KEY]).id)


def _listing() -> Target:
    """A key that nobody of ours has written, with bytes that are nothing."""
    return Target(
        "listing", [key.replace("{id}", _id()).encode() for key in ODD], _read_beside,
        refusals=(ArrayStoreError,), measured=False,
        change=lambda rng, data, target: change_bytes(rng, data, target.seeds),
    )  # fmt: skip


def _read_beside(data: bytes) -> Any:
    key = data.decode(errors="replace")
    objects = a_repository()
    if key in objects:
        raise InvalidInputError("a key of ours")
    repository = repository_of({**objects, key: b"?"})
    assert isinstance(repository, Repository)
    found = (repository.list_branches(), repository.list_tags())
    repository.lookup_branch("main")
    return found, len(list(repository.ancestry(tag="v1")))


# -- what forks return ----------------------------------------------------------------


def _merge() -> Target:
    """A payload of a fork, changed, is merged into the session: all of it, or nothing."""
    return Target(
        "merge", [_forked()[1]], _merged, use=read_everything, change=change_object, refusals=(ArrayStoreError,),
        measured=False,
    )  # fmt: skip


@cache
def _forked() -> tuple[dict[str, bytes], bytes]:
    """Return the objects after a fork has written, and what it sends home."""
    with same_ids():
        session = _session(a_repository())
        fork = session.fork()
        zarr.open_array(fork.store, path="a")[3:5] = 9
        zarr.open_array(fork.store, path="group/dots")[:4] = 9
        zarr.create_array(fork.store, name="new", shape=(3,), chunks=(1,), dtype="i1")[:] = 4
        fork.store.set_sync("notes.txt", cpu.Buffer.from_bytes(b"another"))
        fork.store.delete_sync("a/c/0/1")
        payload = fork.changes()
    storage = session.context.storage
    assert isinstance(storage, MemoryStorage)
    return objects_on(storage), payload


def _session(objects: dict[str, bytes]) -> Session:
    """Return a session with something uncommitted, whose id is that of the payload."""
    session = repository_of(objects).writable_session("main")
    session._id = b"the session!"
    session.store.set_sync("scalar/c", cpu.Buffer.from_bytes(b"\1\2"))
    return session


def _merged(data: bytes) -> Session:
    objects, _ = _forked()
    session = _session(objects)
    session.fork()
    before = session.status()
    try:
        session.merge([data])
    except ArrayStoreError:
        assert session.status() == before, "a refused payload was merged in part"
        raise
    return session


# -- documents ----------------------------------------------------------------


def _documents() -> Target:
    """Metadata documents of a node, of which anything may be written by anyone; the input is a map of them."""
    objects = read_documents()
    return Target(
        "documents", objects, _looked_at, change=_change_documents, refusals=(InvalidInputError,), measured=False
    )


def read_documents() -> list[bytes]:
    """Return the documents of the arrays of the repository, and a pair that may be found after a migration."""
    session = repository_of(a_repository()).readonly_session("main")
    found = [dict(node.documents) for node in session.hierarchy.state.nodes.values() if node.documents]
    both = {name: text for documents in found for name, text in documents.items() if name in (".zarray", ".zattrs")}
    rectilinear = json.loads(next(d["zarr.json"] for d in found if b'"array"' in d.get("zarr.json", b"")))
    rectilinear["shape"] = [7, 6]
    sides = {"kind": "inline", "chunk_shapes": [[[2, 3], 1], 4]}
    rectilinear["chunk_grid"] = {"name": "rectilinear", "configuration": sides}
    cube = {"zarr.json": json.dumps(rectilinear).encode()}
    return [pack(documents) for documents in (*found, {**both, **found[-1]}, cube, {**cube, **both})]


def _change_documents(rng: Random, data: bytes, target: Target) -> bytes:
    documents = {name: text for name, text in unpack(data).items() if isinstance(text, bytes)}
    for name in rng.sample(list(documents), rng.randrange(len(documents) + 1)):
        if rng.random() < 0.2:
            documents[name] = change_bytes(rng, documents[name], [b"null", b"[]", b"[" * 5000, b"1e999", b"-0"])
            continue
        try:
            value = json.loads(documents[name])
            changed = change_tree(rng, _as_tuples(value), body_trees(target.seeds))
            documents[name] = json.dumps(changed, default=str).encode()
        except (ValueError, RecursionError, TypeError):
            documents[name] = rng.choice(TEXTS).encode(errors="replace")
    if rng.random() < 0.3:
        documents[rng.choice(DOCUMENT_NAMES)] = rng.choice((b"{}", b"\xff", b"null", b'{"zarr_format":2}'))
    return pack(documents)


def _as_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple([_as_tuples(item) for item in value])
    if isinstance(value, dict):
        return {key: _as_tuples(item) for key, item in value.items()}
    return value


def _looked_at(data: bytes) -> Any:
    """Do everything that is done with documents."""
    documents: dict[str, bytes] = {name: text for name, text in unpack(data).items() if type(text) is bytes}
    for name, document in documents.items():
        assert node_type(name, document) in ("group", "array", None)
    info = array_info(documents)
    assert len(info.shape) == len(info.grid) <= 64
    for text in ("c", "0", "c/0/0", "c.1", "0.0", "x", "c/99999999999999999999", "é"):
        coords = info.parse(text)
        assert coords is None or len(coords) == len(info.grid)
    origin = (0,) * len(info.grid)
    assert len(info.encodings) != 1 or info.parse(info.key(origin)) == origin
    assert Box(origin, tuple(n + 1 for n in info.grid)).volume > 0
    assert reads_alike(documents, documents)
    reads_alike(documents, {})
    assert same_shape(documents, documents)
    for axis in range(len(info.shape)):
        dimension = dimension_of(documents, axis)
        assert dimension.length == info.shape[axis]
        grown = with_length(documents, axis, dimension.length + 1)
        assert array_info(grown).shape[axis] == dimension.length + 1 or _uncovered(documents)
    return info


def _uncovered(documents: dict[str, bytes]) -> bool:
    """Tell whether a document lists its chunks one by one, so that they do not cover a longer array."""
    return b"rectilinear" in documents.get("zarr.json", b"")
