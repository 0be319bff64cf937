"""What keeps a repository small: expiry of snapshots and garbage collection."""

from __future__ import annotations

from arraystore.repository_base import RepositoryBase

__all__ = ["CareMixin"]


class CareMixin(RepositoryBase):
    """Expiring snapshots, collecting garbage."""
