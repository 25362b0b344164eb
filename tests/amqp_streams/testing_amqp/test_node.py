"""The test doubles keep the contract of what they replace."""

import pytest

from amqp_streams.config import Limits
from amqp_streams.server.listening.channel import DRAINED_WHEN_ABOVE
from amqp_streams.testing import MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ManualLoop, MemoryChannel, filter_of


def test_calls_are_made_in_their_order_and_those_they_bring_in_the_next_round() -> None:
    loop, made = ManualLoop(), list[str]()

    def first() -> None:
        made.append("first")
        loop.call_soon(made.append, "third")

    loop.call_soon(first)
    loop.call_soon_threadsafe(made.append, "second")
    assert loop.run_ready()
    assert made == ["first", "second"]
    assert loop.run_ready()
    assert not loop.run_ready()
    assert made == ["first", "second", "third"]


def test_timers_go_off_in_the_order_of_their_times_unless_cancelled() -> None:
    node, made = InMemoryNode(), list[int]()
    node.service.stop()
    start = node.clock()
    for delay in (300, 100, 200):
        node.loop.call_later(delay / 1000, lambda: made.append(node.clock() - start))
    node.loop.call_later(0.15, made.append, -1).cancel()
    node.advance(250)
    assert made == [100, 200]
    node.advance(100)
    assert made == [100, 200, 300]
    assert node.clock() - start == 350


def test_a_timer_that_sets_itself_again_fires_as_often_as_time_allows() -> None:
    node, made = InMemoryNode(), list[int]()
    node.service.stop()

    def again() -> None:
        made.append(node.clock())
        node.loop.call_later(0.1, again)

    again()
    node.advance(1000)
    assert len(made) == 11


def test_a_node_that_goes_in_circles_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqp_streams.testing_amqp.node.TURNS_MAX", 10)
    node = InMemoryNode()

    def again() -> None:
        node.loop.call_soon(again)

    again()
    with pytest.raises(AssertionError, match="circles"):
        node.run()


def test_nothing_is_written_to_a_channel_that_is_closing() -> None:
    channel = MemoryChannel("peer")
    channel.write(b"a")
    channel.close()
    channel.write(b"b")
    assert channel.pending() == 1
    channel.abort()
    assert channel.pending() == 0


def test_a_peer_that_is_stuck_and_one_that_is_not_read_wait() -> None:
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node)
    pair.channel.pause_reading()
    sender = pair.sender("temps")
    assert sender.link.state & sender.link.REMOTE_UNINIT
    pair.channel.resume_reading()
    pair.channel.stuck = True
    node.run()
    assert pair.channel.pending() > 0
    pair.channel.stuck = False
    node.run()
    assert sender.link.credit == Limits().credit


def test_drained_is_called_as_the_channel_promises() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(connection_pending_bytes=64 << 10))
    node.append("temps", *[b"x" * 255] * 2000)
    pair = EnginePair(node)
    receiver = pair.receiver("temps", filters=filter_of("@earliest"), credit=2000)
    assert DRAINED_WHEN_ABOVE < 2000 * 255
    assert len(receiver.arrived) == 2000


def test_events_put_there_by_the_test_need_a_store_that_completes_by_itself() -> None:
    node = InMemoryNode({"temps": 1}, store=MemoryStore(auto=False))
    with pytest.raises(AssertionError, match="over a link"):
        node.append("temps", b"a")
