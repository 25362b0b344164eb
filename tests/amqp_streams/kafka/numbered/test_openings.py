"""An attach that waits for its producer hears of it once, unless it has left."""

from amqp_streams.errors import StorageError
from amqp_streams.kafka.numbered.openings import Opening
from amqp_streams.kafka.numbered.records import ProducerKey
from amqp_streams.storage.ports import ReadRequest


def test_an_opening_that_was_cancelled_calls_nothing() -> None:
    ready: list[str] = []
    first, second = (
        Opening(ProducerKey("i", "p"), 0, ReadRequest(name, lambda name=name: ready.append(name)))  # type: ignore[misc]  # a default of a lambda
        for name in ("first", "second")
    )
    second.cancel()
    for each in first, second:
        each.end(StorageError("reasons"))
        assert each.ended
    assert ready == ["first"]
