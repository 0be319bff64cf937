"""Checks what a run has left in the bucket against what its actors meant and saw.

Nothing of the code under test is imported: objects are decoded anew after docs/format.md, and the semantics of
operations is written down a second time, as plain as it can be.
"""
