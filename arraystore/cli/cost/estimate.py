"""Estimate of requests, bytes and dollars of a month."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from arraystore._context.config import RepositoryConfig
from arraystore._format.manifest import MAX_REFERENCES
from arraystore.cli.cost import requests as figures
from arraystore.cli.cost.prices import Prices
from arraystore.cli.cost.requests import Requests
from arraystore.cli.cost.workload import Workload, packs_per_commit

DAYS = 30.4375
"""Days of a month, on average."""


@dataclass(frozen=True)
class Item:
    """A part of the bill of a month."""

    what: str
    requests: Requests = field(default_factory=Requests)
    stored_bytes: float = 0.0
    read_bytes: float = 0.0
    transferred_bytes: float = 0.0
    dollars: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """The bill of a month.

    Parameters
    ----------
    prices, workload
        What it was made from.
    items
        Its parts.
    total
        Their sum.
    growth_bytes
        Bytes by which the storage grows in the month; the items charge what is stored at its beginning.
    growth_dollars
        What that costs more in each month that follows.
    """

    prices: Prices
    workload: Workload
    items: tuple[Item, ...]
    total: Item
    growth_bytes: float
    growth_dollars: float


def estimate(workload: Workload, prices: Prices, config: RepositoryConfig | None = None) -> Estimate:
    """Estimate the bill of a month."""
    config = config or RepositoryConfig.default()
    parts = (_stored, _commits, _uploads, _reads, _upkeep)
    items = tuple(_charged(item, prices) for part in parts for item in part(workload, prices, config))
    growth = DAYS * ((1 - workload.overwrite) * workload.written_per_day + _record_bytes(workload, prices))
    return Estimate(prices, workload, items, _sum(items), growth, growth / prices.gb_bytes * prices.storage_gb_month)


def _stored(workload: Workload, prices: Prices, config: RepositoryConfig) -> Iterator[Item]:
    yield Item("what is stored", stored_bytes=workload.size)
    replaced = workload.overwrite * workload.written_per_day * workload.retention_days
    if replaced:
        yield Item("replaced chunks", stored_bytes=replaced)


def _commits(workload: Workload, prices: Prices, config: RepositoryConfig) -> Iterator[Item]:
    commits = workload.commits_per_day * DAYS
    opened = commits / workload.commits_per_process
    again = commits - opened
    yield Item("opened to write", figures.OPEN * opened + figures.REOPEN * again)
    races = figures.LOST_RACE * (commits * workload.lost_races)
    background = figures.UPKEEP * (commits / figures.RECORDS_BETWEEN_UPKEEP)
    yield Item("commits", figures.COMMIT * commits + races + background)


def _uploads(workload: Workload, prices: Prices, config: RepositoryConfig) -> Iterator[Item]:
    packs, largest = packs_per_commit(workload, config)
    puts = packs * figures.upload_requests(largest) * workload.commits_per_day * DAYS
    yield Item("chunks written", Requests(put=puts))


def _reads(workload: Workload, prices: Prices, config: RepositoryConfig) -> Iterator[Item]:
    reads, chunks = workload.reads_per_day * DAYS, workload.chunks_per_read
    if not reads:
        return
    bytes_read = chunks * workload.chunk_size
    each = min(chunks, math.ceil(bytes_read / figures.CONTIGUOUS_BYTES)) if workload.contiguous else chunks
    if workload.chunk_size <= config.inline_chunk_threshold_bytes:
        each = 0
    manifests = max(1.0, workload.size / workload.chunk_size / MAX_REFERENCES) if chunks else 0.0
    yield Item("opened to read", (figures.OPEN + figures.OPEN_ARRAY * min(manifests, max(1.0, chunks))) * reads)
    yield Item(
        "chunks read",
        Requests(get=each) * reads,
        read_bytes=bytes_read * reads,
        transferred_bytes=workload.outside * bytes_read * reads,
    )


def _upkeep(workload: Workload, prices: Prices, config: RepositoryConfig) -> Iterator[Item]:
    runs = workload.maintain_per_day * DAYS
    if not runs:
        return
    packs, largest = packs_per_commit(workload, config)
    objects = workload.size / max(workload.chunk_size, largest, 1.0)
    sample = min(figures.CHUNKS_VERIFIED, workload.size / workload.chunk_size)
    checks = Requests(list=objects / figures.OBJECTS_A_LISTING, get=sample)
    yield Item("maintenance", (figures.MAINTAIN + checks) * runs, read_bytes=sample * workload.chunk_size * runs)
    if packs and largest < config.pack_target_bytes and workload.chunk_size < config.own_object_threshold_bytes:
        merged = packs * workload.commits_per_day * DAYS
        written = merged * largest / config.pack_target_bytes
        yield Item("small packs merged", Requests(put=written, get=merged, delete=merged), read_bytes=merged * largest)


def _record_bytes(workload: Workload, prices: Prices) -> float:
    return workload.commits_per_day * max(figures.RECORD_BYTES, prices.smallest_object_bytes)


def _charged(item: Item, prices: Prices) -> Item:
    requests = item.requests
    dollars = (
        item.stored_bytes / prices.gb_bytes * prices.storage_gb_month
        + item.read_bytes / prices.gb_bytes * prices.retrieval_gb
        + item.transferred_bytes / prices.gb_bytes * prices.transfer_gb
        + requests.put / 1000 * prices.put_1000
        + requests.get / 1000 * prices.get_1000
        + requests.list / 1000 * prices.list_1000
        + requests.delete / 1000 * prices.delete_1000
    )
    return Item(item.what, requests, item.stored_bytes, item.read_bytes, item.transferred_bytes, dollars)


def _sum(items: tuple[Item, ...]) -> Item:
    return Item(
        "a month",
        sum((item.requests for item in items), Requests()),
        stored_bytes=sum(item.stored_bytes for item in items),
        read_bytes=sum(item.read_bytes for item in items),
        transferred_bytes=sum(item.transferred_bytes for item in items),
        dollars=sum(item.dollars for item in items),
    )
