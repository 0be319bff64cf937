"""Statistics of chunks are those of the stored bytes, whatever was done to array and repository."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from arraystore import (
    BasicConflictSolver,
    InvalidInputError,
    Repository,
    RepositoryConfig,
    Session,
    VersionSelection,
    in_memory_storage,
)
from arraystore._chunks.statistics_log import StatisticsLog, StatisticsRows
from arraystore._commit import prepare
from arraystore._format.chunk_statistics import (
    ChunkStatistics,
    decode_statistics,
    digest_of_encoding,
    encode_statistics,
    statistics_key,
)
from arraystore._format.ids import LayerId, PackId
from arraystore._format.zarr_metadata import array_info
from arraystore._maintenance import rewrite
from arraystore._runtime import run
from arraystore._session.base import SessionBase
from arraystore._session.measured_chunks import measured_chunks
from arraystore.copying import clone_repository
from arraystore.errors import FormatError
from tests.maintenance.model import now
from tests.seams import context_of

CONFIG = RepositoryConfig(
    chunk_statistics=True, inline_chunk_threshold_bytes=0, own_object_threshold_bytes=256, pack_target_bytes=512
)


def repository(storage: Any = None, config: RepositoryConfig = CONFIG) -> Repository:
    return Repository.create(storage or in_memory_storage(), config=config)


def add(
    session: Session, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str, **options: Any
) -> Any:
    return zarr.create_array(session.store, name=name, shape=shape, chunks=chunks, dtype=dtype, **options)


def check(session: SessionBase, path: str) -> int:
    """Compare all statistics of an array with its chunks as zarr reads them; returns how many chunks have some."""
    node, references, known = measured_chunks(session, path)
    if known is None:
        return 0
    array = zarr.open_array(session.store, path=path, mode="r")
    sides = array.shards or array.chunks
    # A grid that holds each chunk in full shows what is stored beyond the end, too.
    rows = known.rows_of(references)
    for coords, row in zip(references.coords.tolist(), rows.tolist(), strict=True):
        if row >= 0 and all(
            place < count for place, count in zip(coords, array_info(node.documents).grid, strict=True)
        ):
            stored = stored_chunk(session, path, coords, sides)
            compare(known.take([row]), stored, array.fill_value)
    return int((rows >= 0).sum())


def stored_chunk(session: SessionBase, path: str, coords: list[int], sides: tuple[int, ...]) -> Any:
    """Return all items of a chunk, those beyond the end of the array included."""
    from arraystore._session.regions.access import open_array
    from arraystore._session.regions.layout import layout_of

    handle = open_array(session, path)
    assert handle.info is not None
    encoded = session.hierarchy.get_sync((path + "/" if path else "") + handle.info.key(tuple(coords)))
    codec = layout_of(handle).codec
    memory = zarr.storage.MemoryStore()
    array = zarr.open_array(session.store, path=path, mode="r")
    whole = zarr.create_array(
        memory, shape=sides, chunks=array.chunks, shards=array.shards, dtype=array.dtype, fill_value=array.fill_value,
        compressors=array.compressors, filters=array.filters, zarr_format=array.metadata.zarr_format,
    )  # fmt: skip
    assert codec is not None
    assert encoded is not None
    key = whole.metadata.encode_chunk_key((0,) * len(sides))
    memory._store_dict[key] = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(bytes(encoded))
    return whole[...]


def compare(known: ChunkStatistics, stored: Any, fill: Any) -> None:
    items = stored.reshape(-1)
    is_nan = np.isnan(items) if items.dtype.kind == "f" else np.zeros(items.shape, bool)
    is_fill = items == (0 if fill is None else fill)
    rest = items[~(is_nan | is_fill)]
    assert (int(known.nans[0]), int(known.fills[0])) == (int(is_nan.sum()), int(is_fill.sum()))
    assert bool(known.valued[0]) == (len(rest) > 0)
    if len(rest):
        assert (known.least[0], known.greatest[0]) == (rest.min(), rest.max())


SPECIAL = {
    "f4": [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1e-45, 3.4e38],
    "f8": [0.0, -0.0, math.nan, math.inf, 5e-324, -1.7e308],
    "f2": [0.0, math.nan, 65504.0, -6e-8],
    ">f8": [0.0, math.nan, -2.5, 7.0],
    "i1": [-128, 127, 0, 5],
    "i8": [-(2**63), 2**63 - 1, 0, 2**53 + 1],
    ">i4": [-(2**31), 2**31 - 1, 7],
    "u1": [0, 255, 7],
    "u8": [0, 2**64 - 1, 2**63, 2**53 + 1],
    "b1": [False, True],
}


LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "raw": ((5, 7), (2, 3), {"compressors": None}),
    "compressed": ((5, 7), (2, 3), {}),
    "sharded": ((5, 7), (2, 3), {"shards": (4, 6)}),
    "version 2": ((5, 7), (2, 3), {"zarr_format": 2}),
    "version 2 without a fill value": ((5, 7), (2, 3), {"zarr_format": 2, "fill_value": None}),
    "large": ((20, 30), (20, 30), {}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_statistics_are_those_of_the_stored_values_of_every_type_and_layout(layout: str) -> None:
    shape, chunks, options = LAYOUTS[layout]
    repo = repository()
    session = repo.writable_session("main")
    random = np.random.default_rng(7)
    for dtype, values in SPECIAL.items():
        array = add(session, dtype.replace(">", "big"), shape, chunks, dtype, **({"fill_value": values[0]} | options))
        array[...] = np.array(values, dtype=dtype)[random.integers(0, len(values), shape)]
    session.commit("values")
    for dtype in SPECIAL:
        assert check(repo.readonly_session("main"), dtype.replace(">", "big")) > 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["zarr", "session", "points", "fill", "bytes", "shrink", "grow", "commit", "fork", "rebase",
                         "compact", "fold", "move", "amend", "metadata"]),
        st.integers(0, 2**32 - 1),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


class Play:
    """Does anything that changes chunks, references or packs to one array."""

    def __init__(self, raw: bool) -> None:
        self.repo = repository()
        self.session = self.repo.writable_session("main")
        self.path = "a"
        options: dict[str, Any] = {"compressors": None} if raw else {}
        add(self.session, "a", (9, 8), (3, 3), "f4", fill_value=0.0, **options)
        self.session.commit("new")
        self.session = self.repo.writable_session("main")

    def values(self, random: np.random.Generator, shape: tuple[int, ...]) -> Any:
        return np.array(SPECIAL["f4"], "f4")[random.integers(0, len(SPECIAL["f4"]), shape)]

    def region(self, random: np.random.Generator, shape: tuple[int, ...]) -> tuple[slice, ...]:
        ends = [sorted(random.integers(0, side + 1, 2).tolist()) for side in shape]
        return tuple(slice(a, b) for a, b in ends)

    def step(self, kind: str, seed: int) -> None:
        random = np.random.default_rng(seed)
        getattr(self, kind)(random)

    def array(self, session: Any = None) -> Any:
        return zarr.open_array((session or self.session).store, path=self.path)

    def zarr(self, random: np.random.Generator, session: Any = None) -> None:
        array = self.array(session)
        region = self.region(random, array.shape)
        array[region] = self.values(random, tuple(part.stop - part.start for part in region))

    def session_(self, random: np.random.Generator) -> None:
        region = self.region(random, self.array().shape)
        self.session.write(self.path, region, self.values(random, tuple(part.stop - part.start for part in region)))

    def points(self, random: np.random.Generator) -> None:
        array = self.array()
        count = int(random.integers(1, 9))
        places = tuple(random.integers(0, side, count) for side in array.shape)
        if min(array.shape):
            array.vindex[places] = self.values(random, (count,))

    def fill(self, random: np.random.Generator) -> None:
        array = self.array()
        array[self.region(random, array.shape)] = 0

    def bytes(self, random: np.random.Generator) -> None:
        """Set a chunk as encoded bytes: those of another chunk."""
        places = self.session.chunk_coordinates(self.path).tolist()
        if places:
            source, target = (places[number] for number in random.integers(0, len(places), 2).tolist())
            name = "/".join([self.path, "c", *map(str, source)])
            data = run(self.session.store.get(name, zarr.core.buffer.default_buffer_prototype()))
            run(self.session.store.set("/".join([self.path, "c", *map(str, target)]), data))

    def shrink(self, random: np.random.Generator) -> None:
        array = self.array()
        array.resize(tuple(int(random.integers(1, side + 1)) for side in array.shape))

    def grow(self, random: np.random.Generator) -> None:
        array = self.array()
        array.resize(tuple(min(14, side + int(random.integers(0, 5))) for side in array.shape))

    def commit(self, random: np.random.Generator) -> None:
        if self.session.has_uncommitted_changes:
            self.session.commit("some")
        self.session = self.repo.writable_session("main")

    def fork(self, random: np.random.Generator) -> None:
        forks = [self.session.fork(), self.session.fork()]
        for number, fork in enumerate(forks):
            array = self.array(fork)
            rows = slice(3 * number, min(3 * number + 3, array.shape[0]))
            if rows.stop > rows.start:
                array[rows] = self.values(random, (rows.stop - rows.start, array.shape[1]))
                array[rows] = self.values(random, (rows.stop - rows.start, array.shape[1]))
        self.session.merge(*[fork.changes() for fork in forks])

    def rebase(self, random: np.random.Generator) -> None:
        self.commit(random)
        other = self.repo.writable_session("main")
        self.zarr(random)
        self.zarr(random, other)
        if other.has_uncommitted_changes:
            other.commit("theirs")
        if self.session.has_uncommitted_changes:
            self.session.commit("ours", rebase_with=BasicConflictSolver(on_chunk_conflict=VersionSelection.UseOurs))
        self.session = self.repo.writable_session("main")

    def compact(self, random: np.random.Generator) -> None:
        self.commit(random)
        self.repo.compact(min_live=1.0)
        collect_all(self.repo)
        self.session = self.repo.writable_session("main")

    def fold(self, random: np.random.Generator) -> None:
        for _ in range(4):
            self.zarr(random)
            self.commit(random)

    def move(self, random: np.random.Generator) -> None:
        target = "b" if self.path == "a" else "a"
        self.session.move(self.path, target)
        self.path = target

    def amend(self, random: np.random.Generator) -> None:
        if self.session.has_uncommitted_changes:
            self.session.amend("again")
        self.session = self.repo.writable_session("main")

    def metadata(self, random: np.random.Generator) -> None:
        """Give all chunks another meaning: the same bytes as integers, with another fill value."""
        key = self.path + "/zarr.json"
        document = run(self.session.store.get(key, zarr.core.buffer.default_buffer_prototype()))
        assert document is not None
        text = document.to_bytes().replace(b'"fill_value": 0.0', b'"fill_value": 1.5')
        run(self.session.store.set(key, zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(text)))


@settings(max_examples=settings().max_examples * 2)
@given(st.booleans(), STEPS)
@pytest.mark.thorough
def test_no_history_of_writes_and_maintenance_leaves_a_stale_row(raw: bool, steps: list[tuple[str, int]]) -> None:
    play = Play(raw)
    for kind, seed in steps:
        play.step("session_" if kind == "session" else kind, seed)
        check(play.session, play.path)
    play.commit(np.random.default_rng(0))
    check(play.session, play.path)


# -- what is not there --------------------------------------------------------------------------------------------


def objects(storage: Any, prefix: str) -> set[str]:
    async def names() -> set[str]:
        return {info.key async for page in storage.list(prefix) for info in page}

    return run(names())


def filled(config: RepositoryConfig = CONFIG) -> tuple[Any, Repository]:
    storage = in_memory_storage()
    repo = repository(storage, config)
    session = repo.writable_session("main")
    add(session, "a", (8,), (2,), "i4", fill_value=-1)[:] = range(8)
    session.commit("values")
    return storage, repo


def test_nothing_is_kept_unless_it_is_asked_for() -> None:
    storage, repo = filled(CONFIG.merge(chunk_statistics=False))
    assert not objects(storage, "statistics/")
    assert check(repo.readonly_session("main"), "a") == 0
    assert "chunk_statistics" not in repo.config.to_dict()
    assert RepositoryConfig.from_dict(CONFIG.to_dict()) == CONFIG
    with pytest.raises(InvalidInputError, match="chunk_statistics=1 must be true or false"):
        RepositoryConfig(chunk_statistics=1)  # type: ignore[arg-type]


def test_a_writer_that_keeps_none_leaves_none_for_what_it_overwrites() -> None:
    storage, _ = filled()
    session = Repository.open(storage, CONFIG.merge(chunk_statistics=False)).writable_session("main")
    zarr.open_array(session.store, path="a")[2:4] = 1000
    session.commit("unmeasured")
    assert check(Repository.open(storage).readonly_session("main"), "a") == 3


def test_a_collection_deletes_statistics_with_their_layers_and_no_others() -> None:
    storage, repo = filled()
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[:4] = range(8, 12)
    session.commit("again")
    repo.compact()
    assert len(objects(storage, "statistics/")) == 3
    collect_all(repo)
    assert check(repo.readonly_session("main"), "a") == 4
    report = repo.verify(level="chunks")
    assert (report.findings, report.leaks["chunk_statistics"].objects) == ((), 0)
    for _ in range(2):  # readers start from the snapshot that the first expiry leaves
        session = repo.writable_session("main")
        del zarr.open_group(session.store)["a"]
        session.commit("gone", allow_empty=True)
        collect_all(repo)
    assert not objects(storage, "statistics/")


@pytest.mark.parametrize("manifests", ["inlined", "objects"])
def test_what_a_fold_writes_that_a_compaction_replaces_at_once_is_no_leak(
    manifests: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if manifests == "objects":
        for module in (rewrite, prepare):
            monkeypatch.setattr(module, "MAX_MANIFEST_IN_BODY", 0)
    _, repo = filled()
    for at in range(8):
        session = repo.writable_session("main")
        zarr.open_array(session.store, path="a")[at] = 100 + at
        session.commit("one")
    assert repo.compact().records == 2
    repo.garbage_collect(now(), full=True)
    report = repo.verify(level="chunks")
    assert (report.findings, {leak.objects for leak in report.leaks.values()}) == ((), {0})
    assert check(repo.readonly_session("main"), "a") == 4


def test_an_incremental_collection_deletes_statistics_that_belong_to_nothing() -> None:
    storage, repo = filled()
    repo.garbage_collect(now())
    left = statistics_key(LayerId(context_of(repo).environment.new_id()))
    kept = objects(storage, "statistics/")
    run(storage.put(left, run(storage.get(min(kept)))))
    summary = repo.garbage_collect(now())
    assert (summary.full, summary.others_deleted, objects(storage, "statistics/")) == (False, 1, kept)


def collect_all(repo: Repository) -> None:
    now = datetime.now(UTC)
    repo.expire_snapshots(now)
    repo.garbage_collect(now)


def test_bytes_that_replace_a_chunk_before_it_is_uploaded_have_no_statistics() -> None:
    repo = repository()
    session = repo.writable_session("main")
    array = add(session, "a", (8,), (4,), "i4", compressors=None)
    array[:] = range(1, 9)
    prototype = zarr.core.buffer.default_buffer_prototype()
    run(session.store.set("a/c/0", prototype.buffer.from_bytes(np.arange(100, 104, dtype="i4").tobytes())))
    array[7:] = 50
    session.commit("one chunk was measured again, the other one was not")
    assert check(repo.readonly_session("main"), "a") == 1


def test_a_clone_has_the_statistics() -> None:
    storage, _ = filled()
    target = in_memory_storage()
    clone_repository(storage, target)
    assert objects(target, "statistics/") == objects(storage, "statistics/")
    assert check(Repository.open(target).readonly_session("main"), "a") == 4


def test_a_snapshot_that_is_repeated_on_another_branch_takes_its_statistics_along() -> None:
    repo = repository()
    session = repo.writable_session("main")
    add(session, "a", (8,), (1,), "f4")[:4] = np.arange(4)
    first = session.commit("a")
    repo.create_branch("work", first)
    session = repo.writable_session("work")
    session.write("a", slice(2, 6), np.arange(2.0, 6.0))
    add(session, "b", (4,), (1,), "i4")[:] = np.arange(1, 5)
    picked = session.commit("b")
    session = repo.writable_session("main")
    session.write("a", slice(7, 8), 7.0)
    session.commit("another")
    repo.cherry_pick(picked, branch="main")
    session = repo.readonly_session("main")
    assert (check(session, "a"), check(session, "b")) == (6, 4)  # the first chunk of "a" is all fill value
    assert repo.verify(level="chunks").ok


@pytest.mark.parametrize("damage", [b"", b"rubbish", None])
def test_damaged_and_missing_statistics_are_as_good_as_none(damage: bytes | None) -> None:
    storage, repo = filled()
    (key,) = objects(storage, "statistics/")
    if damage is None:
        run(storage.delete([key]))
    else:
        run(storage.put(key, damage))
    assert check(repo.readonly_session("main"), "a") == 0
    findings = repo.verify().findings
    assert [finding.key for finding in findings] == ([] if damage is None else [key])
    assert all(finding.severity == "warning" for finding in findings)


def test_statistics_under_other_metadata_do_not_count() -> None:
    _, repo = filled()
    session = repo.writable_session("main")
    prototype = zarr.core.buffer.default_buffer_prototype()
    document = run(session.store.get("a/zarr.json", prototype))
    assert document is not None
    unsigned = document.to_bytes().replace(b'"int32"', b'"uint32"').replace(b'"fill_value": -1', b'"fill_value": 1')
    run(session.store.set("a/zarr.json", prototype.buffer.from_bytes(unsigned)))
    session.commit("the same bytes, unsigned")
    assert check(repo.readonly_session("main"), "a") == 0


def test_documents_of_both_zarr_versions_have_no_single_meaning() -> None:
    assert digest_of_encoding({"zarr.json": b"{}", ".zarray": b"{}"}) is None
    assert digest_of_encoding({}) is None
    one, other = (digest_of_encoding({"zarr.json": b'{"fill_value": %d}' % fill}) for fill in (0, 1))
    assert one != other


def table(**changes: Any) -> ChunkStatistics:
    columns = {name: np.zeros(1, np.int64) for name in ("source", "offset", "length", "nans", "fills")}
    values = {"least": np.zeros(1, "<f8"), "greatest": np.ones(1, "<f8"), "valued": np.ones(1, bool)}
    return ChunkStatistics(
        **{"encoding": bytes(8), "kind": "f", "packs": (PackId(bytes(12)),), **columns, **values, **changes}
    )


KEY = statistics_key(LayerId(bytes(12)))


def test_statistics_survive_their_encoding() -> None:
    decoded = decode_statistics(KEY, encode_statistics(KEY, table()))
    assert (decoded.encoding, decoded.kind, decoded.packs) == (bytes(8), "f", (bytes(12),))
    assert (decoded.least.tolist(), decoded.greatest.tolist(), decoded.valued.tolist()) == ([0.0], [1.0], [True])


@pytest.mark.parametrize(
    "hostile",
    [
        {"encoding": b""},
        {"packs": ()},
        {"source": np.ones(1, np.int64)},
        {"least": np.array([math.nan])},
        {"least": np.zeros(2)},
        {"length": np.array([1, 2, 3])},
        {"valued": np.array([5])},
    ],
)
def test_statistics_that_break_a_rule_are_refused(hostile: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        decode_statistics(KEY, encode_statistics(KEY, table(**hostile)))


def test_a_log_of_many_small_writes_keeps_the_last_row_of_each_place() -> None:
    log = StatisticsLog()
    for number in range(2000):
        entries = np.array([(0, 8 * (number % 700), 4)], dtype=np.int64)
        value = np.array([number], dtype="<i8")
        none = np.zeros(1, np.int64)
        log.add(entries, StatisticsRows(bytes(8), "i", value, value, none, none, np.ones(1, bool)))
    log.replace(0, 8, 4, None)
    (found,) = log.tables([PackId(bytes(12))])
    expected = {8 * (number % 700): number for number in range(2000) if number % 700 != 1}
    assert dict(zip(found.offset.tolist(), found.least.tolist(), strict=True)) == expected
