"""The commit protocol: preparing transactions, detecting and resolving conflicts, rebasing, group commit.

`rebase_step` decides whether a transaction can be rebased onto others; `rebase_request` (this process's own
transactions), `intent_tracking` (proposals of other processes) and `batch` (transactions of one record) ask it.

Everything here reaches the world through a `Storage` and an `Environment` that are passed in, so the same code runs
under a deterministic scheduler.
"""
