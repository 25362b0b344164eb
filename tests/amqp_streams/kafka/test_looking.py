"""Looks at Kafka end when the store is closed."""

import threading
from collections.abc import Iterable, Mapping
from typing import cast

from amqp_streams.kafka.brokers.administration import Administration, Extent, FoundTopic
from amqp_streams.kafka.brokers.fetching import Place
from amqp_streams.kafka.looking import Looker
from amqp_streams.testing import ManualLoop
from tests.amqp_streams.kafka.test_catalog import Node


class Slow:
    """Kafka without topics, which answers when the test says so."""

    def __init__(self) -> None:
        self.asked, self.answer = threading.Event(), threading.Event()

    def names(self) -> set[str]:
        self.asked.set()
        self.answer.wait()
        return set()

    def describe(self, _names: Iterable[str]) -> Mapping[str, FoundTopic]:
        return {}

    def extents(self, _places: Iterable[Place]) -> Mapping[Place, Extent]:
        return {}


def test_a_look_that_is_answered_while_the_store_is_closed_ends() -> None:
    kafka, loop = Slow(), ManualLoop()
    looker = Looker(
        cast("Administration", kafka), Node().catalog, loop_call=loop.call, on_look=lambda _look: None
    )
    looker.start()
    kafka.asked.wait()
    closing = threading.Thread(target=looker.close, daemon=True)
    closing.start()
    looker._handled.wait()  # from here on, only the thread of the looks has something to do
    kafka.answer.set()
    closing.join(30)
    assert not closing.is_alive()
