"""Who wins where two wrote the same chunk, and what is a conflict at all."""

from __future__ import annotations

from typing import Any

import pytest
import zarr

import arraystore as ars
from arraystore.errors import InvalidInputError, MergeConflictError
from tests.forks.support import counted, fill, values


@pytest.fixture
def repo() -> ars.Repository:
    return counted(ars.in_memory_storage())[0]


def forks(session: ars.Session, *writes: tuple[int, int]) -> list[ars.ForkSession]:
    """Return a fork for each write of a value to a chunk, all taken now."""
    taken = [session.fork() for _ in writes]
    for fork, (number, value) in zip(taken, writes, strict=True):
        fill(fork, number, value)
    return taken


def test_the_later_argument_wins_if_asked_for(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    one, two, three = forks(session, (0, 5), (0, 6), (1, 7))
    with pytest.raises(MergeConflictError):
        session.merge(one, two, three)
    session.merge(two, [one.changes()], three, on_overlap="last")
    assert values(session)[:2] == [5, 7]
    assert values(repo.readonly_session("main"))[0] == 1


def test_what_is_merged_later_wins_over_what_was_merged_before(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    one, two = forks(session, (0, 5), (0, 6))
    session.merge(one)
    with pytest.raises(MergeConflictError) as caught:
        session.merge(two)
    assert caught.value.chunks == ((0,),)
    session.merge(two, on_overlap="last")
    assert values(session)[0] == 6


def test_a_fork_wins_over_what_its_session_wrote_since(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    (fork,) = forks(session, (0, 5))
    fill(session, 0, 9)
    with pytest.raises(MergeConflictError):
        session.merge(fork)
    session.merge(fork, on_overlap="last")
    session.commit("the fork")
    assert values(repo.readonly_session("main"))[0] == 5


def test_a_newer_state_of_a_fork_that_was_overwritten_wins_again_when_it_is_merged_last(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    one, two = forks(session, (0, 5), (0, 6))
    fill(one, 1, 5)
    session.merge(one)
    session.merge(two, on_overlap="last")
    fill(one, 2, 8)
    with pytest.raises(MergeConflictError):
        session.merge(one)
    assert values(session)[:3] == [6, 5, 1]
    session.merge(one, on_overlap="last")
    assert values(session)[:3] == [5, 5, 8]


def test_what_a_fork_takes_back_after_it_was_merged_is_gone_when_it_is_merged_again(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    one, two = forks(session, (9, 5), (12, 6))
    zarr.create_array(one.store, name="b", shape=(4,), chunks=(1,), dtype="i8")[0] = 3
    fill(one, 10, 5)
    session.merge(one, two)
    one.store.delete_sync("a/c/9")
    one.store.delete_sync("b/c/0")
    session.merge(one)
    assert values(session)[9:13] == [0, 5, 0, 6]
    one.store.delete_sync("a/c/10")
    session.merge(one)
    session.commit("taken back")
    committed = repo.readonly_session("main")
    assert values(committed)[9:13] == [0, 0, 0, 6]
    assert len(committed.chunk_coordinates("b")) == 0


def test_a_deletion_that_is_merged_last_deletes(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    one, two = forks(session, (0, 5), (1, 6))
    two.store.delete_sync("a/c/0")
    session.merge(one, two, on_overlap="last")
    assert values(session)[:2] == [0, 6]


def test_what_collides_besides_chunks_stays_an_error(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    one, two, three = (session.fork() for _ in range(3))
    for number, fork in enumerate((one, two)):
        zarr.open_array(fork.store, path="a").attrs["by"] = number
    with pytest.raises(MergeConflictError, match="node 'a'"):
        session.merge(one, two, on_overlap="last")
    fill(three, 15, 1)
    zarr.open_array(session.store, path="a").resize((1000,))
    with pytest.raises(MergeConflictError, match="outside of its grid") as caught:
        session.merge(three, on_overlap="last")
    assert caught.value.chunks == ((15,),)


@pytest.mark.parametrize("value", ["first", "", None, 1])
def test_an_unknown_choice_is_refused_and_nothing_is_merged(repo: ars.Repository, value: object) -> None:
    session = repo.writable_session("main")
    (fork,) = forks(session, (0, 5))
    with pytest.raises(InvalidInputError, match="on_overlap"):
        session.merge(fork, on_overlap=value)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="on_overlap"):
        ars.merge_sessions(fork, on_overlap=value)  # type: ignore[arg-type]
    assert not session.has_uncommitted_changes


def test_what_a_fork_saw_when_it_was_taken_it_may_overwrite(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    (early,) = forks(session, (0, 5))
    session.merge(early)
    (late,) = forks(session, (0, 6))
    session.merge(late)
    assert values(session)[0] == 6


def test_an_early_fork_does_not_make_a_late_one_collide_with_what_that_one_saw(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    (early,) = forks(session, (3, 5))
    fill(session, 0, 9)
    (late,) = forks(session, (0, 6))
    session.merge(early, late)
    assert [values(session)[number] for number in (0, 3)] == [6, 5]


def test_fill_values_that_the_session_writes_since_to_an_array_of_its_own_collide_like_chunks(
    repo: ars.Repository,
) -> None:
    session = repo.writable_session("main")
    created = zarr.create_array(session.store, name="new", shape=(4,), chunks=(2,), dtype="i4", fill_value=0)
    fork = session.fork()
    created[:2] = 0
    zarr.open_array(fork.store, path="new")[:] = 5
    with pytest.raises(MergeConflictError) as caught:
        session.merge(fork)
    assert caught.value.chunks == ((0,),)


def test_references_that_the_session_set_since_collide_like_chunks(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    (fork,) = forks(session, (3, 5))
    spec = ars.VirtualChunkSpec([3], "s3://bucket/file", 0, 1000)
    session.store.set_virtual_refs("a", [spec], validate_containers=False, checksum=None)
    with pytest.raises(MergeConflictError) as caught:
        session.merge(fork)
    assert caught.value.chunks == ((3,),)


def test_forks_taken_before_a_rebase_are_refused_and_those_after_it_merge(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    (early,) = forks(session, (0, 5))
    fill(session, 9, 9)
    with repo.transaction("main", message="somebody else") as store:
        fill(store.session, 0, 7)
    session.rebase(ars.ConflictDetector())
    with pytest.raises(MergeConflictError, match="before the session was rebased") as caught:
        session.merge(early, on_overlap="last")
    assert (caught.value.path, caught.value.chunks) == ("a", ((0,),))
    (late,) = forks(session, (1, 6))
    assert values(late)[0] == 7
    session.merge(late)
    session.commit("rebased")
    assert values(repo.readonly_session("main"))[:2] == [7, 6]


def test_a_fork_of_another_session_is_refused_with_its_chunks(repo: ars.Repository) -> None:
    one, two = repo.writable_session("main"), repo.writable_session("main")
    (fork,) = forks(one, (4, 5))
    with pytest.raises(MergeConflictError, match="another session") as caught:
        two.merge(fork, on_overlap="last")
    assert (caught.value.path, caught.value.chunks) == ("a", ((4,),))


def test_the_writes_of_a_fork_depend_on_what_it_read_where_the_session_is_serializable(repo: ars.Repository) -> None:
    for isolation in ("snapshot", "serializable"):
        session = repo.writable_session("main", isolation=isolation)
        fork = session.fork()
        assert values(fork)[2] < 100
        fill(fork, 12, 1)
        session.merge(ars.merge_sessions(fork))
        with repo.transaction("main", message="somebody else") as store:
            fill(store.session, 2, 8)
        if isolation == "snapshot":
            session.commit("read something old", rebase_with=ars.ConflictDetector())
        else:
            with pytest.raises(ars.RebaseFailedError):
                session.commit("read something old", rebase_with=ars.ConflictDetector())


# -- arrays that grow meanwhile ------------------------------------------------------------------------------------


def tail(repo: ars.Repository) -> ars.Session:
    """Return a session of a repository with an array whose end lies within a chunk."""
    with repo.transaction("main", message="a tail") as store:
        zarr.create_array(store, name="tail", shape=(7,), chunks=(4,), dtype="i4", fill_value=-1)[:] = range(7)
    return repo.writable_session("main")


def opened(session: ars.Session) -> Any:
    return zarr.open_array(session.store, path="tail")


def grow(session: ars.Session) -> None:
    opened(session).resize((10,))
    opened(session)[7:] = [107, 108, 109]


@pytest.mark.parametrize("grower", ["first", "second", "session"])
@pytest.mark.parametrize("early", [False, True], ids=["merged at once", "combined before"])
def test_the_last_one_does_not_pad_what_another_one_appended(repo: ars.Repository, grower: str, early: bool) -> None:
    session = tail(repo)
    one, two = session.fork(), session.fork()
    grow(one if grower == "first" else two if grower == "second" else session)
    for fork in (one, two):
        if opened(fork).shape == (7,):
            opened(fork)[4] = 44
    before = opened(session)[:].tolist()
    with pytest.raises(MergeConflictError, match="resize the array in the session, before forking") as caught:
        session.merge(*([ars.merge_sessions(one, two, on_overlap="last")] if early else [one, two]), on_overlap="last")
    assert (caught.value.path.strip("/"), caught.value.chunks) == ("tail", ((1,),))
    assert opened(session)[:].tolist() == before


def test_the_last_one_wins_in_what_was_appended_before_forking(repo: ars.Repository) -> None:
    session = tail(repo)
    grow(session)
    one, two = session.fork(), session.fork()
    opened(one)[8:] = [1, 2]
    opened(two)[8:] = [3, 4]
    session.merge(one, two, on_overlap="last")
    assert opened(session)[:].tolist() == [0, 1, 2, 3, 4, 5, 6, 107, 3, 4]


def test_the_last_one_wins_away_from_the_end_of_an_array_that_grew(repo: ars.Repository) -> None:
    session = tail(repo)
    one, two = session.fork(), session.fork()
    opened(one)[0] = 10
    grow(one)
    opened(two)[0] = 20
    session.merge(one, two, on_overlap="last")
    assert opened(session)[:].tolist() == [20, 1, 2, 3, 4, 5, 6, 107, 108, 109]


@pytest.mark.parametrize("made", [False, True], ids=["updated", "created"])
def test_a_newer_state_of_a_fork_does_not_undo_what_the_session_did_to_its_node(
    repo: ars.Repository, made: bool
) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    path = "b" if made else "a"
    if made:
        zarr.create_array(fork.store, name="b", shape=(4,), chunks=(1,), dtype="i8")
    zarr.open_array(fork.store, path=path).attrs["by"] = "fork"
    session.merge(fork)
    session.merge(fork)  # nothing has changed in between
    zarr.open_array(session.store, path=path).attrs["by"] = "session"
    fill(fork, 3, 5)
    with pytest.raises(MergeConflictError, match=f"'{path}'"):
        session.merge(fork)
    assert zarr.open_array(session.store, path=path).attrs["by"] == "session"


def test_a_newer_state_of_a_fork_does_not_bring_back_what_the_session_deleted(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    zarr.create_array(fork.store, name="b", shape=(4,), chunks=(1,), dtype="i8")
    session.merge(fork)
    del zarr.open_group(session.store)["b"]
    fill(fork, 3, 5)
    with pytest.raises(MergeConflictError, match="deleted or moved"):
        session.merge(fork)
    assert "b" not in zarr.open_group(session.store, mode="r")


@pytest.mark.parametrize("replaced", [False, True])
def test_an_array_that_a_fork_created_and_deleted_again_is_gone_when_it_is_merged_again(
    repo: ars.Repository, replaced: bool
) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    name = "a" if replaced else "b"
    zarr.create_array(fork.store, name=name, shape=(4,), chunks=(1,), dtype="i8", overwrite=replaced)[:] = 3
    session.merge(fork)
    del zarr.open_group(fork.store)[name]
    session.merge(fork)
    assert name not in zarr.open_group(session.store, mode="r")
    zarr.create_array(fork.store, name=name, shape=(2,), chunks=(1,), dtype="i8")[:] = 4
    session.merge(fork)
    assert zarr.open_array(session.store, path=name, mode="r")[:].tolist() == [4, 4]


def test_attributes_that_a_fork_set_back_are_back_when_it_is_merged_again(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    zarr.open_array(fork.store, path="a").attrs["by"] = "fork"
    session.merge(fork)
    del zarr.open_array(fork.store, path="a").attrs["by"]
    session.merge(fork)
    assert "by" not in zarr.open_array(session.store, path="a", mode="r").attrs
    assert not session.status().updated_arrays


def test_what_a_fork_takes_back_is_kept_where_the_session_has_changed_it_since(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    zarr.create_array(fork.store, name="b", shape=(4,), chunks=(1,), dtype="i8")[:] = 3
    session.merge(fork)
    zarr.open_array(session.store, path="b")[0] = 5
    del zarr.open_group(fork.store)["b"]
    with pytest.raises(MergeConflictError, match="'b'"):
        session.merge(fork)
    assert zarr.open_array(session.store, path="b", mode="r")[0] == 5


def test_what_a_fork_takes_back_is_kept_where_the_session_has_moved_it(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    zarr.create_array(fork.store, name="b", shape=(4,), chunks=(1,), dtype="i8")[:] = 3
    session.merge(fork)
    session.move("b", "c")
    del zarr.open_group(fork.store)["b"]
    with pytest.raises(MergeConflictError, match=r"'b'.*moved"):
        session.merge(fork)
    assert zarr.open_array(session.store, path="c", mode="r")[:].tolist() == [3] * 4
