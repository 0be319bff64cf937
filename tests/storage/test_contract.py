"""What every backend promises, as `arraystore.storage.protocol` puts it."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any

import pytest

from arraystore.errors import InvalidInputError, InvalidKeyError, ObjectNotFoundError, StorageError
from arraystore.storage import ObjectInfo, Storage


async def listed(storage: Storage, prefix: str, start_after: str = "") -> list[str]:
    return [info.key async for page in storage.list(prefix, start_after) for info in page]


async def test_what_was_put_is_read_back(storage: Storage) -> None:
    for key, data in {"a": b"1", "deep/er/and/deeper": b"22", "empty": b""}.items():
        await storage.put(key, data)
        assert bytes(await storage.get(key)) == data
        assert bytes(storage.get_sync(key)) == data
        assert await storage.head(key) == ObjectInfo(key, len(data))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_every_kind_of_buffer_is_written_and_may_be_reused(storage: Storage, kind: type[Any]) -> None:
    buffer = bytearray(b"first")
    await storage.put("a", kind(buffer))
    storage.put_sync("b", kind(buffer))
    assert await storage.put_if_absent("c", kind(buffer))
    buffer[:] = b"other"
    assert [bytes(await storage.get(key)) for key in "abc"] == [b"first"] * 3


async def test_a_second_put_replaces_the_first_whole(storage: Storage) -> None:
    await storage.put("a", b"long" * 1000)
    assert bytes(storage.get_range_sync("a", 0, 4)) == b"long"
    await storage.put("a", b"short")
    assert bytes(await storage.get("a")) == b"short"
    assert bytes(storage.get_range_sync("a", 0, 5)) == b"short"


async def test_a_large_object_survives_whole(storage: Storage) -> None:
    data = bytes(range(256)) * 20_000
    await storage.put("big", data)
    assert bytes(await storage.get("big")) == data
    assert bytes(storage.get_range_sync("big", 1_000_001, 4_000_003)) == data[1_000_001:4_000_003]


async def test_keys_may_hold_what_is_not_a_separator(storage: Storage) -> None:
    keys = [
        "with space",
        "100%",
        "a+b&c=d",
        "dotted.name..",
        "é/ü/日本",
        "refs/branch/v1.0-rc~1",
        "(x)[y]{z}",
        "%41",
        "#?",
    ]
    for key in keys:
        await storage.put(key, key.encode())
    assert [bytes(await storage.get(key)).decode() for key in keys] == keys
    assert await listed(storage, "") == sorted(keys)


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", ".", "a/./b", "../a", "a/..", "a\0b", "a\\b", "a\nb", "x" * 1025]
)
async def test_an_unsafe_key_is_refused(storage: Storage, key: str) -> None:
    for call in (storage.get(key), storage.put(key, b""), storage.put_if_absent(key, b""), storage.head(key)):
        with pytest.raises(InvalidKeyError):
            await call
    with pytest.raises(InvalidKeyError):
        await storage.get_ranges(key, [(0, 1)])
    with pytest.raises(InvalidKeyError):
        await storage.delete(["fine", key])
    with pytest.raises(InvalidKeyError):
        storage.get_sync(key)
    with pytest.raises(InvalidKeyError):
        storage.get_range_sync(key, 0, 1)
    with pytest.raises(InvalidKeyError):
        storage.put_sync(key, b"")


async def test_a_missing_object_is_told_by_key_and_place(storage: Storage) -> None:
    await storage.put("there/it/is", b"x")
    for key in ("gone", "there", "there/it/is/not", "other/place"):
        with pytest.raises(ObjectNotFoundError) as found:
            await storage.get(key)
        assert found.value.key == key
        assert found.value.where == storage.location
        for call in (storage.head(key), storage.get_ranges(key, [(0, 1)])):
            with pytest.raises(ObjectNotFoundError):
                await call
        with pytest.raises(ObjectNotFoundError):
            storage.get_sync(key)
        with pytest.raises(ObjectNotFoundError):
            storage.get_range_sync(key, 0, 1)


async def test_ranges_come_in_the_order_asked_for(storage: Storage) -> None:
    data = bytes(range(256)) * 8
    await storage.put("a", data)
    ranges = [(100, 200), (0, 0), (5, 6), (150, 160), (2040, 2048), (0, 2048), (7, 7)]
    assert [bytes(part) for part in await storage.get_ranges("a", ranges)] == [data[a:b] for a, b in ranges]
    assert [bytes(storage.get_range_sync("a", a, b)) for a, b in ranges] == [data[a:b] for a, b in ranges]
    assert await storage.get_ranges("a", []) == []


@pytest.mark.parametrize("wanted", [(0, 11), (5, 20), (10, 11), (50, 60)])
async def test_a_range_past_the_end_is_an_error(storage: Storage, wanted: tuple[int, int]) -> None:
    await storage.put("a", b"0123456789")
    with pytest.raises(StorageError, match="'a'"):
        await storage.get_ranges("a", [(0, 1), wanted])
    with pytest.raises(StorageError, match="'a'"):
        storage.get_range_sync("a", *wanted)


@pytest.mark.parametrize("wanted", [(-1, 2), (3, 2)])
async def test_a_range_that_makes_no_sense_is_refused(storage: Storage, wanted: tuple[int, int]) -> None:
    await storage.put("a", b"0123456789")
    with pytest.raises(InvalidInputError):
        await storage.get_ranges("a", [wanted])
    with pytest.raises(InvalidInputError):
        storage.get_range_sync("a", *wanted)


async def test_put_if_absent_writes_once(storage: Storage) -> None:
    assert await storage.put_if_absent("log/1", b"ours") is True
    assert await storage.put_if_absent("log/1", b"theirs") is False
    assert bytes(await storage.get("log/1")) == b"ours"


async def test_put_if_absent_knows_its_own_object_again(storage: Storage) -> None:
    assert await storage.put_if_absent("log/1", b"ours")
    assert await storage.put_if_absent("log/1", b"ours") is True
    await storage.put("log/2", b"put before")
    assert await storage.put_if_absent("log/2", b"other") is False


async def test_put_if_absent_writes_again_after_a_delete(storage: Storage) -> None:
    assert await storage.put_if_absent("log/1", b"first")
    await storage.delete(["log/1"])
    assert await storage.put_if_absent("log/1", b"second")
    assert bytes(await storage.get("log/1")) == b"second"


async def test_of_many_writers_one_wins_each_key(storage: Storage) -> None:
    for turn in range(3):
        results = await asyncio.gather(*[storage.put_if_absent(f"log/{turn}", b"%d" % who) for who in range(8)])
        assert sum(results) == 1
        assert bytes(await storage.get(f"log/{turn}")) == b"%d" % results.index(True)


TREE = ["a", "a-b", "a.b", "a0", "b/c", "b/c-d/e", "b/c/d", "b/c/e/f", "b/c.d", "b/c0", "b-", "é", "z/0", "z/00", "z/1"]
# A directory cannot also be a file in a file system, so neither is an object here also the parent of others.
TREE = [key for key in TREE if not any(other.startswith(key + "/") for other in TREE)]


async def test_listings_are_in_order_and_exact(storage: Storage) -> None:
    for key in TREE:
        await storage.put(key, key.encode())
    infos = [info async for page in storage.list("") for info in page]
    assert infos == [ObjectInfo(key, len(key.encode())) for key in sorted(TREE)]
    prefixes = ["a", "a-", "b", "b/", "b/c", "b/c/", "b/c-d/", "b/x/", "z/0", "z/", "nothing", "é", "a-b/"]
    for prefix in prefixes:
        for start_after in [
            "",
            "a",
            "a-b",
            "a.b",
            "b",
            "b-",
            "b/",
            "b/c",
            "b/c-d/e",
            "b/c/d",
            "b/c/e",
            "z/0",
            "z/00",
            "zz",
        ]:
            expected = [key for key in sorted(TREE) if key.startswith(prefix) and key > start_after]
            assert await listed(storage, prefix, start_after) == expected, (prefix, start_after)


async def test_an_empty_storage_lists_nothing(storage: Storage) -> None:
    assert await listed(storage, "") == []
    assert await listed(storage, "refs/", "refs/a") == []


async def test_long_listings_come_in_pages_without_gap_or_repeat(storage: Storage) -> None:
    keys = [f"refs/{number:05}" for number in range(1200)]
    for start in range(0, len(keys), 50):
        await asyncio.gather(*[storage.put(key, b"x") for key in keys[start : start + 50]])
    pages = [[info.key for info in page] async for page in storage.list("refs/")]
    assert [key for page in pages for key in page] == keys
    assert all(0 < len(page) <= 1000 for page in pages)
    assert await listed(storage, "refs/", "refs/01150") == keys[1151:]
    assert await listed(storage, "refs/011", "refs/01195") == keys[1196:]
    assert await listed(storage, "refs/0110") == keys[1100:1110]


async def test_a_listing_may_be_left_early(storage: Storage) -> None:
    for number in range(3):
        await storage.put(f"a/{number}", b"")
    pages = storage.list("a/")
    async for page in pages:
        assert page[0].key == "a/0"
        break
    await pages.aclose()  # type: ignore[attr-defined]
    assert await listed(storage, "a/") == ["a/0", "a/1", "a/2"]


async def test_delete_removes_and_does_not_mind_what_is_not_there(storage: Storage) -> None:
    keys = [f"chunks/{number}" for number in range(5)]
    for key in keys:
        await storage.put(key, b"x")
    assert bytes(storage.get_range_sync(keys[0], 0, 1)) == b"x"
    assert await storage.delete([*keys[:3], "chunks/none", "no/such"]) == []
    assert await listed(storage, "") == keys[3:]
    assert await storage.delete([]) == []
    with pytest.raises(ObjectNotFoundError):
        await storage.get(keys[0])
    with pytest.raises(ObjectNotFoundError):
        storage.get_range_sync(keys[0], 0, 1)


async def test_sync_follows_puts_and_may_be_repeated(storage: Storage) -> None:
    await storage.sync()
    await asyncio.gather(*[storage.put(f"chunks/{number}", b"x") for number in range(20)])
    await asyncio.gather(storage.sync(), storage.sync())
    await storage.delete(["chunks/1"])
    await storage.put("chunks/2", b"y")
    await storage.sync()
    assert bytes(await storage.get("chunks/2")) == b"y"


def test_any_event_loop_and_any_thread_will_do(storage: Storage) -> None:
    async def work(name: str) -> bytes:
        await storage.put(name, name.encode())
        storage.put_sync(f"{name}-sync", b"sync")
        return bytes((await storage.get_ranges(name, [(0, len(name))]))[0])

    assert [asyncio.run(work(f"loop{number}")) for number in range(2)] == [b"loop0", b"loop1"]
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda n=n: found.append(asyncio.run(work(f"thread{n}")))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [b"thread0", b"thread1", b"thread2", b"thread3"]


async def test_a_copy_through_pickle_sees_the_same_objects(storage: Storage) -> None:
    await storage.put("a", b"1")
    copy = pickle.loads(pickle.dumps(storage))
    assert bytes(await copy.get("a")) == b"1"
    assert copy.location == storage.location
    assert copy.cheap_probes == storage.cheap_probes
    await copy.put("b", b"2")
    assert bytes(storage.get_sync("b")) == b"2"
