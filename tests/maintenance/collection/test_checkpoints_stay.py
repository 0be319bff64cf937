"""Checkpoints spare readers of a long log its length; collections leave them whatever the collector knew before."""

from __future__ import annotations

import asyncio

from arraystore import Repository
from arraystore._format.ids import id_to_text
from arraystore._format.refs import decode_hint, hint_key
from tests.commit.support import keys
from tests.history.worlds import commit, put, world
from tests.maintenance.collection.test_moved_and_reverted import now


def test_a_collector_that_has_slept_leaves_the_checkpoints_that_others_have_written_since() -> None:
    collector = world()
    commit(collector, put("g/a", 0, 0))
    writer = Repository.open(collector.storage)
    for at in range(200):
        commit(writer, put("g/a", at % 6, at))
    asyncio.run(writer.context.idle())
    before = keys(collector.storage, "snapshots/")
    assert len(before) >= 3
    hint = decode_hint(hint_key("main"), bytes(collector.storage.get_sync(hint_key("main"))))
    collector.garbage_collect(now(), full=True)
    after = keys(collector.storage, "snapshots/")
    assert f"snapshots/{id_to_text(hint.checkpoint)}" in after
    assert set(before) - set(after) == set()
