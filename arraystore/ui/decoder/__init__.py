"""Decoding of chunks by anybody's codecs, in a process with bounded memory and time."""
