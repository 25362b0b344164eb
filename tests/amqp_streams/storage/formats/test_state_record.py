"""The file of states as bytes: complete records are read, with any damage around them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.formats import state_record
from amqp_streams.storage.ports import STATE_KEY_BYTES_MAX, STATE_KEYS_MAX, STATE_VALUE_BYTES_MAX

ID = 0x1122334455667788
SEED = state_record.seed_of(ID)
HEAD = state_record.encode_head(ID)

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
changes = st.dictionaries(keys, st.none() | st.binary(max_size=60), max_size=5)


def applied(writes: list[dict[str, bytes | None]]) -> dict[str, bytes]:
    values: dict[str, bytes] = {}
    for write in writes:
        for key, value in write.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
    return values


def file_of(writes: list[dict[str, bytes | None]]) -> tuple[bytes, list[int]]:
    """The file, and where each record begins and the last one ends."""
    data, places = HEAD, [len(HEAD)]
    for write in writes:
        data += state_record.encode(write, synced=len(data), seed=SEED)
        places.append(len(data))
    return data, places


@given(st.lists(changes, max_size=8))
def test_written_states_are_read_back(writes: list[dict[str, bytes | None]]) -> None:
    data, _ = file_of(writes)
    read = state_record.read(data, ID)
    assert (read.values, read.holes, read.end, read.directory_id) == (applied(writes), [], len(data), ID)


@given(st.dictionaries(keys, st.binary(max_size=9000), max_size=12))
def test_a_rewritten_file_has_all_values_and_nothing_else(values: dict[str, bytes]) -> None:
    read = state_record.read(state_record.encode_file(values, ID), ID)
    assert (read.values, read.holes, read.end) == (values, [], read.size)


@given(st.lists(changes, min_size=1, max_size=4))
def test_wherever_a_file_ends_the_whole_records_before_count_and_nothing_of_the_torn_one(
    writes: list[dict[str, bytes | None]],
) -> None:
    data, places = file_of(writes)
    for cut in range(len(HEAD), len(data) + 1):
        whole = sum(place <= cut for place in places) - 1
        read = state_record.read(data[:cut], ID)
        assert (read.values, read.holes, read.end) == (applied(writes[:whole]), [], places[whole])


@given(st.lists(changes, min_size=1, max_size=5), st.data())
def test_a_damaged_place_costs_the_records_it_touches_and_no_others(
    writes: list[dict[str, bytes | None]], data: st.DataObject
) -> None:
    whole, places = file_of(writes)
    first = data.draw(st.integers(len(HEAD), len(whole) - 1))
    after = data.draw(st.integers(first + 1, len(whole)))
    damaged = whole[:first] + bytes(byte ^ 0x55 for byte in whole[first:after]) + whole[after:]
    read = state_record.read(damaged, ID)
    touched = [place for place in range(len(writes)) if places[place] < after and places[place + 1] > first]
    kept = [write for place, write in enumerate(writes) if place not in touched]
    assert read.values == applied(kept)
    if touched[-1] == len(writes) - 1:
        assert (read.holes, read.end) == ([], places[touched[0]])
    else:
        assert read.holes == [state_record.Hole(places[touched[0]], places[touched[-1] + 1], torn=False)]


def test_a_hole_without_synced_records_after_it_is_not_damage() -> None:
    lost, kept, later = ({key: b"x" * 40} for key in "abc")
    first, second = (
        state_record.encode(lost, synced=16, seed=SEED),
        state_record.encode(kept, synced=16, seed=SEED),
    )
    data = HEAD + bytes(len(first)) + second
    (hole,) = state_record.read(data, ID).holes
    assert (hole.position, hole.after, hole.torn) == (16, 16 + len(first), True)
    for synced, torn in ((16, True), (17, False)):
        (hole,) = state_record.read(data + state_record.encode(later, synced=synced, seed=SEED), ID).holes
        assert hole.torn is torn


def test_a_damaged_head_does_not_hide_the_records_after_it() -> None:
    data, _ = file_of([{"a": b"1"}, {"b": b"2"}])
    for place in range(len(HEAD)):
        read = state_record.read(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], ID)
        assert read.head_damaged
        assert read.values == {"a": b"1", "b": b"2"}


def test_a_value_that_looks_like_records_is_not_read_as_records() -> None:
    """Only the store knows the id with which its CRCs begin, and a record inside a complete record is never
    read.
    """
    inner = state_record.encode({"epoch": b"0"}, synced=0, seed=state_record.seed_of(ID + 1))
    data, _ = file_of([{"a": inner}])
    torn = bytearray(data)
    torn[18] ^= 1
    assert state_record.read(bytes(torn), ID).values == {}
    own, _ = file_of([{"a": state_record.encode({"epoch": b"0"}, synced=0, seed=SEED)}])
    assert state_record.read(own, ID).values.keys() == {"a"}


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_read_as_nothing(data: bytes) -> None:
    assert state_record.read(data, ID).values == {}


def test_another_directorys_file_says_so_and_gives_nothing() -> None:
    data, _ = file_of([{"a": b"1"}])
    read = state_record.read(data, ID + 1)
    assert (read.directory_id, read.values) == (ID, {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"": b""}, r"a key must have 1 to 2048 bytes \(got 0\)"),
        ({"ä" * (STATE_KEY_BYTES_MAX // 2) + "x": b""}, r"a key must have 1 to 2048 bytes \(got 2049\)"),
        ({"k": bytes(STATE_VALUE_BYTES_MAX + 1)}, r"the value of 'k' must .* \(got 1048577\)"),
    ],
)
def test_values_beyond_bounds_are_refused_with_a_message(
    changes: dict[str, bytes | None], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        state_record.checked(changes, {})


def test_keys_are_counted_and_existing_or_removed_ones_are_not_counted_again() -> None:
    full = dict.fromkeys([f"{number}" for number in range(STATE_KEYS_MAX)], b"")
    with pytest.raises(ValueError, match=f"at most {STATE_KEYS_MAX} keys"):
        state_record.checked({"one more": b""}, full)
    assert state_record.checked({"0": b"new", "1": None, "not there": None}, full)
    largest = {"ä" * (STATE_KEY_BYTES_MAX // 2): bytes(STATE_VALUE_BYTES_MAX)}
    assert state_record.checked(largest, {}) is largest
