"""Results for keys that repeat: they are found again, and bounded."""

from hypothesis import given
from hypothesis import strategies as st

from event_formats.memory import Memory


@given(st.lists(st.text("ab", max_size=6)))
def test_a_memory_has_what_was_kept_last_and_never_more_than_its_bound(keys: list[str]) -> None:
    memory: Memory[str, str] = Memory(3, 4)
    for key in keys:
        assert memory.keep(key, key.upper()) == key.upper()
        assert len(memory) <= 3
        assert all(value == kept.upper() and len(kept) <= 4 for kept, value in memory.items())
        assert (memory.get(key) == key.upper()) is (len(key) <= 4)


def test_the_length_of_a_key_is_what_its_owner_says() -> None:
    memory: Memory[tuple[bytes, bytes], int] = Memory(9, 2, lambda header: len(header[1]))
    memory.keep((b"long name", b"ab"), 1)
    memory.keep((b"n", b"abc"), 2)
    assert memory == {(b"long name", b"ab"): 1}
