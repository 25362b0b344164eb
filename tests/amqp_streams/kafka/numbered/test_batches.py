"""A batch knows the highest number of each partition."""

from amqp_streams.kafka.numbered.batches import Batch, Share


def test_a_batch_counts_its_events_and_knows_the_highest_numbers() -> None:
    batch = Batch(3)
    batch.add(Share(0, [b"a", b"b"], [None, None]), 4, 2)
    batch.add(Share(2, [b"c"], [b"k"]), 9, 1)
    batch.add(Share(0, [b"d"], [None]), 11, 1)
    assert (batch.events, batch.bytes, batch.highest) == (4, 4, {0: 11, 2: 9})
    assert [share.partition for share in batch.shares] == [0, 2, 0]
