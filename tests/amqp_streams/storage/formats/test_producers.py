"""Batches and indexes have the producers that were stored, wherever a run is divided."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.formats import producers, record
from amqp_streams.storage.ports import PRODUCER_ID_BYTES_MAX, Chunk, Mark, Numbers, Reached

IDS = st.sampled_from(["a", "b", "é", "x" * PRODUCER_ID_BYTES_MAX])
SEQUENCES = st.integers(0, (1 << 64) - 1)


@st.composite
def runs(draw: st.DrawFn) -> Chunk:
    """Appends of several producers, and of some that do not number their events, in one chunk."""
    marks: list[Mark] = []
    base = end = draw(st.integers(0, 1000))
    last = 0
    for producer in draw(st.lists(st.one_of(st.none(), IDS), min_size=1, max_size=6)):
        count = draw(st.integers(1, 4))
        if producer is not None:
            gone = [one for one in draw(st.lists(IDS, max_size=2, unique=True)) if one != producer]
            marks += producers.marks_of(end, Numbers(producer, array("Q", range(last, last + count)), gone))
            last += count
        end += count
    messages = [bytes([65 + place % 26]) * draw(st.sampled_from([1, 300_000])) for place in range(end - base)]
    return Chunk(base, array("q", [7]) * len(messages), bytes(len(messages)), messages, marks)


def naive(marks: list[Mark], end: int) -> dict[str, int]:
    """Return the progress of producers after the records below `end` were stored."""
    reached: dict[str, int] = {}
    for mark in marks:
        for place, sequence in enumerate(mark.sequences or [-1]):
            if mark.base + place < end:
                reached.pop(mark.producer, None)
                if sequence >= 0:
                    reached[mark.producer] = sequence
    return reached


@given(runs())
def test_each_piece_of_a_run_says_exactly_what_is_in_it(chunk: Chunk) -> None:
    """A crash between two pieces leaves the first one, which is valid without the second."""
    table: producers.Table = {}
    for piece in record.batches(chunk, sum(map(len, chunk.messages))):
        data = b"".join(record.encode(piece, 1))
        head = record.head_at(data, 0)
        assert head is not None
        assert record.is_whole(data, 0, head, 1)
        producers.apply(table, record.entries_at(data, 0, head), 5)
        expected = naive(list(chunk.marks), piece.base + len(piece))
        assert {producer: reached.sequence for producer, reached in table.items()} == expected


@given(runs())
def test_a_numbered_batch_gives_back_its_records(chunk: Chunk) -> None:
    small = Chunk(
        chunk.base,
        chunk.timestamps,
        chunk.header_sizes,
        [message[:9] for message in chunk.messages],
        chunk.marks,
    )
    data = b"".join(record.encode(small, 1))
    head = record.head_at(data, 0)
    assert head is not None
    batch = record.decode(data, 0, head, 1)
    assert batch is not None
    assert batch.all().messages == list(small.messages)
    assert record.entries_at(data, 0, head) == producers.entries_of(small.marks)


@given(st.dictionaries(IDS, st.one_of(st.none(), SEQUENCES)))
def test_entries_come_back_in_their_order(entries: dict[str, int | None]) -> None:
    assert list(producers.decode_entries(producers.encode_entries(entries)).items()) == list(entries.items())


@given(st.dictionaries(IDS, st.builds(Reached, SEQUENCES, st.integers(0, 1 << 50))))
def test_a_table_comes_back_in_its_order(table: producers.Table) -> None:
    assert list(producers.decode_table(producers.encode_table(table)).items()) == list(table.items())


@given(runs())
def test_records_written_once_more_say_the_same(chunk: Chunk) -> None:
    entries = producers.entries_of(chunk.marks)
    assert producers.entries_of(producers.marks_again(chunk.base, entries)) == entries


@given(runs())
def test_room_is_reckoned_generously(chunk: Chunk) -> None:
    numbers = [Numbers(mark.producer, mark.sequences) for mark in chunk.marks if mark.sequences is not None]
    numbers += [
        Numbers("a", array("Q", [1]), [mark.producer]) for mark in chunk.marks if mark.sequences is None
    ]
    assert len(producers.encode_entries(producers.entries_of(chunk.marks))) <= sum(
        map(producers.bytes_needed, numbers)
    )


def test_a_producer_that_was_forgotten_may_begin_again() -> None:
    table = {"a": Reached(500, 1), "b": Reached(7, 2)}
    producers.apply(table, {"a": None}, 3)
    producers.apply(table, {"a": 0}, 4)
    assert list(table.items()) == [("b", Reached(7, 2)), ("a", Reached(0, 4))]


def victims(limit: int, *, busy: str = "", expired_before_ms: int = 0, coming: int = 1) -> list[str] | None:
    table = {"a": Reached(1, 10), "b": Reached(2, 20), "c": Reached(3, 30)}
    gone = producers.victims(
        table,
        idle=lambda producer: producer not in busy,
        coming=coming,
        limit=limit,
        expired_before_ms=expired_before_ms,
    )
    return None if gone is None else list(gone)


def test_no_producer_is_forgotten_while_space_is_available() -> None:
    assert victims(4) == []


def test_the_producer_idle_for_longest_makes_room() -> None:
    assert victims(3) == ["a"]
    assert victims(3, busy="a") == ["b"]
    assert victims(3, coming=2) == ["a", "b"]


def test_no_room_is_left_while_all_are_in_use() -> None:
    assert victims(3, busy="abc") is None
    assert victims(2, busy="bc") is None


def test_producers_that_have_been_away_for_too_long_are_forgotten() -> None:
    assert victims(100, expired_before_ms=25) == ["a", "b"]
    assert victims(100, expired_before_ms=25, busy="a") == ["b"]


def test_only_some_of_them_are_forgotten_at_a_time() -> None:
    table = {str(number): Reached(number, 1) for number in range(1000)}
    gone = producers.victims(table, idle=lambda _: True, coming=1, limit=10_000, expired_before_ms=2)
    assert gone is not None
    assert 0 < len(gone) < 100
