"""Chunk re-addressing, and commits that undo or repeat others."""
