"""Change payloads: what a fork sends home, compactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arraystore.errors import FormatError
from arraystore.format.envelope import Kind, encode_object, pack_body, read_object, read_tuple
from arraystore.format.layer import read_id
from arraystore.format.manifest import Manifest, decode_manifest, encode_manifest
from arraystore.format.transaction import NodeChange

__all__ = ["ArrayPayload", "ChangePayload", "decode_changes", "encode_changes"]


@dataclass(frozen=True)
class ArrayPayload:
    """References written to one array.

    Parameters
    ----------
    node
        Id of the array.
    visible
        Cells of the base beyond this grid were cut off; None for none.
    manifests
        The references.
    """

    node: bytes
    visible: tuple[int, ...] | None
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True)
class ChangePayload:
    """Changes of one fork.

    Parameters
    ----------
    session
        Id of the session that was forked.
    fork
        Id of the fork.
    epoch
        When it was taken: number among the forks of its session.
    number
        Of this payload among those of the fork; each holds all that those before it held.
    nodes
        Changes of nodes, in the order in which they apply.
    arrays
        Changes of chunks.
    """

    session: bytes
    fork: bytes
    epoch: int
    number: int
    nodes: tuple[NodeChange, ...]
    arrays: tuple[ArrayPayload, ...]


def encode_changes(payload: ChangePayload) -> bytes:
    """Return the bytes of a payload."""
    arrays = tuple(
        (item.node, item.visible, tuple(encode_manifest(manifest) for manifest in item.manifests))
        for item in payload.arrays
    )
    body = (
        payload.session,
        payload.fork,
        payload.epoch,
        payload.number,
        tuple(node.to_wire() for node in payload.nodes),
        arrays,
    )
    return encode_object(Kind.CHANGES, pack_body(body))


def decode_changes(name: str, data: bytes | bytearray | memoryview) -> ChangePayload:
    """Read a payload, which may come from anywhere; raises `FormatError`."""
    body = read_object(name, Kind.CHANGES, data)
    session, fork, epoch, number, nodes, arrays = read_tuple(name, body, bytes, bytes, int, int, tuple, tuple)
    return ChangePayload(
        read_id(name, session),
        read_id(name, fork),
        epoch,
        number,
        tuple([NodeChange.from_wire(name, node) for node in nodes]),
        tuple([_read_array(name, item) for item in arrays]),
    )


def _read_array(name: str, value: Any) -> ArrayPayload:
    node, visible, manifests = read_tuple(name, value, bytes, (tuple, type(None)), tuple)
    if visible is not None and not all(type(side) is int and side >= 0 for side in visible):
        raise FormatError(name, "a grid is no list of sizes")
    decoded: list[Manifest] = []
    for manifest in manifests:
        if type(manifest) is not bytes:
            raise FormatError(name, "a manifest is no bytes")
        decoded.append(decode_manifest(name, manifest))
    return ArrayPayload(read_id(name, node), visible, tuple(decoded))
