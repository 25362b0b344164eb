"""The record of a home: what is written is read, and nothing else is guessed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.errors import StorageError
from amqp_streams.homes.records import HomeRecord, decoded, encoded


@given(st.builds(HomeRecord, st.integers(0, 2**63), st.text(), st.text(), st.booleans()))
def test_a_record_is_read_as_it_was_written(record: HomeRecord) -> None:
    assert decoded(encoded(record)) == record


@given(st.binary())
def test_other_bytes_are_an_error_with_words(value: bytes) -> None:
    with pytest.raises(StorageError, match="start the version that wrote it"):
        decoded(value)


def test_a_later_version_is_an_error() -> None:
    later = encoded(HomeRecord(1, "n", "a")).replace(b'"v":1', b'"v":2')
    with pytest.raises(StorageError, match="version 2"):
        decoded(later)
