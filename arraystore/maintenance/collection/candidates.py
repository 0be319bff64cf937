"""Objects that may be garbage, as sorted columns of ids, and marks on those that something needs.

Candidates come from listings, which are in order of ids; what the trace finds is looked up in them, batch by batch.  So
memory is 13 bytes a candidate, whatever the repository holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from arraystore.format.ids import ID_BYTES, ID_CHARS

__all__ = ["Candidates", "ids_from_texts"]

_ID: np.dtype[np.bytes_] = np.dtype(f"S{ID_BYTES}")
_ALPHABET = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = np.full(256, 255, dtype=np.uint8)
_VALUES[np.frombuffer(_ALPHABET, dtype=np.uint8)] = np.arange(32, dtype=np.uint8)


def ids_from_texts(texts: Sequence[str]) -> tuple[npt.NDArray[np.bytes_], npt.NDArray[np.bool_]]:
    """Read many ids in their form for keys.

    Returns
    -------
    array
        The ids, 12 bytes each; anything where a text is no id.
    array
        Which of the texts are ids.
    """
    fits = np.array([len(text) == ID_CHARS and text.isascii() for text in texts], dtype=bool)
    blob = "".join(text if fit else "0" * ID_CHARS for text, fit in zip(texts, fits.tolist(), strict=True))
    values = _VALUES[np.frombuffer(blob.encode(), dtype=np.uint8).reshape(len(texts), ID_CHARS)]
    fits &= (values < 32).all(axis=1) & (values[:, 0] < 2)
    bits = ((values[:, :, None] >> np.arange(4, -1, -1, dtype=np.uint8)) & 1).reshape(len(values), 5 * ID_CHARS)
    packed = np.packbits(bits[:, 4:], axis=1)
    ids: npt.NDArray[np.bytes_] = np.ascontiguousarray(packed).view(_ID).reshape(-1)
    return ids, fits


class Candidates:
    """Objects of one kind.

    Parameters
    ----------
    ids
        Ascending.
    sizes
        Bytes of each.
    """

    def __init__(self, ids: npt.NDArray[np.bytes_], sizes: npt.NDArray[np.int64]) -> None:
        self.ids = ids
        self.sizes = sizes
        self.needed = np.zeros(len(ids), dtype=bool)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, ids: Iterable[npt.NDArray[np.bytes_]], sizes: Iterable[npt.NDArray[np.int64]]) -> Candidates:
        """Put pages of a listing together."""
        return cls(np.concatenate([np.empty(0, _ID), *ids]), np.concatenate([np.empty(0, np.int64), *sizes]))

    def mark(self, needed: bytes) -> None:
        """Mark what is needed, given as ids one after the other."""
        if not needed or not len(self.ids):
            return
        asked = np.frombuffer(needed, dtype=_ID)
        at = np.searchsorted(self.ids, asked)
        at[at == len(self.ids)] = 0
        found = self.ids[at] == asked
        self.needed[at[found]] = True

    def garbage(self) -> tuple[bytes, int]:
        """Return the ids that nothing needs, one after the other, and how many bytes these objects have."""
        unneeded = ~self.needed
        return np.ascontiguousarray(self.ids[unneeded]).tobytes(), int(self.sizes[unneeded].sum())
