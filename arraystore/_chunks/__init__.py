"""Chunks: gathered into packs and uploaded, found by their references, read and checked."""
