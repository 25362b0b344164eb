"""Append times of every store, and the search for them."""

import random

from amqp_streams.storage.ports import Partition
from tests.amqp_streams.storage.conftest import NOW, Hand, entries, read_all, stamps


def test_timestamps_never_decrease_though_the_clock_does(hand: Hand, partition: Partition) -> None:
    clock = [NOW, NOW - 5000, NOW + 7, NOW + 6]
    for now_ms in clock:
        hand.write(partition, b"a", now_ms=now_ms)
    assert stamps(partition) == (clock if partition.times_may_fall else [NOW, NOW, NOW + 7, NOW + 7])


def test_a_clock_that_jumps_by_months_within_a_commit_stops_nothing(hand: Hand, partition: Partition) -> None:
    """A batch spans less than 50 days: commits continue after any jump of the clock."""
    days = 24 * 3600 * 1000
    for day in (0, 60, -400, 120):
        partition.append([b"%d" % day], b"\0", NOW + day * days)
    done = hand.commit()
    assert done is not None
    assert not done.failures
    hand.write(partition, b"later")
    assert read_all(partition) == [b"0", b"60", b"-400", b"120", b"later"]
    assert partition.seek_timestamp(NOW) == entries(partition)[1][0]


def test_seeking_a_timestamp_gives_the_first_record_after_it(hand: Hand, partition: Partition) -> None:
    rng = random.Random(5)
    now_ms = highest_ms = NOW
    for _ in range(120):
        now_ms += rng.choice([0, 0, 0, 1, 3, -2])
        highest_ms = max(highest_ms, now_ms)
        count = rng.randint(1, 4)
        partition.append([b"x" * rng.randint(0, 200)] * count, bytes(count), now_ms)
        if rng.random() < 0.4:
            hand.commit()
    hand.commit()
    written = list(zip([number for number, _ in entries(partition)], stamps(partition), strict=True))
    assert max(stamp for _, stamp in written) == highest_ms
    for after_ms in range(NOW - 9, highest_ms + 3):
        naive = next((number for number, stamp in written if stamp > after_ms), partition.end)
        assert partition.seek_timestamp(after_ms) == naive
