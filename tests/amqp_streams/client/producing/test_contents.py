"""What a program passes to a producer, as the entries of its outbox."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event
from amqp_streams.client.producing.contents import Sent, encode, entries_of


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=30), st.integers(1, 300), st.booleans())
def test_entries_are_taken_up_to_the_event_that_reaches_the_limit(
    messages: list[bytes], bytes_max: int, copied: bool
) -> None:
    """Also if the messages are not `bytes`, which takes another path."""
    events: Sequence[Sent] = [bytearray(each) for each in messages] if copied else messages  # type: ignore[misc]  # it is copied
    entries = entries_of(events, None, bytes_max)
    assert [entry.message for entry in entries] == messages[: len(entries)]
    assert [entry.event for entry in entries] == list(events[: len(entries)])
    before = sum(len(entry.message) for entry in entries[:-1])
    assert before < bytes_max or not entries
    assert len(entries) == len(messages) or before + len(entries[-1].message) >= bytes_max


def test_events_keep_their_partition_and_format() -> None:
    events: list[Sent] = [Event("a", message_format=7), b"\0\x53\x75\xa0\x01b"]
    entries = entries_of(events, 3, 1000)
    assert [entry.message for entry in entries] == [encode(event, 3) for event in events]
    assert [entry.message_format for entry in entries] == [7, 0]


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(TypeError, match="a int cannot be sent"):
        entries_of([b"a", 1], None, 100)  # type: ignore[list-item]  # not an event
