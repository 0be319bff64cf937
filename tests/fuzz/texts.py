"""Targets: keys of the store, keys of objects, names, ids, URLs and paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import _collect_aiterator, sync

from arraystore import ArrayStore, Repository, storage_from_url
from arraystore._chunks.virtual_containers import VirtualContainers
from arraystore._format.envelope import pack_body
from arraystore._format.ids import id_from_text, id_to_text
from arraystore._format.refs import branch_prefix, name_from_key, name_in_key
from arraystore._format.zarr_metadata import array_info
from arraystore._session.keys import check_key
from arraystore._session.virtual_references import VirtualChunkSpec
from arraystore.errors import ArrayStoreError, InvalidInputError, NotFoundError, StorageError, VirtualReferenceError
from arraystore.ingest.chunks import parse_chunks
from arraystore.storage import LocalStorage
from arraystore.storage.keys import check_key as check_object_key
from tests.fuzz.states import CONTAINER, a_repository, repository_of
from tests.fuzz.target import Target

__all__ = ["text_targets"]

ALPHABET = "/.0123456789cv-+_ %2e\\:@?#&=[]\0\x1f\x7f\u0661\u00b2é\u202e\ud800\U0001f600azZ~"
WORDS = [
    *("..", "../", "/c/0/0", "c/", "c.", "zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata", "://", "%2F"),
    *("%2e%2e", "%00", "::", "s3://", "file:///", "memory://", "c/01", "c/18446744073709551616/0", "x" * 4097),
]


def text_targets() -> Iterator[Target]:
    """Yield the targets of this module."""
    yield _text("text-store-key", _keys(), _try_key, ArrayStoreError)
    yield _text("text-object-key", ["a/b", "snapshots/01ABC", "x" * 1024, "é" * 512], _object_key, InvalidInputError)
    yield _text("text-name", ["main", "v1/é", ".hidden", "a b%41", "x" * 200], _name, InvalidInputError)
    yield _text("text-id", [id_to_text(bytes(range(12))), "1" + "Z" * 19, "2" + "0" * 19], _id, InvalidInputError)
    yield _text("text-chunks", ["time=60,lat=37", " a = 1 ,", "x=00012"], _chunks, InvalidInputError)
    yield _text("text-url", _urls(), _storage, ArrayStoreError)
    yield _text("text-virtual-url", _virtual_urls(), _virtual, ArrayStoreError)


def _text(name: str, seeds: list[str], run: Callable[[str], Any], refusal: type[Exception]) -> Target:
    def decode(data: bytes) -> Any:
        return run(data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace"))

    encoded = [seed.encode("utf-8", "surrogatepass") for seed in seeds]
    return Target(name, encoded, _forgiving(decode), change=_change_text, refusals=(refusal,), measured=False)


def _forgiving(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Take bytes that are no text for the nearest text."""

    def run(data: bytes) -> Any:
        try:
            data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            data = data.decode("utf-8", "replace").encode()
        return decode(data)

    return run


def _change_text(rng: Random, data: bytes, target: Target) -> bytes:
    text = data.decode("utf-8", "surrogatepass")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((0, 0, 1, 2, 5)))
        other = rng.choice(target.seeds).decode("utf-8", "surrogatepass")
        start = rng.randrange(len(other) + 1)
        piece = rng.choice((rng.choice(ALPHABET), rng.choice(WORDS), other[start:], other[:start], ""))
        text = text[:at] + piece + text[end:]
    return text[:6000].encode("utf-8", "surrogatepass")


# -- keys of the store ----------------------------------------------------------------


@cache
def _store() -> ArrayStore:
    """Return a store whose arrays are partly committed and partly not; every trial leaves it as it was."""
    session = repository_of(a_repository()).writable_session("main")
    session.store.set_sync("a/c/3/1", cpu.Buffer.from_bytes(b"uncommitted" * 9))
    session.store.set_sync("loose/file", cpu.Buffer.from_bytes(b"x"))
    return session.store


def _keys() -> list[str]:
    keys = list(sync(_collect_aiterator(_store().list())))
    return [*keys[:60], "a/c/0/1", "group/dots/c.3", "group/moved/2", "scalar/c", "a/c/9/9", "a/c/00/0", "nothing/here"]


def _try_key(key: str) -> Any:
    """Ask for a value in every way, set it, list it, and take it away again."""
    store = _store()
    hierarchy = store.session.hierarchy
    found = hierarchy.chunk(key)
    if found is not None:
        _check_found(key, found)
    before = store.get_sync(key)
    same = sync(store.get(key, default_buffer_prototype()))
    assert (before is None) == (same is None) == (not sync(store.exists(key)))
    if before is not None:
        assert same is not None
        assert before.to_bytes() == same.to_bytes()
        assert sync(store.getsize(key)) == len(before)
        check_key(key)  # whatever there is has a key that can be
    for name in sync(_collect_aiterator(store.list_dir(key))):
        assert "/" not in name
    list(sync(_collect_aiterator(store.list_prefix(key))))
    if before is not None or key.endswith((".zattrs", ".zmetadata", ".zgroup", ".zarray", "zarr.json")):
        return before is not None
    return _set_and_delete(store, key)


def _check_found(key: str, found: tuple[Any, tuple[int, ...]]) -> None:
    handle, coords = found
    assert len(coords) == len(handle.grid)
    assert all(0 <= c < 10**19 for c in coords)
    if handle.info is not None:
        path = handle.node.path
        assert (f"{path}/" if path else "") + array_info(handle.node.documents).key(coords) == key


def _set_and_delete(store: ArrayStore, key: str) -> Any:
    value = cpu.Buffer.from_bytes(b"new value")
    try:
        store.set_sync(key, value)
    except InvalidInputError:
        assert store.get_sync(key) is None
        raise
    check_key(key)
    pack_body([change.to_wire() for change in store.session.hierarchy.writable().node_changes()])  # so it can be kept
    now = store.get_sync(key)
    assert now is not None
    assert now.to_bytes() == b"new value"
    assert key in sync(_collect_aiterator(store.list_prefix(key)))
    store.delete_sync(key)
    assert store.get_sync(key) is None
    assert not sync(store.exists(key))
    return True


# -- names ----------------------------------------------------------------


def _object_key(key: str) -> bool:
    check_object_key(key)
    assert len(key.encode()) <= 1024
    assert not any(part in ("", ".", "..") for part in key.split("/"))
    assert os.path.normpath(f"/root/{key}").startswith("/root/")
    return True


def _name(name: str) -> bool:
    encoded = name_in_key(name)
    check_object_key(branch_prefix(bytes(12), name) + "000000000000")
    assert "/" not in encoded
    assert name_from_key(encoded) == name
    return True


def _id(text: str) -> bool:
    assert id_to_text(id_from_text(text)) == text
    return True


def _chunks(text: str) -> bool:
    assert all(size > 0 for size in parse_chunks(text).values())
    return True


# -- URLs ----------------------------------------------------------------


def _urls() -> list[str]:
    return [
        *(
            "s3://bucket/some/prefix/",
            "s3://b?region=eu-north-1&anonymous=true",
            "gs://bucket/p",
            "memory://shared/name",
        ),
        *(
            "s3://b/p?endpoint_url=http://h:1&allow_http=true",
            "az://account/container/p",
            "file:///tmp/a%20b?fsync=false",
        ),
        *("http://host/path?x=1", "ftp://user@host/path", "s3://[::1]:9/x", "relative/path", "/an/absolute/path"),
        *("s3://user:secret@bucket/p", "nosuch://x", "sftp://host/path", "s3://b/%2e%2e/c", "local:///x/../y"),
    ]


def _storage(url: str) -> str:
    """Make a storage, which makes no request; none is made of a URL with a password, which its location would show."""
    location = storage_from_url(url).location
    assert "://" not in url or not urlsplit(url).password
    return location.partition(":")[0]


def _virtual_urls() -> list[str]:
    return [CONTAINER + "file", CONTAINER + "../file", CONTAINER + "%2e%2e/file", "file:///etc/passwd", CONTAINER, "a://b",
            CONTAINER + "a/./b", CONTAINER + "/abs", "mem://virtual", "mem+x://h/y", ":///"]  # fmt: skip


@cache
def _directory() -> tuple[VirtualContainers, TemporaryDirectory[str]]:
    """Return a container in a directory next to something that is none of its business."""
    kept = TemporaryDirectory(prefix="arraystore-fuzz-")
    root = Path(kept.name)
    for name, text in (("inside/file", b"allowed " * 4), ("secret", b"forbidden"), ("inside-too/file", b"forbidden")):
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
    return VirtualContainers({CONTAINER: LocalStorage(root / "inside")}), kept


@cache
def _opened() -> Repository:
    return repository_of(a_repository())


def _virtual(url: str) -> bool:
    """Read a virtual reference, wherever it points: inside of the container, or not at all."""
    containers, _ = _directory()
    session = _opened().writable_session("main")
    try:
        session.store.set_virtual_refs("group/dots", [VirtualChunkSpec((5,), url, 0, 8)], checksum=None)
        taken = bool(url)
    except VirtualReferenceError:
        taken = False
    storage, key = containers.find(url)
    assert taken, "a reference that is read is one that is written"
    try:
        data = bytes(storage.get_source_range_sync(key, 0, 8)[0])
    except (StorageError, NotFoundError):
        return False
    assert data == b"allowed ", "a reference reached out of its container"
    return True
