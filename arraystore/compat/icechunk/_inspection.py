"""Contents of a repository, for people: names and counts, in no shape that stays."""

from __future__ import annotations

from typing import Any

import arraystore
from arraystore._format.ids import id_to_text
from arraystore._format.node import NodeKind
from arraystore._format.references import INLINE, VIRTUAL
from arraystore._history.operations_log import UpdateType
from arraystore._repository.snapshots import load_snapshot
from arraystore.compat.icechunk._lineage import committed_diff, moves
from arraystore.errors import NotFoundError, SnapshotNotFoundError

__all__ = ["manifest", "repository", "snapshot", "transaction_log"]

_Moves = list[tuple[str, str]]
"""Paths before and after."""

_CHANGES = ("new_groups", "new_arrays", "deleted_groups", "deleted_arrays", "updated_groups", "updated_arrays")


def _header(kind: str) -> dict[str, Any]:
    return {"file_type": kind, "app_name": "arraystore", "written_by": "arraystore"}


async def snapshot(store: arraystore.Repository, identifier: str, shown: str) -> dict[str, Any]:
    """Return the nodes of a snapshot."""
    info = await store.lookup_snapshot_async(identifier)
    tip = await load_snapshot(store.context, snapshot_id=identifier)
    nodes = [
        {"id": id_to_text(node.id), "path": "/" + node.path, "node_type": node.kind.name.lower()}
        for node in tip.state.nodes.values()
    ]
    return {
        "header": _header("snapshot"),
        "id": shown,
        "flushed_at": info.written_at.isoformat(),
        "commit_message": info.message,
        "metadata": info.metadata,
        "nodes": nodes,
    }


async def repository(store: arraystore.Repository) -> dict[str, Any]:
    """Return branches, tags, and the snapshots of main."""
    branches = {name: await store.lookup_branch_async(name) for name in sorted(await store.list_branches_async())}
    tags = {name: await store.lookup_tag_async(name) for name in sorted(await store.list_tags_async())}
    rows = [info async for info in store.async_ancestry(branch="main")]
    snapshots = [{"id": row.id, "parent_id": row.parent_id, "message": row.message} for row in rows]
    return {"header": _header("repo-info"), "branches": branches, "tags": tags, "snapshots": snapshots}


async def manifest(store: arraystore.Repository, identifier: str) -> dict[str, Any]:
    """Return the counts of the references of the array that has a manifest in the newest snapshot of a branch."""
    for branch in sorted(await store.list_branches_async()):
        for node in (await store.context.tip(branch)).state.nodes.values():
            if node.kind == NodeKind.ARRAY and identifier in {id_to_text(layer.id) for layer in node.layers}:
                present = await store.context.reader.present(node.layers)
                source = None if present is None else present.source
                inline = 0 if source is None else int((source == INLINE).sum())
                virtual = 0 if source is None else int((source >= VIRTUAL).sum())
                total = 0 if source is None else len(source)
                counts = {"num_inline": inline, "num_virtual": virtual, "num_native": total - inline - virtual}
                row = {"node_id": id_to_text(node.id), "num_chunk_refs": total, **counts}
                totals = {name.replace("num", "total"): count for name, count in counts.items()}
                return {
                    "header": _header("manifest"),
                    "id": identifier,
                    "num_arrays": 1,
                    "total_chunk_refs": total,
                    **totals,
                    "arrays": [row],
                }
    raise NotFoundError(f"no branch has a manifest {identifier!r}", "manifest-info-not-found")


async def transaction_log(store: arraystore.Repository, identifier: str) -> dict[str, Any]:
    """Return what a snapshot changed; one that amends others has the moves since those, too, as in Icechunk."""
    info = await store.lookup_snapshot_async(identifier)
    changed: dict[str, Any] = dict.fromkeys(_CHANGES, ())
    if info.parent_id is not None:
        changed = vars(await committed_diff(store, {"snapshot_id": info.parent_id}, {"snapshot_id": identifier}))
        if any(changed[name] for name in ("new_groups", "new_arrays")):
            changed["moved_nodes"] = await _moves_since_amended(store, identifier, changed["moved_nodes"])
    return {
        "header": _header("transaction-log"),
        **{name: sorted(changed[name]) for name in _CHANGES},
        "updated_chunks": dict(changed.get("updated_chunks", {})),
        "moved_nodes": [{"from": old, "to": new} for old, new in changed.get("moved_nodes", [])],
    }


async def _moves_since_amended(store: arraystore.Repository, identifier: str, moved: _Moves) -> _Moves:
    """Return moves of a snapshot, and of nodes that it has and an amended one created at other paths.

    What a garbage collection has taken away since is left out.
    """
    after = (await load_snapshot(store.context, snapshot_id=identifier)).state
    from_parent = {new for _, new in moved}
    found, amending = {new: old for old, new in moved}, identifier
    async for update in store.ops_log_async():
        if update.kind != UpdateType.CommitAmended or update.details.get("snapshot") != amending:
            continue
        amending = str(update.details["amends"])
        try:
            before = (await load_snapshot(store.context, snapshot_id=amending)).state
        except SnapshotNotFoundError:
            break
        older = [node for node in after.nodes.values() if "/" + node.path not in from_parent and before.by_id(node.id)]
        for node in older:  # where it was first is what counts
            found.pop("/" + node.path, None)
        found |= {new: old for old, new in moves(before, older)}
    return sorted(((old, new) for new, old in found.items()), key=lambda move: move[1].split("/"))
