"""Chunks: gathered into packs and uploaded, located by their references, read and verified."""
