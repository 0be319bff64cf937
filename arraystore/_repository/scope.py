"""Reach of maintenance: the logs and the storage of a repository, as its sessions see them or with requests counted."""

from __future__ import annotations

from arraystore._context.context import Context
from arraystore._log.branch_log import BranchLog
from arraystore._maintenance.remote_readers import RemoteReaders
from arraystore._maintenance.scope import MaintenanceScope
from arraystore._runtime.engine import EngineOption
from arraystore.storage.counting import CountingStorage
from arraystore.storage.sharing import engine_for


def scope_of(context: Context) -> MaintenanceScope:
    """Return the scope of maintenance of a repository."""
    return MaintenanceScope(
        context.storage, context.environment, context.repository_log, context.log, context.known_tip
    )


def counted_scope(context: Context) -> tuple[MaintenanceScope, CountingStorage]:
    """Return the scope of maintenance with every request counted."""
    storage = CountingStorage(context.storage)
    logs: dict[str, BranchLog] = {}

    def log(name: str) -> BranchLog:
        if name not in logs:
            logs[name] = BranchLog(storage, context.repository, name, context.environment)
        return logs[name]

    repository_log = context.repository_log.over(storage)
    return MaintenanceScope(storage, context.environment, repository_log, log, context.known_tip), storage


def remote_readers(context: Context, engine: EngineOption) -> RemoteReaders | None:
    """Return the readers of a repository on the workers of an engine; None for threads of this process."""
    workers = engine_for(engine, context.storage)
    return None if workers is None else RemoteReaders(workers, context)
