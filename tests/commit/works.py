"""Random sessions, and what a branch must hold after they have committed, one over the other."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import zarr

from arraystore import (
    Conflict,
    ConflictSolver,
    ConflictType,
    Repository,
    Session,
    Solution,
    Versions,
    VersionSelection,
)
from tests.commit.rivals import values
from tests.commit.support import number, put_number


class Ours(ConflictSolver):
    """Lets ours count, and puts attributes of both together."""

    def solve(self, conflict: Conflict, versions: Versions[Session]) -> Solution:
        if conflict.conflict_type is not ConflictType.ZarrMetadataDoubleUpdate:
            return Solution(VersionSelection.UseOurs)
        sides = (versions.base, versions.ours, versions.theirs)
        base, ours, theirs = (_document(side, conflict.path.strip("/")) for side in sides)
        changed = dict(ours["attributes"].items() - base["attributes"].items())
        return Solution(metadata={"zarr.json": theirs | {"attributes": theirs["attributes"] | changed}})


def _document(session: Session, path: str) -> dict[str, Any]:
    found = session.store.get_sync(f"{path}/zarr.json")
    assert found is not None
    return json.loads(found.to_bytes())  # type: ignore[no-any-return]


class Expected:
    """What a branch must hold after a sequence of commits, each over those before it."""

    def __init__(self) -> None:
        self.rows: dict[int, int | None] = {}
        self.appended: list[int] = []
        self.attributes: dict[str, int] = {}

    def apply(self, work: Work) -> None:
        self.rows |= work.rows
        self.appended += work.appended
        self.attributes |= work.attributes

    def check(self, session: Session) -> None:
        for row, value in self.rows.items():
            assert number(session, row) == value
        assert len(session.chunk_coordinates("a")) == sum(v is not None for v in self.rows.values())
        assert values(session, "t")[:, 1].tolist() == [0] * 4 + self.appended
        assert dict(zarr.open_array(session.store, path="t", mode="r").attrs) == self.attributes


class Work:
    """A session, and what it has changed."""

    def __init__(self, repository: Repository) -> None:
        self.session = repository.writable_session("main")
        self.rows: dict[int, int | None] = {}
        self.appended: list[int] = []
        self.attributes: dict[str, int] = {}

    def act(self, chance: random.Random, turn: int) -> None:
        action = chance.choice(["write", "write", "delete", "append", "attribute", "rebase"])
        row = chance.randrange(12)
        if action == "write":
            put_number(self.session, row, turn)
            self.rows[row] = turn
        elif action == "delete" and self._was_there(row):
            self.session.store.delete_sync(f"a/c/{row}")
            self.rows[row] = None
        elif action == "append":
            items = chance.choice([2, 4])
            self.session.append({"t": np.full((items, 2), turn)}, "time")
            self.appended += [turn] * items
        elif action == "attribute":
            key = f"key{chance.randrange(4)}"
            zarr.open_array(self.session.store, path="t").attrs[key] = turn
            self.attributes[key] = turn
        else:
            self.session.rebase(Ours())

    def _was_there(self, row: int) -> bool:
        """Tell whether the snapshot that the session is based on has a chunk: deleting no chunk may change nothing."""
        return number(Session(self.session.context, self.session.base_tip, None), row) is not None
