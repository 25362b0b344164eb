"""Records of idempotent producers: what is written is read, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.errors import StorageError
from amqp_streams.kafka.numbered.records import (
    BUCKETS,
    ProducerKey,
    ProducerRecord,
    decoded,
    encoded,
    key_of,
)

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
reached = st.dictionaries(st.integers(0, 1023), st.integers(0, 2**64 - 1), max_size=5)


@given(ids, st.integers(0, 1023), reached)
def test_a_record_is_read_as_it_was_written(node: str, home: int, numbers: dict[int, int]) -> None:
    record = ProducerRecord(node, home, numbers)
    assert decoded("k", encoded(record)) == record


@given(ids, ids)
def test_a_producer_is_found_again_by_its_key(incarnation: str, producer: str) -> None:
    key = ProducerKey(incarnation, producer)
    assert key_of(key.state) == key
    assert 0 <= key.bucket < BUCKETS


def test_the_id_of_a_topic_may_have_the_separator() -> None:
    key = ProducerKey("PiiNgUgLT/+qs/Hp6IYyDg", "line/7")
    assert key_of(key.state) == key


@pytest.mark.parametrize(
    "state",
    ["home", "number/", "number/1", "number//p", "number/1/i/", "number/9/i/p", "number/01/i/p", "1/i/p"],
)
def test_other_keys_are_not_those_of_producers(state: str) -> None:
    assert key_of(state) is None


def test_bucket_and_transactional_id_never_change() -> None:
    """Nodes of all versions must fence each other."""
    key = ProducerKey("incarnation", "user\x1fmeter-7")
    assert key.bucket == 1
    assert key.transactional_id("amqp-streams") == "amqp-streams.number.fe778e954d7fae11740209be78b32896"


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"v":2,"node":"n","home":0,"reached":{}}', b'{"v":1}']
)
def test_a_record_of_a_later_version_is_an_error(value: bytes) -> None:
    with pytest.raises(StorageError, match="start the version that wrote it, or a later one"):
        decoded("number/i/p", value)


def test_a_record_covers_what_is_not_above_its_numbers() -> None:
    record = ProducerRecord("n", 0, {0: 5, 2: 7})
    assert record.covers({})
    assert record.covers({0: 5, 2: 6})
    assert not record.covers({0: 6})
    assert not record.covers({1: 0})
