"""Batches are had for the asking, within bounds, by links that only read."""

from collections.abc import Mapping

import pytest

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.streams.batching import BYTES_MAX, BYTES_MIN, EVENTS_MAX, Batching, requested_batching
from amqp_streams.wire.batched.compression import codec
from amqp_streams.wire.types import Symbol, UInt, ULong, Value

ASKED = frozenset({"queue", names.CAPABILITY_BATCHED_DELIVERIES})


def test_a_client_that_does_not_ask_gets_ordinary_deliveries() -> None:
    assert (
        requested_batching(frozenset({"queue"}), {names.BATCH_EVENTS: UInt(5), names.CONSUMER_GROUP: "g"})
        is None
    )


@pytest.mark.parametrize(
    ("properties", "batching"),
    [
        ({}, Batching()),
        ({names.BATCH_EVENTS: UInt(5), names.BATCH_BYTES: ULong(10_000)}, Batching(5, 10_000)),
        ({names.BATCH_EVENTS: 1 << 40, names.BATCH_BYTES: 1 << 40}, Batching(EVENTS_MAX, BYTES_MAX)),
        ({names.BATCH_BYTES: UInt(1)}, Batching(bytes=BYTES_MIN)),
        ({names.BATCH_COMPRESSION: Symbol("lz4")}, Batching(codec=codec("lz4"))),
        ({names.BATCH_COMPRESSION: "gzip"}, Batching()),
        ({names.BATCH_COMPRESSION: [1]}, Batching()),
    ],
)
def test_requested_values_are_kept_within_bounds(properties: Mapping[str, Value], batching: Batching) -> None:
    assert requested_batching(ASKED, properties) == batching


@pytest.mark.parametrize(
    "properties", [{names.BATCH_EVENTS: UInt(0)}, {names.BATCH_BYTES: "many"}, {names.BATCH_EVENTS: True}]
)
def test_a_text_that_is_not_a_number_is_refused(properties: Mapping[str, Value]) -> None:
    with pytest.raises(PeerError, match=next(iter(properties))) as caught:
        requested_batching(ASKED, properties)
    assert caught.value.condition == names.INVALID_FIELD


@pytest.mark.parametrize(
    ("properties", "durable"),
    [({names.CONSUMER_GROUP: "g"}, False), ({names.EPOCH: ULong(1)}, False), ({Symbol("any"): None}, True)],
)
def test_whose_events_are_settled_one_by_one_gets_no_batches(
    properties: Mapping[str, Value], durable: bool
) -> None:
    with pytest.raises(PeerError, match="group") as caught:
        requested_batching(ASKED, properties, durable=durable)
    assert caught.value.condition == names.NOT_IMPLEMENTED
