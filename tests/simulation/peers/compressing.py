"""Compressed batches, as a client writes and reads them without our codecs.

Spec: docs/batched-sends.md, docs/batched-deliveries.md.
"""

from random import Random
from typing import Any, Final

import lz4.frame
import zstandard

from amqp_streams import names
from amqp_streams.wire.batches import Batch, read_batch
from amqp_streams.wire.decoder import decode
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.layout import DELIVERY_ANNOTATIONS, DELIVERY_ANNOTATIONS_HEAD, sections
from amqp_streams.wire.types import Described, Symbol, UInt
from tests.simulation.peers.frames import data_section

CODECS: Final = ("zstd", "lz4")


def compressed(batch: bytes, codec: str, *, damage: Random | None = None) -> bytes:
    """The message of a compressed batch. `damage`: the node cannot decompress it."""
    size = len(batch)
    frame = zstandard.ZstdCompressor().compress(batch) if codec == "zstd" else lz4.frame.compress(batch)
    if damage is not None:
        match damage.randrange(4):
            case 0:
                size += damage.choice((-1, 1))
            case 1:
                size = 1 << 30
            case 2:
                frame = frame[: len(frame) // 2]
            case _:
                codec = "gzip"
    annotations = {
        Symbol(names.BATCH_COMPRESSION): Symbol(codec),
        Symbol(names.BATCH_UNCOMPRESSED_SIZE): UInt(size),
    }
    return DELIVERY_ANNOTATIONS_HEAD + encode(annotations) + data_section(frame)


def batch_delivery(raw: bytes, codec: str | None) -> tuple[Batch, bool]:
    """The batch of a delivery to a client that asked for this codec, and whether it was compressed."""
    found = list(sections(raw))
    annotations = _annotations(raw)
    named = annotations.get(names.BATCH_COMPRESSION)
    if named is None:
        return read_batch(raw), False
    assert named == codec, f"a delivery is compressed with {named}, and the client asked for {codec}"
    assert len(found) == 2, "a compressed batch is one data section behind its annotations"
    described, _ = decode(raw, found[1].start)
    assert isinstance(described, Described)
    frame = described.value
    assert isinstance(frame, bytes)
    decompress = zstandard.ZstdDecompressor().decompress if codec == "zstd" else lz4.frame.decompress
    batch = decompress(frame)
    assert len(batch) == int(annotations[names.BATCH_UNCOMPRESSED_SIZE])
    assert len(raw) < len(batch), "compression makes a delivery smaller"
    return read_batch(batch), True


def _annotations(raw: bytes) -> dict[str, Any]:
    first = sections(raw)[0]
    assert first.code == DELIVERY_ANNOTATIONS
    described, _ = decode(raw, first.start)
    assert isinstance(described, Described)
    assert isinstance(described.value, dict)
    return {str(key): value for key, value in described.value.items()}
