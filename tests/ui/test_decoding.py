"""Chunks that claim to be small and are not, and codecs that only zarr knows: decoded in bounded memory and time."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zarr
import zstandard
from numcodecs import BZ2
from zarr.core.buffer import default_buffer_prototype

import arraystore
from arraystore._runtime import run
from arraystore.ui.decoder import messages, process
from arraystore.ui.decoder.process import Decoder, UndecodableChunksError, _environment
from arraystore.ui.opening import open_to_look
from arraystore.ui.server.answers import Answer, answer
from arraystore.ui.views import bounded_reading
from arraystore.ui.views.limits import TooLargeError
from tests.ui.decoding import decoded

GIB = 1 << 30


def endless(size: int) -> bytes:
    """Return a frame of zstd without a content size, of some bytes for each 128 KiB of zeros."""
    block = 1 << 17
    blocks = [struct.pack("<I", (last := at == size // block - 1) | 1 << 1 | block << 3)[:3] + b"\0"
              for at in range(size // block)]  # fmt: skip
    assert last
    return bytes.fromhex("28b52ffd") + b"\x00\x60" + b"".join(blocks)


def preview(chunk: bytes, **creation: Any) -> Answer:
    """Return the preview of an array of ten numbers with one chunk."""
    storage = arraystore.in_memory_storage()
    session = arraystore.Repository.create(storage).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(10,), chunks=(10,), dtype="<f4", **creation)
    run(session.store.set("a/c/0", default_buffer_prototype().buffer.from_bytes(chunk)))
    session.commit("a chunk")
    return asyncio.run(answer(open_to_look(storage), "preview", {"at": "branch:main", "path": "a"}))


NUMBERS = np.arange(10, dtype="<f4")


@pytest.mark.parametrize(
    ("compressor", "chunk"),
    [
        (None, endless(4 * GIB)),
        (None, zstandard.ZstdCompressor().compress(bytes(8 << 20))),
        (zarr.codecs.BloscCodec(), struct.pack("<BBBBIII", 2, 1, 0x33, 4, GIB * 3, 1 << 20, 64) + bytes(48)),
        (zarr.codecs.GzipCodec(), gzip.compress(bytes(200 << 20), 1)),
    ],
    ids=["without a size", "with a size", "blosc", "gzip"],
)
def test_a_chunk_that_decodes_to_more_than_it_should_is_an_error(compressor: Any, chunk: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = preview(chunk, **({} if compressor is None else {"compressors": compressor}))
    assert found.status == 422, found.body
    assert found.body["error"]["type"] == "UndecodableChunksError"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10


@pytest.mark.parametrize(
    ("compressor", "chunk"),
    [
        (zarr.codecs.GzipCodec(), gzip.compress(NUMBERS.tobytes()[:12]) + gzip.compress(NUMBERS.tobytes()[12:])),
        (zarr.codecs.numcodecs.BZ2(), bytes(BZ2().encode(NUMBERS.tobytes()))),
    ],
    ids=["gzip in two parts", "bz2"],
)
def test_what_only_zarr_can_decode_is_shown(compressor: Any, chunk: bytes) -> None:
    found = preview(chunk, compressors=compressor)
    assert found.status == 200, found.body
    np.testing.assert_array_equal(decoded(found.body["result"])["values"], NUMBERS)


def test_a_scalar_is_decoded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_reading, "DECODER", None)
    storage = arraystore.in_memory_storage()
    with arraystore.Repository.create(storage).transaction("main", message="scalars") as store:
        for version in (2, 3):
            zarr.create_array(store, name=f"v{version}", shape=(), dtype="f4", zarr_format=version)[...] = 3.5
        zarr.create_array(store, name="unwritten", shape=(), dtype="i2", fill_value=7)
    look = open_to_look(storage)
    found = {
        name: asyncio.run(answer(look, "preview", {"at": "branch:main", "path": name})).body["result"]["table"]
        for name in ("v2", "v3", "unwritten")
    }
    assert found == {"v2": [["3.5"]], "v3": [["3.5"]], "unwritten": [["7"]]}


DOCUMENT = json.dumps(
    {
        "zarr_format": 3, "node_type": "array", "shape": [10], "data_type": "float32", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10]}}, "attributes": {},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
                   {"name": "zstd", "configuration": {"level": 0, "checksum": False}}],
    }
).encode()  # fmt: skip


@pytest.fixture
def decoder() -> Iterator[Decoder]:
    made = Decoder()
    yield made
    made.close()


def read(decoder: Decoder, chunk: bytes) -> Any:
    return decoder.decode({"zarr.json": DOCUMENT}, {"c/0": chunk}, [slice(2, 5)], (3,))


def test_a_decoder_that_takes_too_long_is_ended_and_begun_anew(decoder: Decoder) -> None:
    sound = zstandard.ZstdCompressor().compress(NUMBERS.tobytes())
    assert read(decoder, sound).tolist() == [2, 3, 4]
    first = decoder._process
    decoder.seconds = 0.001
    with pytest.raises(TooLargeError, match=r"more than 0\.001 seconds"):
        read(decoder, endless(GIB // 2))
    decoder.seconds = 20
    assert read(decoder, sound).tolist() == [2, 3, 4]
    assert first is not None
    assert first.poll() is not None
    assert decoder._process is not first


def test_a_decoder_that_ended_amid_a_request_is_begun_anew(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = zstandard.ZstdCompressor().compress(NUMBERS.tobytes())
    assert read(decoder, sound).tolist() == [2, 3, 4]
    write = messages.send

    def send(*args: Any) -> None:
        assert decoder._process is not None
        decoder._process.kill()
        decoder._process.wait()
        write(*args)

    with monkeypatch.context() as patch:
        patch.setattr(process, "send", send)
        with pytest.raises(UndecodableChunksError, match="has ended"):
            read(decoder, sound)
    assert read(decoder, sound).tolist() == [2, 3, 4]


def test_a_decoder_survives_what_it_cannot_decode(decoder: Decoder) -> None:
    for chunk in (b"", b"\0" * 100, zstandard.ZstdCompressor().compress(b"short")):
        with pytest.raises(arraystore.ArrayStoreError, match="cannot be decoded"):
            read(decoder, chunk)
    assert read(decoder, zstandard.ZstdCompressor().compress(NUMBERS.tobytes())).tolist() == [2, 3, 4]


def test_nobody_waits_for_a_busy_decoder_for_long(decoder: Decoder) -> None:
    decoder.seconds = 0.01
    with decoder._lock, pytest.raises(TooLargeError, match="look again later"):
        read(decoder, b"")


def test_a_decoder_gets_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert "secret" not in _environment().values()


def test_encoded_chunks_of_many_bytes_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_reading, "MAX_ENCODED_BYTES", 1_000)
    found = preview(bytes(2_000), compressors=zarr.codecs.numcodecs.BZ2())
    assert (found.status, found.body["error"]["kind"]) == (422, "too-large")
    assert "more than 1,000 bytes" in found.body["error"]["message"]
