"""Writing from ``rdd.mapPartitions``: a function gets a store, and its change set is merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from arraystore._session.arguments import check_writable_session
from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.spark.fork_job import Attempt, Outcome, merge_outcomes, pickle_fork, read_outcome

if TYPE_CHECKING:
    from arraystore._session.store import ArrayStore

Write = Callable[["ArrayStore", Iterator[Any]], Mapping[str, Any] | None]


class PartitionWriter:
    """Makes functions for ``rdd.mapPartitions`` that write to a session, and merges what they return.

    Comes from `map_partitions_writer`.

    Parameters
    ----------
    session
        The writable session.
    """

    def __init__(self, session: Session) -> None:
        check_writable_session(session)
        self._session = session
        self._forks: list[ForkSession] = []

    def __call__(self, function: Write) -> Callable[[Iterable[Any]], Iterator[bytes]]:
        """Return a function for ``rdd.mapPartitions``."""
        fork = self._session.fork()
        self._forks.append(fork)
        attempt = Attempt(pickle_fork(self._session, fork), lambda fork, items: function(fork.store, items) or {})
        return lambda items: iter([attempt.outcome(iter(items))])

    def merge(self, results: Iterable[bytes]) -> list[dict[str, Any]]:
        """Merge the changes of all partitions, or none.

        Parameters
        ----------
        results
            What ``rdd.mapPartitions(writer(function)).collect()`` returned.

        Returns
        -------
        list of dict
            What the functions returned, in the order of the partitions.

        Raises
        ------
        MergeConflictError
            If two partitions wrote the same chunk, or if results are of another session, or were merged before.
        FormatError
            If `results` hold bytes that no partition returned.
        """
        outcomes = sorted((_read(result) for result in results), key=lambda outcome: outcome.task)
        try:
            merge_outcomes(self._session, outcomes)
        except BaseException:
            for fork in self._forks:
                self._session.abandon(fork)
            raise
        return [outcome.report for outcome in outcomes]


def map_partitions_writer(session: Session) -> PartitionWriter:
    """Return a writer to a session for ``rdd.mapPartitions``; nothing is committed.

    ::

        writer = map_partitions_writer(session)
        results = rdd.mapPartitions(writer(function)).collect()
        writer.merge(results)
        session.commit("...")
    """
    return PartitionWriter(session)


def _read(result: bytes) -> Outcome:
    if not isinstance(result, bytes | bytearray):
        raise InvalidInputError(
            f"{type(result).__name__} is not what a partition returns: pass what collect() of mapPartitions returned"
        )
    return read_outcome("result of a partition", bytes(result))
