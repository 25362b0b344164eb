"""The group key of an event. Event Streams 4.6.4."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.names import GROUP_KEY
from amqp_streams.wire.codec import Described, Symbol, decode
from amqp_streams.wire.keys import key_section
from amqp_streams.wire.sections import group_key

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)


@given(TEXTS)
def test_a_key_is_read_back_from_the_section(key: str) -> None:
    section = key_section(key)
    assert group_key(section + b"\x00\x53\x75\xa0\x00") == key
    value, end = decode(section, 0)
    assert end == len(section)
    assert isinstance(value, Described)
    assert value.value == {Symbol(GROUP_KEY): key}


@pytest.mark.parametrize("size", [0, 1, 226, 227, 228, 229, 255, 256])
def test_each_size_of_a_key_has_room(size: int) -> None:
    assert group_key(key_section("k" * size) + b"\x00\x53\x77\x40") == "k" * size
