"""Message-formats in every store."""

from array import array

import pytest

from amqp_streams.storage.ports import Partition
from tests.amqp_streams.storage.conftest import NOW, Hand
from tests.amqp_streams.storage.test_message_formats import AZURE, formats_of, put


@pytest.mark.parametrize("bytes_max", [1, 25, 1 << 20])
def test_each_record_has_the_format_that_it_came_with(
    hand: Hand, partition: Partition, bytes_max: int
) -> None:
    hand.store.allow_formats()
    put(hand, partition, 0, 0)
    put(hand, partition, 0, AZURE, 0, 1)
    put(hand, partition, 0)
    assert formats_of(partition, bytes_max) == [0, 0, 0, AZURE, 0, 1, 0]


def test_appends_of_one_commit_keep_their_formats_apart(hand: Hand, partition: Partition) -> None:
    hand.store.allow_formats()
    partition.append([b"a"], bytes(1), NOW)
    partition.append([b"b", b"c"], bytes(2), NOW + 1, formats=array("I", [7, 0]))
    partition.append([b"d"], bytes(1), NOW + 2)
    hand.commit()
    partition.append([b"e"], bytes(1), NOW + 3)
    hand.commit()
    assert formats_of(partition) == [0, 7, 0, 0, 0]
