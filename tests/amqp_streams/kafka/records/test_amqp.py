"""Values of our own topics: each message comes back byte for byte."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.kafka.records.amqp import OVERHEAD_MAX, header_size, messages, values
from amqp_streams.wire.codec import encode
from amqp_streams.wire.layout import EMPTY_HEADER, NULL_VALUE
from amqp_streams.wire.types import Described, ULong

BODY = encode(Described(ULong(0x75), b"body"))
HEADER = encode(Described(ULong(0x70), [True, 4]))
ANY = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([BODY, HEADER + BODY, EMPTY_HEADER + BODY, b"\x01" + BODY, b"\x01", HEADER[:-1], b""]),
)
RECORDS = st.lists(
    st.tuples(ANY, st.integers(0, 255), st.sampled_from([0, 0, 7, (1 << 32) - 1])), min_size=1, max_size=6
)


@given(RECORDS)
def test_whatever_is_stored_comes_back(records: list[tuple[bytes, int, int]]) -> None:
    given_messages = [message for message, _, _ in records]
    sizes = bytes(size for _, size, _ in records)
    formats = array("I", [number for _, _, number in records])
    written = values(given_messages, sizes, formats if any(formats) else None)
    assert messages(written) == (given_messages, sizes, formats if any(formats) else None)
    assert all(
        len(value) <= len(message) + OVERHEAD_MAX
        for value, message in zip(written, given_messages, strict=True)
    )


def test_a_usual_message_is_the_value_itself() -> None:
    """Other programs can read it, and nothing is copied."""
    batch = [BODY] * 3
    assert values(batch, bytes(3)) is batch
    with_headers = [EMPTY_HEADER + BODY, HEADER + BODY, BODY]
    sizes = bytes([len(EMPTY_HEADER), len(HEADER), 0])
    assert values(with_headers, sizes) == with_headers
    assert messages(with_headers) == (with_headers, sizes, None)


def test_a_record_without_a_value_is_a_message_with_the_body_null() -> None:
    assert messages([None, BODY]) == ([NULL_VALUE, BODY], b"\0\0", None)


def test_an_incomplete_header_is_not_a_header() -> None:
    assert header_size(HEADER[:-1]) == 0
    assert header_size(HEADER + BODY) == len(HEADER)
    long = encode(Described(ULong(0x70), [b"x" * 300]))
    assert header_size(long) == 0
