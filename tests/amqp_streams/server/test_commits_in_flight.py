"""A commit outlives the read that started it. Objects that have ended when the commit ends are not touched.

The risk is C memory: the pointer of a delivery is invalid after its link, its session or its connection has
ended. A fault here is not an exception but a crash of the process, so the rounds also run in a separate
process.
"""

from random import Random
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from amqp_streams.errors import StorageError
from amqp_streams.server.links import turns
from amqp_streams.testing import MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, Sent, filter_of
from tests.amqp_streams.server.rounds import run_rounds_with_freed_memory_overwritten

EVENT = b"\x00\x53\x75\xa0\x05event"
GARBAGE = b"garbage"


def producing() -> tuple[MemoryStore, InMemoryNode, EnginePair, list[Sent]]:
    """Return events of two links in a commit that is in flight."""
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 2}, store=store)
    pair = EnginePair(node)
    sent = pair.send(pair.sender("temps"), EVENT, GARBAGE, EVENT) + pair.send(pair.sender("temps"), EVENT)
    assert store.in_flight
    return store, node, pair, sent


def finish(store: MemoryStore, node: InMemoryNode) -> None:
    while store.in_flight:
        store.complete()
        node.run()


def events(node: InMemoryNode) -> int:
    return sum(partition.end for partition in node.store.logs["temps"].partitions)


def test_a_connection_that_is_lost_leaves_its_commit_alone_and_its_events_in_the_log() -> None:
    """The events were sent, so they may be stored, but their producer has no confirmation."""
    store, node, pair, sent = producing()
    node.disconnect(pair)
    finish(store, node)
    assert events(node) == 3
    assert [each.outcome for each in sent] == [None, "rejected", None, None]


def test_a_link_that_detaches_leaves_its_commit_alone_and_its_neighbour_is_answered() -> None:
    store, node, _pair, sent = producing()
    sent[0].delivery.link.close()
    node.run()
    finish(store, node)
    assert events(node) == 3
    assert sent[3].outcome == "accepted"


def test_a_session_that_ends_leaves_its_commit_alone() -> None:
    store, node, pair, _ = producing()
    pair.session.close()
    node.run()
    finish(store, node)
    assert events(node) == 3
    assert not pair.lost


def test_a_connection_that_closes_leaves_its_commit_alone() -> None:
    store, node, pair, _ = producing()
    pair.connection.close()
    node.run()
    assert pair.lost
    finish(store, node)
    assert events(node) == 3


def test_a_log_that_is_deleted_under_a_commit_answers_with_a_failure() -> None:
    store, node, _pair, sent = producing()
    node.delete("temps")
    node.run()
    with capture_logs() as lines:
        finish(store, node)
    assert not [line for line in lines if line["event"] == "commit_failed"], "the disk did not fail"
    assert [each.outcome for each in sent] == ["modified", "rejected", "modified", "modified"]


def test_a_commit_that_fails_for_an_ended_connection_does_no_harm() -> None:
    store, node, pair, _ = producing()
    for partition in node.store.logs["temps"].partitions:
        store.fail(partition, StorageError("broken"))
    node.disconnect(pair)
    finish(store, node)
    assert events(node) == 0


def test_ended_consumers_are_not_woken() -> None:
    store, node, _pair, _ = producing()
    reader = EnginePair(node)
    reader.receiver("temps", credit=10, filters=filter_of("@earliest"))
    node.disconnect(reader)
    finish(store, node)
    assert events(node) == 3


def one_round(random: Random) -> None:
    """Links, sessions and connections end while commits are in flight or half answered, in any order, and the
    outcome of each event is true.
    """
    with patch.object(turns, "BUDGET_S", random.choice([turns.BUDGET_S, 1e-9])):
        _one_round(random)


def _one_round(random: Random) -> None:
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 3}, store=store)
    pairs = [EnginePair(node) for _ in range(random.randint(1, 4))]
    senders = [(pair, pair.sender("temps")) for pair in pairs for _ in range(random.randint(1, 3))]
    for pair in pairs:
        pair.receiver("temps", credit=random.choice([0, 3, 1000]), filters=filter_of("@earliest"))
    told: list[tuple[str, int, Sent]] = []
    for _ in range(random.randint(5, 25)):
        pair, sender = random.choice(senders)
        match random.randrange(9):
            case 0 if not pair.lost:
                node.disconnect(pair)
            case 1 if not pair.lost:
                sender.link.close()
            case 2 if not pair.lost:
                pair.session.close()
            case 3 if not pair.lost:
                pair.connection.close()
            case 4 if store.in_flight:
                store.complete()
            case 5:
                store.fail(
                    random.choice(node.store.logs["temps"].partitions), StorageError("broken"), stop=False
                )
            case _ if (
                not pair.lost and sender.link.state & sender.link.LOCAL_ACTIVE and sender.link.credit > 0
            ):
                for _ in range(random.randint(1, 20)):
                    number = len(told)
                    message = random.choice([event(number), event(number), GARBAGE])
                    settled = random.random() < 0.2
                    told.append(
                        (
                            sender.link.name + pair.channel.peer,
                            -1 if message is GARBAGE else number,
                            sender.send(message, settled=settled),
                        )
                    )
        random.choice([node.turn, node.run, node.run])()
        if random.random() < 0.3:
            node.advance(600)
    finish(store, node)
    for pair in pairs:
        node.disconnect(pair)
    node.advance(1000)
    check(node, told)


def event(number: int) -> bytes:
    return b"\x00\x53\x77\x71" + number.to_bytes(4)


def check(node: InMemoryNode, told: list[tuple[str, int, Sent]]) -> None:
    """Check that accepted events are stored once, that rejected and modified events are not stored, and that
    the events of a link are in each partition in the order of sending.
    """
    lying: list[list[int]] = []
    for partition in node.store.logs["temps"].partitions:
        numbers: list[int] = []
        while chunk := partition.read(len(numbers), 1 << 20):
            numbers += [int.from_bytes(message[-4:]) for message in chunk.messages]
        lying.append(numbers)
    everything = [number for numbers in lying for number in numbers]
    assert len(everything) == len(set(everything)), "twice in the log"
    for _, number, sent in told:
        if sent.outcome == "accepted":
            assert number in everything, "accepted and not there"
        elif sent.outcome is not None:
            assert number not in everything, "refused and there"
    link_of = {number: link for link, number, _ in told}
    for numbers in lying:
        for link in set(link_of.values()):
            mine = [number for number in numbers if link_of[number] == link]
            assert mine == sorted(mine), "out of order"


@pytest.mark.parametrize("seed", range(30))
def test_the_node_survives_the_end_of_any_peer_with_commits_in_flight(seed: int) -> None:
    one_round(Random(seed))


def test_a_process_full_of_dying_connections_ends_as_it_should() -> None:
    run_rounds_with_freed_memory_overwritten(__name__, 80)
