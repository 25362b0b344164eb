"""What librdkafka says when a leader lacks records; tests/acceptance/test_kafka_truncation.py has brokers."""

from typing import cast

import pytest
from confluent_kafka import KafkaError

from amqp_streams.kafka.brokers.comparing import first_lost


class Error:
    """An error with a text of librdkafka 2.16."""

    def __init__(self, text: str) -> None:
        self._text = text

    def str(self) -> str:
        return self._text


TRUNCATED = (
    "Partition log truncation detected at offset 20 (leader epoch 3): broker end offset is 10"
    " (offset leader epoch 2). Reset to INVALID.: Local: Partition log truncation detected (broker 2)"
)
NO_EPOCH = (
    "No epoch found less or equal to offset 20 (leader epoch 3): broker end offset is -1"
    " (offset leader epoch -1). Reset using configured policy."
)
REMOVED = "fetch failed due to requested offset not available on the broker: Broker: Offset out of range"


@pytest.mark.parametrize(("text", "first"), [(TRUNCATED, 10), (NO_EPOCH, 0), (REMOVED, None)])
def test_the_first_lost_record_is_where_the_epoch_of_the_broker_ends(text: str, first: int | None) -> None:
    assert first_lost(cast("KafkaError", Error(text))) == first
