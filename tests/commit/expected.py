"""What every pair of operations comes to: nothing is said of pairs that commit.

The table was thought out from what the operations mean, not copied from what the program does.  A row is what we do,
by its verdict what they have done before.
"""

from __future__ import annotations

from arraystore import ConflictType as T

CODES = {
    "N": T.NewNodeConflictsWithExistingNode,
    "I": T.NewNodeInInvalidGroup,
    "M": T.ZarrMetadataDoubleUpdate,
    "MA": T.ZarrMetadataUpdateOfDeletedArray,
    "MG": T.ZarrMetadataUpdateOfDeletedGroup,
    "C": T.ChunkDoubleUpdate,
    "CD": T.ChunksUpdatedInDeletedArray,
    "CM": T.ChunksUpdatedInUpdatedArray,
    "DA": T.DeleteOfUpdatedArray,
    "DG": T.DeleteOfUpdatedGroup,
    "MV": T.MoveOperationCannotBeRebased,
    "MC": T.ZarrMetadataUpdateOfUpdatedChunks,
    "DD": T.DeleteOfDeletedNode,
    "U": T.UnalignedAppend,
    "R": T.ReadConflict,
}
"""Short names of conflict types.  `DuplicateAppend` needs a unique coordinate, which no operation here has."""

Row = dict[str, tuple[str, ...]]

# -- what happens to the array --------------------------------------------------------------------------------------
PLAIN = ("attrs", "grow")
OTHERWISE = ("scale", "fill", "codecs", "names")  # chunks are read otherwise than before
SHRUNK = ("shrink",)  # chunks are read otherwise, and those cut off are deleted
UPDATED = (*PLAIN, *OTHERWISE, *SHRUNK, "grow+write")
APPENDED = ("append", "append½")
CHUNKS = ("write", "write2", "new chunk", "erase")
REPLACED = ("re-create", "re-create empty", "to group")
GROUP_GONE = ("del group", "re-group", "to array")
GONE = ("delete", *REPLACED, *GROUP_GONE)
CARRIED = ("move", "move into", "move group")
TOUCHED = (*UPDATED, *APPENDED, *CHUNKS)
AT_N = ("array", "group", "deep array", "move", "move group")
BELOW_N = ("file", "bare array")
IN_G = ("nested array", "nested group", "nested file", "into empty")


def _array_rows() -> dict[str, Row]:
    reading: Row = {
        "MA": GONE,
        "M": ("attrs", "grow", *OTHERWISE),
        "M MC": (*SHRUNK, "grow+write", *APPENDED),
        "MC": CHUNKS,
    }
    appending: Row = {"MA CD": GONE, "M": (*OTHERWISE, *SHRUNK, "grow", "grow+write"), "U": ("append½",)}
    recreating: Row = {
        "DD": ("delete", "re-group"),
        "DD N": REPLACED,
        "DD I": ("del group", "to array"),
        "DA": (*TOUCHED, "move", "move into"),
        "DA I": ("move group",),
    }
    writing: Row = {"CD": GONE, "CM": (*OTHERWISE, *SHRUNK)}
    return {
        "attrs": {"MA": GONE, "M": UPDATED},
        **dict.fromkeys(OTHERWISE, reading),
        "grow": {"MA": GONE, "M": (*UPDATED, *APPENDED)},
        "shrink": {
            "MA CD": GONE,
            "M": PLAIN,
            "M CM": OTHERWISE,
            "M CM MC": SHRUNK,
            "M MC": ("grow+write", *APPENDED),
            "MC": CHUNKS,
        },
        "grow+write": {
            "MA CD": GONE,
            "M": PLAIN,
            "M CM": (*OTHERWISE, *SHRUNK),
            "M C": ("grow+write", *APPENDED),
        },
        "append": appending,
        "append½": appending,
        "write": {**writing, "C": ("write", "erase")},
        "write2": {**writing, "C": ("write2",)},
        "new chunk": {**writing, "C": ("new chunk",)},
        "erase": {**writing, "C": ("write", "erase")},
        "delete": {"DD": GONE, "DA": (*TOUCHED, *CARRIED)},
        **dict.fromkeys(REPLACED, recreating),
        "move": {"MV": (*GONE, *CARRIED, *AT_N[:3], *BELOW_N)},
        "move into": {"MV": (*GONE, *CARRIED, "del empty", "into empty")},
    }


def _creation_rows() -> dict[str, Row]:
    nested: Row = {
        "N": ("nested array", "nested group", "move sub"),
        "I": ("del group", "to array", "move group"),
    }
    return {
        "array": {"N": (*AT_N, *BELOW_N)},
        "group": {"N": AT_N},
        "file": {"N": ("file",), "I": ("array", "move")},
        "deep array": {"N": (*AT_N, "bare array")},
        "bare array": {"N": ("deep array", "bare array"), "I": ("array", "move")},
        "nested array": nested,
        "nested group": nested,
        "nested file": {"N": ("nested file",), "I": ("to array",)},
        "into empty": {"N": ("into empty", "move into"), "I": ("del empty", *GROUP_GONE, "move group")},
    }


def _group_rows() -> dict[str, Row]:
    deleting: Row = {
        "DD": ("delete", "del group", "del empty", "del file"),
        "DA": (*TOUCHED, "move", "move into", "write file", "append to 7"),
        "DA DG": ("move group", "move sub"),
    }
    changed = ("g attrs", "sub attrs")
    moved = ("del group", "re-group", "to array", "move group")
    return {
        "del group": {
            **deleting,
            "DD": (*deleting["DD"], "re-group", "to array"),
            "DD DG": REPLACED,
            "DG": (*IN_G, *changed),
        },
        "del empty": {"DD": ("del empty", *GROUP_GONE), "DG": ("into empty", "move into", "move group")},
        "re-group": {**deleting, "DD N": ("re-group", "to array"), "DD DG": REPLACED, "DG": (*IN_G, *changed)},
        "to array": {
            **deleting,
            "DD N": ("re-group", "to array"),
            "DD DG N": REPLACED,
            "DG N": IN_G,
            "DG": changed,
        },
        "g attrs": {"MG": GROUP_GONE, "M": ("g attrs",)},
        "sub attrs": {"MG": GROUP_GONE, "M": ("sub attrs",)},
        "move group": {"MV": (*moved, "move", "array", "group", "deep array", *BELOW_N)},
        "move sub": {"MV": (*moved, "move sub", "nested array", "nested group")},
    }


def _other_rows() -> dict[str, Row]:
    listed = ("nested array", "nested group", "nested file", "del empty", "move sub", "g attrs", "sub attrs")
    return {
        "write file": {"C": ("write file",), "CD": (*GROUP_GONE, "del file")},
        "del file": {"DD": ("del file", *GROUP_GONE), "DA": ("write file", "move group")},
        "append to 7": {"MA CD": GROUP_GONE, "C U": ("append to 7",)},
        "read array": {"R": (*GONE, *CARRIED, *TOUCHED)},
        "read chunk": {"R": (*GONE, *CARRIED, *UPDATED, *APPENDED, "write", "erase")},
        "read members": {"R": (*GONE, *CARRIED, *UPDATED, *APPENDED, *listed, "del file", "append to 7")},
    }


ROWS = _array_rows() | _creation_rows() | _group_rows() | _other_rows()


def expected(ours: str, theirs: str) -> str:
    """Return the codes of the conflicts of a pair, in alphabetical order; nothing if it commits."""
    found = [codes for codes, columns in ROWS[ours].items() if theirs in columns]
    assert len(found) <= 1, f"{ours!r} against {theirs!r} is in the table twice: {found}"
    return " ".join(sorted(found[0].split())) if found else ""
