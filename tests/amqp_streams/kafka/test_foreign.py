"""What topics of other programs ask of events."""

import pytest

from amqp_streams import names
from amqp_streams.kafka.foreign import ForeignTopic
from amqp_streams.kafka.hashing import partition_of_key
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.keys import key_section
from amqp_streams.wire.types import Described, ULong

DATA = b"\x00\x53\x75\xa0\x03abc"
VALUE = encode(Described(ULong(0x77), "abc"))


@pytest.mark.parametrize(
    ("message", "compacted", "size", "words"),
    [
        (DATA, False, 100, None),
        (VALUE, False, 100, "not one data section"),
        (DATA, True, 100, "each event needs a group key"),
        (key_section("k") + DATA, True, 100, None),
        (key_section("k") + DATA, False, 4, None),
        (key_section("k") + DATA, False, 3, "the event has 4 bytes"),
        (b"not AMQP", False, 100, "byte"),
    ],
)
def test_an_event_that_cannot_be_a_record_is_refused(
    message: bytes, size: int, words: str | None, *, compacted: bool
) -> None:
    refusal = ForeignTopic("t", compacted, size).refusal(message)
    assert (refusal is None) == (words is None)
    if refusal is not None and words is not None:
        assert words in refusal.description
        assert refusal.condition in {names.NOT_ALLOWED, names.DECODE_ERROR}


def test_a_key_is_in_the_partition_of_java_clients() -> None:
    topic = ForeignTopic("t", False, 100)
    for key in ("kitchen", "ü", ""):
        assert topic.partition_of_key(key, 7) == partition_of_key(key.encode(), 7)
