"""Repositories with many small packs and layers, what they hold at each snapshot, and what may happen meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.core.buffer import cpu

from arraystore import Repository, RepositoryConfig, in_memory_storage
from arraystore._commit.prepare import upload
from arraystore._format.lifecycle import Expiry
from arraystore._format.record import Body, Rewrite
from arraystore._format.snapshot import checkpoint_key, encode_checkpoint
from arraystore._log.branch_entries import append_entry
from arraystore._log.loading import Tip, load_tip
from arraystore._runtime import run
from arraystore.storage import Storage
from arraystore.storage.protocol import BytesLike, ObjectInfo
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.support import entries, keys, objects, without_maintenance
from tests.seams import context_of

KiB = 1024
PADDED = 512 + 8
"""Bytes that a chunk of a `World` takes in a pack, with its checksum."""

CONFIG = RepositoryConfig(
    inline_chunk_threshold_bytes=32,
    own_object_threshold_bytes=16 * KiB,
    pack_target_bytes=128 * PADDED,
    max_bytes_in_flight=128 * KiB,
)
"""Packs of 128 chunks; the chunks of a `World` have 512 bytes, and a row of an array 4 KiB."""

LITTLE_PACKS = CONFIG.merge(pack_target_bytes=32 * PADDED)

ROWS, COLUMNS = 32, 8
CHUNK = 64

Values = dict[str, npt.NDArray[np.float64]]


@dataclass
class World:
    """A repository, and what it held at each of its snapshots.

    Parameters
    ----------
    storage
        Where it is.
    held
        Values of arrays by snapshot.
    """

    storage: Storage
    held: dict[str, Values] = field(default_factory=dict[str, Values])
    seed: int = 0

    @property
    def repository(self) -> Repository:
        """The repository, opened with nothing in memory; its commits fold nothing in the background."""
        return without_maintenance(Repository.open(self.storage))

    def write(self, change: Callable[[zarr.Group, np.random.Generator], None], message: str = "change") -> str:
        """Commit a change of the arrays."""
        self.seed += 1
        session = self.repository.writable_session("main")
        group = zarr.open_group(session.store, mode="a")
        change(group, np.random.default_rng(self.seed))
        identifier = session.commit(message)
        self.held[identifier] = values_of(group)
        return identifier

    def write_row(self, row: int, names: Sequence[str] = ("a",)) -> str:
        """Commit one row of random numbers of some arrays."""
        self.seed += 1
        rows = np.random.default_rng(self.seed).random((len(names), COLUMNS, CHUNK))
        held = dict(list(self.held.values())[-1])
        session = self.repository.writable_session("main")
        for name, values in zip(names, rows, strict=True):
            for column, chunk in enumerate(values):  # without zarr's detours
                session.store.set_sync(f"{name}/c/{row}/{column}", cpu.Buffer.from_bytes(chunk.tobytes()))
            held[name] = held[name].copy()
            held[name][row] = values.reshape(-1)
        identifier = session.commit(f"row {row}")
        self.held[identifier] = held
        return identifier

    def copy(self) -> World:
        """Return the same in another storage."""
        storage = in_memory_storage()
        for info in objects(self.storage):
            storage.put_sync(info.key, bytes(self.storage.get_sync(info.key)))
        return World(storage, dict(self.held), self.seed)

    def check(self, snapshots: Sequence[str] | None = None) -> None:
        """Assert that the newest snapshot, and some others, hold what they did: those given, or every eighth."""
        repository = self.repository
        newest = list(self.held)[-1]
        assert repository.lookup_branch("main") == newest
        same(values_of(zarr.open_group(repository.readonly_session("main").store, mode="r")), self.held[newest])
        for identifier in list(self.held)[::8] if snapshots is None else snapshots:
            store = repository.readonly_session(snapshot_id=identifier).store
            same(values_of(zarr.open_group(store, mode="r")), self.held[identifier])


def array(group: zarr.Group, name: str) -> zarr.Array[Any]:
    """Return an array of a group."""
    found = group[name]
    assert isinstance(found, zarr.Array)
    return found


def values_of(group: zarr.Group) -> Values:
    """Read all arrays."""
    return {name: np.asarray(array(group, name)[:]) for name in sorted(group.array_keys())}


def same(one: Values, other: Values) -> None:
    """Assert that arrays are the same."""
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def create(storage: Storage | None = None, names: Sequence[str] = ("a",), config: RepositoryConfig = CONFIG) -> World:
    """Create a repository with some arrays of 32 rows, each of 8 chunks."""
    world = World(storage or in_memory_storage())
    Repository.create(world.storage, config)

    def change(group: zarr.Group, _: np.random.Generator) -> None:
        for name in names:
            group.create_array(
                name,
                shape=(ROWS, COLUMNS * CHUNK),
                chunks=(1, CHUNK),
                dtype="f8",
                compressors=None,
                fill_value=-1,
                dimension_names=("time", "x"),
            )

    world.write(change, "create")
    return world


def with_rows(storage: Storage | None = None, names: Sequence[str] = ("a",), rows: int = ROWS) -> World:
    """Create a repository in which each row was committed by itself: a small pack and a layer each."""
    world = create(storage, names)
    for row in range(rows):
        world.write_row(row, names)
    return world


def run_alone(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on a loop of its own."""
    return asyncio.run(work)


def tip_of(storage: Storage, branch: str = "main") -> Tip:
    """Load the newest record of a branch with nothing in memory."""

    async def load() -> Tip:
        log = context_of(Repository.open(storage)).log(branch)
        return await load_tip(log, await log.hint())

    tip: Tip = run_alone(load())
    return tip


def layer_counts(storage: Storage, path: str = "a") -> list[int]:
    """Return the number of references in each layer of an array of the newest snapshot."""
    return [layer.count for layer in tip_of(storage).state.nodes[path].layers]


def packs_used(storage: Storage) -> set[str]:
    """Return the keys of the packs that the newest snapshot names."""
    context = context_of(Repository.open(storage))
    state = tip_of(storage).state

    async def read() -> set[str]:
        found: set[str] = set()
        for node in state.nodes.values():
            for layer in node.layers:
                manifest = await context.manifests.load(layer)
                used = {int(source) for source in manifest.source if source < manifest.pack_count}
                found |= {manifest.pack_keys[source] for source in used}
        return found

    used: set[str] = run_alone(read())
    return used


def packs_ever_used(world: World) -> set[str]:
    """Return the keys of the packs that any entry of the log of main brought in."""
    context = context_of(Repository.open(world.storage))
    found: set[str] = set()
    log = entries(world.storage)

    async def read() -> None:
        for number, entry in log.items():
            layers = []
            if isinstance(entry, Rewrite):
                layers = [layer for item in entry.replacements for layer in item.added]
            elif hasattr(entry, "transactions"):
                resolved = await context.log("main").resolve(number, entry)
                layers = [chunk.layer for _, changes, _ in resolved for chunk in changes.chunks]
            for layer in layers:
                found.update((await context.manifests.load(layer)).pack_keys)

    run_alone(read())
    return found


def append(storage: Storage, body: Body, branch: str = "main") -> None:
    """Append an entry to a log."""

    async def put() -> None:
        log = context_of(Repository.open(storage)).log(branch)
        assert await append_entry(log, await load_tip(log), body) is not None

    run_alone(put())


def expire(storage: Storage, upto: int) -> None:
    """Let all snapshots up to a record expire."""

    async def put() -> None:
        context = context_of(Repository.open(storage))
        log = context.log("main")
        state = (await load_tip(log, at=upto)).state
        base = context.environment.new_id()
        key = checkpoint_key(base)
        await upload(storage, [(key, encode_checkpoint(key, state.to_checkpoint(state.pages)))])
        body = Expiry(context.environment.now_us(), upto, base, None)
        assert await append_entry(log, await load_tip(log), body) is not None

    run_alone(put())


def manifests_unnamed(world: World) -> set[str]:
    """Return the keys of manifests that no entry of the log names."""
    context = context_of(Repository.open(world.storage))
    named: set[str] = set()
    log = entries(world.storage)

    async def read() -> None:
        for number, entry in log.items():
            if isinstance(entry, Rewrite):
                named.update(layer.key for item in entry.replacements for layer in item.added)
            elif hasattr(entry, "transactions"):
                for _, changes, _ in await context.log("main").resolve(number, entry):
                    named.update(chunk.layer.key for chunk in changes.chunks)

    run_alone(read())
    return set(keys(world.storage, "manifests/")) - named


class Meanwhile(WrapperStorage):
    """Lets something happen before the first request of a kind, or a later one, once.

    Parameters
    ----------
    inner
        The storage that does the work.
    operation, part
        Which request: ``"get"``, ``"put"``, ``"put_if_absent"``, ``"get_ranges"`` or ``"list"``, of a key or prefix
        that holds this.
    happens
        What happens, in another thread.
    passed
        How many such requests are answered before it.
    """

    def __init__(
        self, inner: Storage, operation: str, part: str, happens: Callable[[], object], passed: int = 0
    ) -> None:
        super().__init__(inner)
        self._passed = passed
        self._operation = operation
        self._part = part
        self._happens: Callable[[], object] | None = happens

    @property
    def happened(self) -> bool:
        """Whether it did."""
        return self._happens is None

    async def _perhaps(self, operation: str, key: str) -> None:
        if operation == self._operation and self._part in key and self._happens is not None:
            self._passed -= 1
            if self._passed >= 0:
                return
            happens, self._happens = self._happens, None
            await asyncio.to_thread(happens)

    async def get(self, key: str) -> BytesLike:
        await self._perhaps("get", key)
        return await super().get(key)

    async def put(self, key: str, data: BytesLike) -> None:
        await self._perhaps("put", key)
        await super().put(key, data)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        await self._perhaps("put_if_absent", key)
        return await super().put_if_absent(key, data)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[BytesLike]:
        await self._perhaps("get_ranges", key)
        return await super().get_ranges(key, ranges)

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        run(self._perhaps("get_ranges", key))
        return super().get_range_sync(key, start, stop)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        await self._perhaps("list", prefix)
        async for page in super().list(prefix, start_after):
            yield page
