"""Python's search for garbage: what a node leaves for it, and what it examines."""

import asyncio
import gc
from typing import cast

import pytest

from amqp_streams.server import garbage
from amqp_streams.server.garbage import Garbage
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, filter_of
from amqp_streams.testing_amqp.node import ManualLoop
from amqp_streams.wire.layout import DATA_BINARY8

EVENT = DATA_BINARY8 + b"\x01x"


def _use(node: InMemoryNode, *, detach: bool) -> None:
    """A connection with links of all kinds, and its end."""
    pair = EnginePair(node, container="c")
    sender = pair.sender("temps")
    readers = [
        pair.receiver("temps", filters=filter_of("@earliest"), credit=10),
        pair.receiver("temps", name="kept", durable=True, credit=5),
        pair.receiver("temps", group="g", partition=0, credit=3),
        pair.receiver("temps/$info", credit=1),
    ]
    pair.send(sender, EVENT, EVENT)
    if detach:
        pair.detach(sender)
        for reader in readers:
            pair.detach(reader)
    node.disconnect(pair)
    node.run()
    node._wires.clear()


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("detach", [False, True])
def test_a_connection_that_has_ended_leaves_nothing_for_the_search(detach: bool) -> None:
    """What has survived two searches is examined seldom: its memory must not wait for that."""
    node = InMemoryNode({"temps": 4})
    _use(node, detach=detach)
    gc.collect()  # what the first connection made for all
    gc.freeze()
    for _ in range(3):
        _use(node, detach=detach)
    assert gc.collect() == 0


class Circle:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def _circles() -> int:
    gc.unfreeze()
    return sum(isinstance(each, Circle) for each in gc.get_objects())


def test_what_survives_is_examined_again_only_by_the_full_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "FULL_S", 600.0)
    loop = ManualLoop()
    rule, before = Garbage(cast("asyncio.AbstractEventLoop", loop)), gc.get_threshold()
    rule.start()
    try:
        kept = [Circle()]
        gc.collect(1)
        frozen = gc.get_freeze_count()
        kept.clear()
        gc.collect(1)
        assert gc.get_freeze_count() >= frozen - 1
        assert _circles() == 1
        gc.freeze()
        assert loop.next_timer_s() == 600.0
        loop.fire()
        assert _circles() == 0
        assert loop.next_timer_s() == 1200.0
    finally:
        rule.stop()
    assert gc.get_threshold() == before
    assert rule._searched not in gc.callbacks
