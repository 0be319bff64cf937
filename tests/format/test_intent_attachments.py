"""An intent is read by others, who put it into a record: what it refers to is all in itself."""

from __future__ import annotations

import numpy as np
import pytest

from arraystore._format.box import Box
from arraystore._format.intent import Intent, Proposal, decode_intent, encode_intent
from arraystore._format.layer import Attachment, Layer
from arraystore._format.manifest import encode_manifest
from arraystore._format.record import encode_note
from arraystore._format.references import DELETED, References, to_manifests
from arraystore._format.transaction import ChunkChange, TransactionLog
from arraystore.errors import FormatError

ZERO = np.zeros(1, dtype=np.int64)
(MANIFEST,) = to_manifests(References(ZERO.reshape(1, 1), ZERO + DELETED, ZERO, ZERO))


NOTE = encode_note("sample", {})


def intent(at: Attachment) -> bytes:
    layer = Layer(b"l" * 12, Box((0,), (1,)), 1, False, None, at)
    log = TransactionLog((), (ChunkChange(b"a" * 12, layer),))
    attachments = (encode_manifest(MANIFEST),)
    return encode_intent(Intent("main", 4, 9, (Proposal(b"i" * 12, NOTE, log, None, attachments, 0, 0),)))


def test_a_manifest_among_its_attachments_is_found() -> None:
    read = decode_intent("sample", intent(Attachment("", 0, 0)), "main", 4)
    assert read.proposals[0].log.chunks[0].layer.attachment == Attachment("", 0, 0)


@pytest.mark.parametrize("at", [Attachment("", 0, 1), Attachment("main", 3, 0), Attachment("", 1, 0)])
def test_a_manifest_that_is_elsewhere_is_refused(at: Attachment) -> None:
    with pytest.raises(FormatError, match="sample: a manifest among attachments that it does not have"):
        decode_intent("sample", intent(at), "main", 4)
