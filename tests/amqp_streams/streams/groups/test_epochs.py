"""The keys of epochs let the node find all epochs of one log, and none of another log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.errors import StorageError
from amqp_streams.storage.ports import STATE_KEY_BYTES_MAX
from amqp_streams.streams.groups.claims import GROUP_CHARACTERS_MAX
from amqp_streams.streams.groups.epochs import PREFIX, epoch_change, epoch_group, epochs_prefix, read_epochs
from amqp_streams.testing.memory_states import MemoryStates

group_names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@given(
    st.dictionaries(st.tuples(group_names, st.integers(0, 1023)), st.integers(1, 2**64 - 1)),
    st.sampled_from(["i", "in", "other"]),
)
def test_recorded_epochs_are_read_back_for_their_log_alone(
    epochs: dict[tuple[str, int], int], incarnation: str
) -> None:
    states = MemoryStates()
    for (group, partition), epoch in epochs.items():
        states.write(epoch_change(incarnation, group, partition, epoch))
    for each in ("i", "in", "other"):
        assert read_epochs(each, states.items(epochs_prefix(each))) == (epochs if each == incarnation else {})
    found = {epoch_group(key) for key, _ in states.items(PREFIX)}
    assert found == {(incarnation, group) for group, _ in epochs}


def test_the_longest_name_makes_a_key_that_the_states_take() -> None:
    (key,) = epoch_change("x" * 64, "\U0001f600" * GROUP_CHARACTERS_MAX, 1023, 1)
    assert len(key.encode()) <= STATE_KEY_BYTES_MAX


@pytest.mark.parametrize("value", [b'{"v":2,"epoch":7}', b"{}", b"\xff", b'{"v":1,"epoch":null}', b"7"])
def test_a_state_of_a_later_version_is_not_interpreted(value: bytes) -> None:
    (key,) = epoch_change("a", "g", 0, 1)
    with pytest.raises(StorageError, match="start the version that wrote it"):
        read_epochs("a", [(key, value)])


@pytest.mark.parametrize("incarnation", ["0123abcd", "a/b+c/d", "x" * 22])
@pytest.mark.parametrize("group", ["g", "g/7/h", "two\nlines"])
def test_log_and_group_are_read_from_the_key_of_an_epoch(incarnation: str, group: str) -> None:
    """The id of a topic of Kafka, which is an incarnation, is base64."""
    (key,) = epoch_change(incarnation, group, 12, 1)
    assert epoch_group(key) == (incarnation, group)
