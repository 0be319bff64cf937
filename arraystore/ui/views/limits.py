"""Limits of views: what a page reads, computes and returns at most, whatever a repository holds."""

from __future__ import annotations

from arraystore.errors import ArrayStoreError

MAX_COMMITS = 20_000
"""Snapshots of one history; a row takes some 120 bytes in the answer."""

MAX_SUBJECT = 160
"""Characters of the first line of a message in a history; the snapshot itself shows all of it."""

MAX_MESSAGE = 100_000
"""Characters of a message, of a metadata value or of a document."""

MAX_DOCUMENTS = 4 << 20
"""Bytes of the metadata documents of a node whose attributes are shown."""

MAX_NODES = 20_000
"""Nodes of one tree."""

MAX_CELLS = 1 << 16
"""Cells of the picture of a chunk map: more chunks than that share cells."""

MAX_MANIFESTS = 2_048
"""Manifests that one chunk map reads."""

MAX_SIDE = 400
"""Rows and columns of a preview: more than a screen shows beside other things."""

MAX_CHUNK_BYTES = 64 << 20
"""Decoded bytes of all chunks that one preview touches."""

MAX_REGION_BYTES = 32 << 20
"""Bytes of the region that one preview reads, before it is thinned out."""

MAX_ENCODED_BYTES = 64 << 20
"""Encoded bytes that one preview has decoded by codecs that are not the library's own."""

MAX_DECODING_SECONDS = 20.0
"""Time that this may take."""

MAX_CHUNKS_READ = 4_096
"""Chunks that one preview touches."""

MAX_TABLE = 2_000
"""Cells of a table of values."""

MAX_COORDINATES = 1 << 17
"""Items of a coordinate that is read to label an axis."""

MAX_PATHS = 2_000
"""Paths of each kind in a difference."""

MAX_LINES = 2_000
"""Lines of a difference of documents."""


class UnreadableMetadataError(ArrayStoreError):
    """Metadata that zarr does not take."""

    kind = "unreadable-metadata"


class TooLargeError(ArrayStoreError):
    """View needs more than a page may read."""

    kind = "too-large"
