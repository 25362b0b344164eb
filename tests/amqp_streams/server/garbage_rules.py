"""Python's search for garbage: what a node leaves for it, and what it examines.

`test_garbage.py` runs these tests in a process of their own.
"""

import asyncio
import gc
import sys
from collections.abc import Iterator
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


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[ManualLoop]:
    """The loop of a rule that is in force."""
    monkeypatch.setattr(garbage, "GROWTH", 1.05)
    monkeypatch.setattr(garbage, "GROWTH_BLOCKS_MIN", 0)
    loop = ManualLoop()
    rule, before = Garbage(cast("asyncio.AbstractEventLoop", loop)), gc.get_threshold()
    rule.start()
    try:
        yield loop
    finally:
        rule.stop()
    assert gc.get_threshold() == before
    assert rule._searched not in gc.callbacks


@pytest.fixture
def searches() -> Iterator[list[int]]:
    """The generations that were searched."""
    generations: list[int] = []

    def searched(phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            generations.append(facts["generation"])

    gc.callbacks.append(searched)
    yield generations
    gc.callbacks.remove(searched)


def test_what_survives_is_examined_again_only_by_the_full_search(loop: ManualLoop) -> None:
    kept = [Circle()]
    gc.collect(1)
    frozen = gc.get_freeze_count()
    kept.clear()
    gc.collect(1)
    assert gc.get_freeze_count() >= frozen - 1
    for _ in range(599):
        loop.fire()
    assert _circles() == 1
    gc.freeze()
    loop.fire()
    assert loop.now_s == garbage.FULL_S
    assert _circles() == 0


def test_garbage_that_survived_is_found_before_it_takes_as_much_memory_as_the_rest(loop: ManualLoop) -> None:
    """Clients may make another package leave circles as fast as they can."""
    most = 0
    for _ in range(20):
        kept = [Circle() for _ in range(gc.get_freeze_count() // 100)]
        gc.collect(1)
        kept.clear()
        loop.fire()
        most = max(most, _circles())
        gc.freeze()
    assert most < sys.getallocatedblocks() * 0.07


def test_a_node_that_grows_examines_all_only_now_and_then(loop: ManualLoop, searches: list[int]) -> None:
    kept, before = list[Circle](), sys.getallocatedblocks()
    while sys.getallocatedblocks() < 1.3 * before:
        kept += [Circle() for _ in range(before // 200)]
        gc.collect(1)
        loop.fire()
    assert 3 <= searches.count(2) <= 6


def test_objects_that_end_are_not_growth(loop: ManualLoop, searches: list[int]) -> None:
    for _ in range(30):
        kept = [[None] for _ in range(gc.get_freeze_count() // 100)]
        gc.collect(1)
        loop.fire()
        del kept
    assert searches.count(2) <= 1


def test_the_growth_is_looked_at_without_reading_all_objects(
    monkeypatch: pytest.MonkeyPatch, loop: ManualLoop
) -> None:
    """Reading them takes 5 to 30 ms for 300,000 objects, and clients cause it by connecting."""

    def read() -> int:
        raise AssertionError

    monkeypatch.setattr(gc, "get_freeze_count", read)
    kept = [Circle() for _ in range(200_000)]
    gc.collect(1)
    loop.fire()
    assert kept


def test_a_small_growth_waits_for_the_regular_examination(
    monkeypatch: pytest.MonkeyPatch, loop: ManualLoop, searches: list[int]
) -> None:
    """Some thousand clients without a login make as many objects as a node has at its start."""
    monkeypatch.setattr(garbage, "GROWTH_BLOCKS_MIN", 500_000)
    few = [Circle() for _ in range(50_000)]
    gc.collect(1)
    loop.fire()
    assert searches.count(2) == 0
    many = [Circle() for _ in range(300_000)]
    gc.collect(1)
    loop.fire()
    assert searches.count(2) == 1
    assert few
    assert many


def test_python_finds_the_garbage_after_the_last_node_has_stopped_and_not_before() -> None:
    """Whoever runs nodes in a program of its own keeps no garbage of theirs, whichever stops first."""
    before = gc.get_threshold()
    first, last = (Garbage(cast("asyncio.AbstractEventLoop", ManualLoop())) for _ in range(2))
    first.start()
    last.start()
    kept = [Circle()]
    gc.collect(1)
    kept.clear()
    first.stop()
    assert gc.get_threshold() != before
    assert gc.get_freeze_count() > 0
    last.stop()
    assert gc.get_threshold() == before
    gc.collect()
    assert _circles() == 0
