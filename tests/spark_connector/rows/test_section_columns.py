"""Sections of columns of messages, compared with those that are found one by one."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event
from amqp_streams.client.raw import APPLICATION_PROPERTIES, PROPERTIES
from spark_connector.rows.message_parts import BODY, take_apart
from spark_connector.rows.section_columns import MESSAGE_ANNOTATIONS, sections_of

CODES = (MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES)
LENGTHS = st.one_of(st.integers(0, 20), st.integers(240, 300))
EVENTS = st.builds(
    Event,
    LENGTHS.map(b"x".__mul__),
    key=st.none() | LENGTHS.map("k".__mul__),
    properties=st.none()
    | st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9) | st.none()),
    subject=st.none() | LENGTHS.map("s".__mul__),
).filter(
    lambda event: all(
        abs(value) < 1 << 63 for value in (event.properties or {}).values() if isinstance(value, int)
    )
)


def same_as_one_by_one(messages: list[bytes]) -> bool:
    """Whether the messages have the usual form. If they do, what was found is compared."""
    found = sections_of(pa.array([b"before", *messages], pa.binary())[1:])
    if found is None:
        return False
    parts = take_apart(messages, frozenset((*CODES, BODY)))
    assert not parts.faults
    assert found.bodies.column().to_pylist() == parts.bodies
    for code in CODES:
        wanted = [list(parts.tables[code])[number] for number in parts.codes[code]]
        section = found.sections.get(code)
        assert (section.column().to_pylist() if section else [b""] * len(messages)) == wanted
    return True


@given(st.lists(EVENTS, min_size=1, max_size=8))
def test_messages_of_the_client_are_read_as_columns(events: list[Event]) -> None:
    assert same_as_one_by_one([event.encode() for event in events])


@given(st.lists(EVENTS.map(Event.encode) | st.binary(max_size=30), min_size=1, max_size=5), st.data())
def test_any_bytes_are_left_to_the_other_reader_or_read_like_it(
    messages: list[bytes], data: st.DataObject
) -> None:
    damaged = []
    for message in messages:
        at = data.draw(st.integers(0, max(len(message) - 1, 0)))
        bit = data.draw(st.integers(0, 255))
        flipped = message[:at] + bytes((message[at] ^ bit,)) + message[at + 1 :] if message else message
        damaged.append(flipped[: data.draw(st.integers(0, len(flipped)))])
    same_as_one_by_one(damaged)


def test_other_bodies_and_no_messages_are_left_to_the_other_reader() -> None:
    for body in ("text", None, [1, 2]):
        assert not same_as_one_by_one([Event(b"x").encode(), Event(body).encode()])
    assert not same_as_one_by_one([Event(b"x").encode() + Event(b"y").encode()])
    assert sections_of(pa.array([], pa.binary())) is None
