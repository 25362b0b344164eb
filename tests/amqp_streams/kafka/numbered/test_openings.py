"""An attach that waits for its producer hears of it once, unless it has left."""

from functools import partial

from amqp_streams.errors import StorageError
from amqp_streams.kafka.numbered.openings import Opening
from amqp_streams.kafka.numbered.records import ProducerKey
from amqp_streams.storage.ports import ReadRequest


def test_an_opening_that_was_cancelled_calls_nothing() -> None:
    ready, cancelled = list[str](), list[Opening]()
    first, second = (
        Opening(ProducerKey("i", "p"), 0, ReadRequest(name, partial(ready.append, name)), cancelled.append)
        for name in ("first", "second")
    )
    second.cancel()
    for each in first, second:
        each.end(StorageError("reasons"))
        assert each.ended
    assert ready == ["first"]
    # After its answer, an attach has nothing to take back.
    first.cancel()
    assert cancelled == [second]
