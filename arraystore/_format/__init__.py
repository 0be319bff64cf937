"""On-disk format: pure functions between bytes and values.

Nothing here does I/O, reads a clock or draws random numbers.  `docs/format.md` specifies every byte, and
`docs/glossary.md` defines the terms.
"""
