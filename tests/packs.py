"""Packs as tests find, damage and delete them: through the storage, as anything else that has access to it."""

from __future__ import annotations

from collections.abc import Sequence

from arraystore._runtime import run
from arraystore.storage import ObjectInfo, Storage

__all__ = ["damage_pack", "delete_packs", "pack_keys", "packs"]


def packs(storage: Storage) -> list[ObjectInfo]:
    """List the packs of a repository."""

    async def listed() -> list[ObjectInfo]:
        return [info async for page in storage.list("chunks/") for info in page]

    return run(listed())


def pack_keys(storage: Storage) -> list[str]:
    """List the keys of the packs of a repository."""
    return [info.key for info in packs(storage)]


def damage_pack(storage: Storage, at: float = 0.5) -> None:
    """Change one bit of the only pack, in the byte that has this part of them before it."""
    (key,) = pack_keys(storage)
    data = bytearray(storage.get_sync(key))
    data[int(at * len(data))] ^= 1
    storage.put_sync(key, bytes(data))


def delete_packs(storage: Storage, keys: Sequence[str] | None = None) -> None:
    """Delete some packs, or all."""
    assert run(storage.delete(pack_keys(storage) if keys is None else keys)) == []
