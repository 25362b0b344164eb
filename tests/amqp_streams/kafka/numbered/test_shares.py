"""How users share places and rooms."""

import random

from amqp_streams.kafka.numbered.records import ProducerKey
from amqp_streams.kafka.numbered.shares import Remembered, user_of, users_of
from amqp_streams.kafka.sharing.followed import KEY_OVERHEAD
from amqp_streams.streams.numbering import stored_id


def key(user: str | None, name: str) -> ProducerKey:
    return ProducerKey("i", stored_id(user, name))


def test_a_producer_is_that_of_its_user() -> None:
    assert user_of(key("mallory", "p")) == "mallory"
    assert user_of(key(None, "p")) == user_of(key(None, "a\x1fb")) == ""
    # Only a hash is stored.
    assert user_of(key("mallory", "p" * 256)) == user_of(key("nina", "p" * 256)) not in {"", "mallory"}
    assert users_of([key("m", "1"), key("m", "2"), key(None, "1")]) == {"m": 2, "": 1}


def test_the_user_with_most_records_is_first_then_the_one_that_was_idle_longest() -> None:
    known = Remembered(count_max=10, bytes_max=1 << 20)
    for user, state in (("n", "n1"), ("m", "m1"), ("m", "m2"), ("o", "o1"), ("m", "m1")):
        known.note(user, state, 10)
    assert list(known.candidates("p")) == ["m2", "m1", "n1", "o1"]
    # One that will have as much as the first gives way itself, and gets nothing of those that have less.
    assert list(known.candidates("n")) == ["n1", "m2", "m1"]
    assert list(known.candidates("m")) == ["m2", "m1"]


def test_a_user_with_few_large_records_has_most() -> None:
    known = Remembered(count_max=1000, bytes_max=10_000)
    known.note("m", "large", 5000)
    for number in range(5):
        known.note("n", f"n{number}", 10)
    assert next(known.candidates("o")) == "large"


def test_removed_records_count_no_more() -> None:
    """Compared with a table, for records that come and go at random."""
    randomly, known = random.Random(5), Remembered(count_max=50, bytes_max=1 << 20)
    table: dict[tuple[str, str], int] = {}
    for _ in range(3000):
        user, state = randomly.choice("mno"), f"{randomly.randrange(9)}"
        size = randomly.choice([None, 1, 20, 300])
        known.note(user, state, size)
        table.pop((user, state), None)
        if size is not None:
            table[user, state] = size
        for each in "mno":
            sizes = [size + KEY_OVERHEAD for (owner, _), size in table.items() if owner == each]
            assert known.bytes_of(each) == sum(sizes)
    for user, state in table:
        known.note(user, state, None)
    assert list(known.candidates("m")) == []
