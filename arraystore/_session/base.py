"""What every session tells about the snapshot that it shows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from arraystore._config import RepositoryConfig
from arraystore._context import Context
from arraystore._format.ids import id_to_text
from arraystore._format.node import Node, NodeKind
from arraystore._history.missing_objects import check_not_expired
from arraystore._log.loading import Tip
from arraystore._runtime import run
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.listing import present_chunks
from arraystore.errors import NodeNotFoundError, ObjectNotFoundError

__all__ = ["SessionView"]


class SessionView:
    """A snapshot, with or without changes over it, and what can be asked of it.

    Parameters
    ----------
    context
        What sessions of the repository share.
    tip
        The record that it is based on.
    """

    hierarchy: Hierarchy

    def __init__(self, context: Context, tip: Tip) -> None:
        self.context = context
        self._tip = tip
        context.environment.after(tip.state.life.fence)

    @property
    def snapshot_id(self) -> str:
        """Id of the snapshot that the session is based on; after a commit, of the one that it made."""
        return id_to_text(self._tip.state.snapshot)

    @property
    def base_tip(self) -> Tip:
        """The record that the session is based on."""
        return self._tip

    @property
    def config(self) -> RepositoryConfig:
        """Configuration of the repository."""
        return self.context.config

    # -- looking --------------------------------------------------------------------------------------------

    def chunk_coordinates(self, path: str) -> npt.NDArray[np.int64]:
        """Return the grid coordinates of all chunks that an array has, shape (n, d), in row-major order.

        Raises
        ------
        NodeNotFoundError
            If there is no such array.
        """
        node = self._looked_up(path)
        if node is None or node.kind != NodeKind.ARRAY:
            raise NodeNotFoundError(f"there is no array {path!r} in snapshot {self.snapshot_id}")
        return run(self._present(node))

    def get_node_id(self, path: str) -> str:
        """Return the id of a node, which stays the same when it is moved.

        Raises
        ------
        NodeNotFoundError
            If there is no such node.
        """
        node = self._looked_up(path)
        if node is None:
            raise NodeNotFoundError(f"there is no node {path!r} in snapshot {self.snapshot_id}")
        return id_to_text(node.id)

    async def _present(self, node: Node) -> npt.NDArray[np.int64]:
        try:
            return (await present_chunks(self.hierarchy, node)).coords
        except ObjectNotFoundError as error:
            await check_not_expired(self.context, self._tip.state, self.hierarchy.changes, error)
            raise

    def _looked_up(self, path: str) -> Node | None:
        """Return a node, and note that it was looked for."""
        key = path.strip("/")
        if (noted := self.hierarchy.noted) is not None:
            noted.place(key)
        return self.hierarchy.node(key)
