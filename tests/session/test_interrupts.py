"""What interrupts a call ends that call, and neither hangs it nor those after it."""

from __future__ import annotations

import asyncio

import pytest

from arraystore import Repository, in_memory_storage
from arraystore._runtime import run
from tests.commit.support import commit_rows, create_repository


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_callback_reaches_the_caller_and_the_next_call_works(kind: type[BaseException]) -> None:
    repository = create_repository(in_memory_storage())
    commit_rows(repository, 0, 3)

    def interrupted(*_: object) -> None:
        raise kind

    with pytest.raises(kind):
        repository.garbage_collect(
            repository.lookup_snapshot(repository.lookup_branch("main")).written_at, progress=interrupted
        )
    assert Repository.open(repository.storage).lookup_branch("main") == repository.lookup_branch("main")


def test_an_interrupt_in_one_of_several_tasks_ends_all_that_wait_for_it() -> None:
    async def both() -> None:
        await asyncio.gather(asyncio.sleep(0), interrupted())

    async def interrupted() -> None:
        await asyncio.sleep(0)
        raise KeyboardInterrupt

    async def answer() -> int:
        return 42

    with pytest.raises(KeyboardInterrupt):
        run(both())
    assert run(answer()) == 42
