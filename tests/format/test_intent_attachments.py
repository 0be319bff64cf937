"""An intent is read by others, who put it into a record: what it refers to is all in itself."""

from __future__ import annotations

import pytest

from arraystore.errors import FormatError
from arraystore.format.box import Box
from arraystore.format.intent import Intent, Proposal, decode_intent, encode_intent
from arraystore.format.layer import Attachment, Layer
from arraystore.format.transaction import ChunkChange, TransactionLog


def intent(at: Attachment) -> bytes:
    layer = Layer(b"l" * 12, Box((0,), (1,)), 1, False, None, at)
    log = TransactionLog((), (ChunkChange(b"a" * 12, layer),))
    return encode_intent(Intent("main", 4, 9, (Proposal(b"i" * 12, b"", log, None, (b"one",), 0, 0),)))


def test_a_manifest_among_its_attachments_is_found() -> None:
    read = decode_intent("sample", intent(Attachment("", 0, 0)), "main", 4)
    assert read.proposals[0].log.chunks[0].layer.attachment == Attachment("", 0, 0)


@pytest.mark.parametrize("at", [Attachment("", 0, 1), Attachment("main", 3, 0), Attachment("", 1, 0)])
def test_a_manifest_that_is_elsewhere_is_refused(at: Attachment) -> None:
    with pytest.raises(FormatError, match="sample: a manifest among attachments that it does not have"):
        decode_intent("sample", intent(at), "main", 4)
