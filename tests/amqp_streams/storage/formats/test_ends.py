"""A copy of the ends decodes to what was encoded, or its CRC does not match."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.formats import ends
from amqp_streams.storage.formats.ends import COPY_BYTES, ENTRIES_MAX, Copy, Ends, Place

SEED = 7
numbers = st.integers(0, (1 << 64) - 1)
keys = st.tuples(numbers, st.integers(0, (1 << 32) - 1))
known = st.dictionaries(keys, numbers, max_size=20)


def _file(*copies: bytes) -> bytes:
    return b"".join(copy.ljust(COPY_BYTES, b"\0") for copy in copies)


@given(known, known, numbers, numbers)
def test_what_is_put_is_read(before: dict[ends.Key, int], more: dict[ends.Key, int], a: int, b: int) -> None:
    copy = Copy(Ends(4, Place(1, 2), before), SEED)
    copy.journal = Place(a, b)
    for key, end in more.items():
        copy.put(key, end)
    assert ends.decode(copy.encode(), SEED) == Ends(5, Place(a, b), before | more)


@given(known, st.data())
def test_a_flipped_bit_spoils_a_copy(entries: dict[ends.Key, int], data: st.DataObject) -> None:
    changed = bytearray(Copy(Ends(4, Place(1, 2), entries), SEED).encode())
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert ends.decode(bytes(changed), SEED) is None


@given(st.binary(max_size=200))
def test_garbage_is_not_a_copy_and_never_raises(data: bytes) -> None:
    assert ends.decode(data, SEED) is None
    assert ends.decode(ends.MAGIC + data, SEED) is None
    assert ends.read(data, SEED) is None


def test_the_later_readable_copy_of_this_directory_counts() -> None:
    copy = Copy(Ends(), SEED)
    copy.put((1, 0), 10)
    first = copy.encode()
    copy.put((1, 0), 11)
    second = copy.encode()
    assert ends.read(_file(second, first), SEED) == Ends(2, Place(0, 0), {(1, 0): 11})
    assert ends.read(_file(first, second), SEED) == Ends(2, Place(0, 0), {(1, 0): 11})
    assert ends.read(_file(first, second[:-1] + b"x"), SEED) == Ends(1, Place(0, 0), {(1, 0): 10})
    assert ends.read(_file(first, second), SEED + 1) is None


def test_a_full_copy_has_the_partitions_that_were_written_last() -> None:
    copy = Copy(Ends(), SEED)
    for partition in range(ENTRIES_MAX):
        copy.put((1, partition), partition)
    copy.put((1, 0), 7)
    copy.put((2, 0), 1)
    found = ends.decode(copy.encode(), SEED)
    assert found is not None
    assert found.ends.keys() == {(1, each) for each in range(ENTRIES_MAX) if each != 1} | {(2, 0)}
    assert found.ends[1, 0] == 7


def test_a_full_copy_forgets_the_partition_that_came_first() -> None:
    copy = Copy(Ends(), SEED)
    for partition in range(ENTRIES_MAX + 2):
        copy.put((1, partition), partition)
    data = copy.encode()
    assert len(data) <= COPY_BYTES
    found = ends.decode(data, SEED)
    assert found is not None
    assert found.ends == {(1, partition): partition for partition in range(2, ENTRIES_MAX + 2)}
