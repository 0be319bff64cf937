"""Verification of checkpoints: each must equal the state that the log makes of its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from arraystore._format.ids import CheckpointId, SnapshotId, id_to_text
from arraystore._format.lifecycle import Origin
from arraystore._format.snapshot import checkpoint_key
from arraystore._log.loading import load_checkpoint
from arraystore._log.state import SnapshotState
from arraystore._maintenance.verification.findings import Use
from arraystore._maintenance.verification.inventory import Audit
from arraystore.errors import FormatError, ObjectNotFoundError

_REPAIR = "run repair, which writes a checkpoint again from the records"
_REPAIR_PINNED = (
    "run repair, which writes the checkpoint again if the records that made its snapshot are still there; otherwise "
    "restore the object from a backup or an older version in the bucket"
)


@dataclass(frozen=True)
class Named:
    """Checkpoint that another object names."""

    id: CheckpointId
    """Id of the checkpoint."""
    branch: str
    """Branch of the record whose state it should be."""
    sequence: int
    """Number of that record."""
    by: str
    """Key of the object that names it."""
    snapshot: SnapshotId | None = None
    """Snapshot that it should be; None if the object does not name one."""
    needed: bool = False
    """True if an object cannot be read without it, so that it is not only a short cut."""
    shown: bool = True
    """True if its snapshot may be opened; that of an expired one is only a step in histories."""

    @classmethod
    def origin(cls, at: Origin, by: str, snapshot: SnapshotId | None = None) -> Named:
        """Return the checkpoint that a branch or a tag begins at."""
        return cls(at.checkpoint, at.branch, at.sequence, by, snapshot, needed=True)


@dataclass(eq=False)
class Checkpoints:
    """Reads checkpoints, each once, and reports wrong ones."""

    audit: Audit
    wrong: dict[tuple[CheckpointId, str, int], Named] = field(
        default_factory=dict[tuple[CheckpointId, str, int], Named]
    )
    """Missing, damaged or wrong checkpoints."""
    _named: dict[tuple[str, int], dict[CheckpointId, Named]] = field(
        default_factory=dict[tuple[str, int], dict[CheckpointId, Named]]
    )
    _met: set[tuple[CheckpointId, str, int]] = field(default_factory=set[tuple[CheckpointId, str, int]])

    def name(self, named: Named) -> None:
        """Add a named checkpoint."""
        self.audit.inventory.checkpoints.reach(named.id)
        if named.snapshot is not None:  # a detached snapshot is its own checkpoint
            self.audit.inventory.checkpoints.reach(named.snapshot)
        here = self._named.setdefault((named.branch, named.sequence), {})
        other = here.get(named.id)
        if other is None or (named.shown, named.needed) > (other.shown, other.needed):
            here[named.id] = named

    def of(self, branch: str, sequence: int) -> list[Named]:
        """Return the checkpoints named for a record."""
        return [named for named in self._named.get((branch, sequence), {}).values() if named.shown]

    def reject(self, named: Named) -> None:
        """Add a wrong checkpoint."""
        self.wrong[_place(named)] = named

    def of_branch(self, branch: str) -> list[tuple[int, CheckpointId]]:
        """Return the checkpoints of whole records of a branch, as numbers and ids in order."""
        places = [(place, here) for place, here in self._named.items() if place[0] == branch]
        return sorted(
            (sequence, named.id) for (_, sequence), here in places for named in here.values() if named.snapshot is None
        )

    def left(self) -> Iterator[Named]:
        """Yield the checkpoints that no walk has met, because their records are deleted or never existed."""
        for here in self._named.values():
            yield from [named for named in here.values() if _place(named) not in self._met]

    async def load(self, named: Named, uses: list[Use]) -> SnapshotState | None:
        """Read a checkpoint; None, with a finding, if it cannot be read or is not the named one."""
        key = checkpoint_key(named.id)
        first = _place(named) not in self._met
        self._met.add(_place(named))
        try:
            state = await load_checkpoint(self.audit.storage, named.id)
        except ObjectNotFoundError:
            self._report(named, key, f"the checkpoint, which {named.by} names, does not exist", uses)
            return None
        except FormatError as error:
            self._report(named, key, f"the checkpoint cannot be read: {error.reason}", uses)
            return None
        self.audit.counts["checkpoints"] += first
        if (state.branch, state.sequence) != (named.branch, named.sequence) or named.snapshot not in (
            None,
            state.snapshot,
        ):
            problem = (
                f"it is the checkpoint of snapshot {id_to_text(state.snapshot)} in record {state.sequence} of branch "
                f"{state.branch!r}, not the one that {named.by} names"
            )
            self._report(named, key, problem, uses)
            return None
        return state

    async def compare(
        self, named: Named, expected: SnapshotState, uses: list[Use], digest: bytes | None = None
    ) -> SnapshotState | None:
        """Compare a checkpoint with the state of its record; returns it if it is right."""
        actual = await self.load(named, uses)
        if actual is None:
            return None
        what = difference(expected, actual) or _other_digest(digest, actual)
        if what is None:
            return actual
        problem = f"the checkpoint is not what the log makes of record {named.sequence}: {what}"
        self.reject(named)
        # An error, not a warning: readers begin at it and would read wrong data.
        self.audit.collector.error(checkpoint_key(named.id), problem, _REPAIR_PINNED if named.needed else _REPAIR, uses)
        return None

    def _report(self, named: Named, key: str, problem: str, uses: list[Use]) -> None:
        self.reject(named)
        if named.needed:
            self.audit.collector.error(key, problem, _REPAIR_PINNED, uses)
        else:
            self.audit.collector.warning(key, problem, _REPAIR)


def _place(named: Named) -> tuple[CheckpointId, str, int]:
    return named.id, named.branch, named.sequence


def difference(expected: SnapshotState, actual: SnapshotState) -> str | None:
    """Describe the first difference between two states; None if they are equal."""
    for name in ("snapshot", "parent"):
        one, other = getattr(expected, name), getattr(actual, name)
        if one != other:
            return f"its {name} is {_shown(other)}, not {_shown(one)}"
    for name in ("time", "note", "life"):
        if getattr(expected, name) != getattr(actual, name):
            return f"its {name} differs"
    if expected.nodes == actual.nodes:
        return None
    for key in sorted(expected.nodes.keys() | actual.nodes.keys()):
        one, other = expected.nodes.get(key), actual.nodes.get(key)
        path = "/" + key.removeprefix("\0")
        if one is None:
            return f"it has {path!r}"
        if other is None:
            return f"it has no {path!r}"
        if one != other:
            what = (
                "documents" if one.documents != other.documents else "layers" if one.layers != other.layers else "ids"
            )
            return f"{path!r} has other {what}"
    return "its nodes are in other places"


def _other_digest(expected: bytes | None, actual: SnapshotState) -> str | None:
    """Describe a difference between the digest in a checkpoint and that of the log; None if there is none."""
    at = actual.checkpoint
    if expected is None or at is None or at.digest in (None, expected):
        return None
    return "it holds the digest of another log"


def _shown(identifier: SnapshotId | None) -> str:
    return "none" if identifier is None else id_to_text(identifier)
