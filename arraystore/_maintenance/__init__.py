"""Maintenance off the critical path: checkpoints, folding, compaction, expiry, collection, verification."""
