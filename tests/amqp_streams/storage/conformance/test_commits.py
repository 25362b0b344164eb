"""Commits of every store."""

from amqp_streams.config import LogSettings
from amqp_streams.storage.ports import Partition
from tests.amqp_streams.storage.conftest import NOW, Hand, four_partitions, read_all


def test_a_commit_reports_how_much_it_contained(hand: Hand, partition: Partition) -> None:
    partition.append([b"ab", b"c"], b"\0\0", NOW)
    sequence = partition.queue.sequence
    done = hand.commit()
    assert done is not None
    assert (done.sequence, done.events, done.bytes, dict(done.failures)) == (sequence, 2, 3, {})
    assert partition.queue.sequence == sequence + 1


def test_committing_nothing_does_nothing(hand: Hand, partition: Partition) -> None:
    hand.store.commit()
    hand.loop.run_ready()
    assert (hand.done, partition.queue.sequence) == ([], 0)


def test_commits_are_numbered_within_their_queue(hand: Hand) -> None:
    first, second = hand.store.create("two", LogSettings(partitions=2), incarnation="i").partitions
    for partitions in ([first], [first, second], [second], [first]):
        expected = {partition.queue: partition.queue.sequence for partition in partitions}
        count = len(hand.done)
        for partition in partitions:
            partition.append([b"abc"], b"\0", NOW)
            assert partition.queue.pending_bytes
        hand.commit()
        assert {done.queue: done.sequence for done in hand.done[count:]} == expected
        assert not any(partition.queue.pending_bytes for partition in partitions)


def test_many_partitions_share_the_commits_of_their_queue(hand: Hand) -> None:
    partitions = hand.store.create("many", LogSettings(partitions=20), incarnation="i").partitions
    for round_ in range(30):
        for partition in partitions:
            partition.append([b"%d/%d" % (partition.index, round_) * 20], b"\0", NOW)
        hand.commit()
    # One for all partitions of a queue, not one for each partition.
    assert len(hand.done) == 30 * len({partition.queue for partition in partitions})
    for partition in partitions:
        assert read_all(partition) == [b"%d/%d" % (partition.index, round_) * 20 for round_ in range(30)]


def test_nothing_more_is_reported_after_close(hand: Hand, partition: Partition) -> None:
    partition.append([b"a"], b"\0", NOW)
    hand.store.close()
    count = len(hand.done)
    hand.loop.run_ready()
    assert len(hand.done) == count
    hand.store.close()


def test_the_pending_bytes_of_a_store_are_those_of_its_queues(hand: Hand) -> None:
    """The node pauses producers by this one number."""
    partitions = hand.store.create("three", LogSettings(partitions=3), incarnation="i").partitions
    for partition, size in zip(partitions, (10, 200, 3000), strict=True):
        partition.append([b"x" * size], b"\0", NOW)
    queues = {partition.queue for partition in partitions}
    assert hand.store.pending_bytes == sum(queue.pending_bytes for queue in queues) == 3210
    hand.commit()
    assert hand.store.pending_bytes == 0


def test_a_queue_that_is_alone_has_one_partition(hand: Hand) -> None:
    first, second, *_ = four_partitions(hand)
    assert first.queue.alone == second.queue.alone == (first.queue is not second.queue)
