"""An object that is stored under an id is that of no other id, though it is whole and of the right kind."""

from __future__ import annotations

from functools import cache

import pytest

from arraystore._format.collection import decode_collection
from arraystore._format.envelope import bind_object
from arraystore._format.history import decode_survivors
from arraystore._format.manifest import decode_manifest, encode_manifest
from arraystore._format.snapshot import decode_checkpoint
from arraystore._format.transaction import decode_transaction
from arraystore.errors import FormatError
from tests.format.make_golden import dense_manifest
from tests.fuzz.hostile_worlds import World, kind_of, world

DECODE = {
    "checkpoint": decode_checkpoint,
    "change log": decode_transaction,
    "collection": decode_collection,
    "manifest": lambda key, data: decode_manifest(key, data, key),
    "survivors": lambda key, data: decode_survivors(key, data, "main"),
}


@cache
def _trimmed() -> World:
    return world("trimmed")


@pytest.mark.parametrize("kind", DECODE)
def test_an_object_under_another_id_is_refused(kind: str) -> None:
    made = world("live") if kind == "change log" else _trimmed()
    read = DECODE[kind]
    keys = [key for key in made.objects if kind_of(key) == kind and (kind != "survivors" or "/main/" in key)]
    key = keys[0]
    read(key, made.objects[key])
    other = key[:-1] + ("0" if key[-1] != "0" else "1")
    with pytest.raises(FormatError, match="that of another key"):
        read(other, made.objects[key])


def test_a_manifest_of_a_record_is_none_of_its_own_and_the_other_way_round() -> None:
    key, encoded = "manifests/00D20CADP3MW4N4TZ9TA", encode_manifest(dense_manifest())
    bound = bind_object(key, encoded)
    assert len(bound) == len(encoded)
    assert decode_manifest(key, bound, key).count == decode_manifest("attached", encoded).count
    for data, told in ((bound, ""), (encoded, key)):
        with pytest.raises(FormatError, match="checksum"):
            decode_manifest("manifest", data, told)
