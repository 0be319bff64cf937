"""The commit protocol: the branch log, snapshots in memory, change sets, packs and commits.

Everything here reaches the world through a `Storage` and an `Environment` that are passed in, so the same code runs
under a deterministic scheduler.
"""
