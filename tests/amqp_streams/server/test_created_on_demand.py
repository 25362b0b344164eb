"""Messages to logs that are created on demand: only their connection waits for the disk."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.server.links import turns
from amqp_streams.testing import FaultyFiles
from amqp_streams.testing_amqp import EnginePair, filter_of
from amqp_streams.wire.codec import encode
from amqp_streams.wire.types import Described, ULong
from tests.amqp_streams.server.sent_batches import ACCEPTED, MODIFIED, azure, body, producing, send, states
from tests.amqp_streams.server.test_changes_in_flight import Manager, PausedNode


def to(log: str, value: Any) -> proton.Message:
    return proton.Message(body=value, address=log)


def batch_to(log: str, *texts: str) -> bytes:
    return encode(Described(ULong(0x73), [None, None, log])) + azure(*map(body, texts))


def bodies(node: PausedNode, log: str) -> list[Any]:
    """What a log has stored, in order."""
    node.resume()
    return EnginePair(node).receiver(log, filters=filter_of("@earliest"), credit=100).bodies


def test_messages_wait_for_the_creation_of_their_log_and_delay_nobody_else() -> None:
    node = PausedNode(auto_create_partitions=1)
    pair, others = EnginePair(node), EnginePair(node)
    sender, other = pair.sender(None), others.sender("other")
    sent = pair.send(sender, to("other", 1), to("new", 2), to("other", 3))
    assert [each.outcome for each in sent] == ["accepted", None, None]
    assert "new" not in node.store.logs
    for number in range(10, 13):
        (elsewhere,) = others.send(other, proton.Message(body=number))
        assert elsewhere.outcome == "accepted"
    node.resume()
    assert [each.outcome for each in sent] == ["accepted"] * 3
    assert bodies(node, "new") == [2]
    assert bodies(node, "other") == [1, 10, 11, 12, 3]


def test_messages_of_one_sender_to_many_new_logs_keep_their_order() -> None:
    node = PausedNode(auto_create_partitions=1)
    pair = EnginePair(node)
    sender = pair.sender(None)
    names_of_logs = ["a", "b", "other", "a", "c", "b", "other"]
    sent = pair.send(sender, *(to(name, number) for number, name in enumerate(names_of_logs)))
    late = pair.send(sender, to("other", "late"))
    assert {each.outcome for each in (*sent, *late)} == {None}
    node.resume()
    assert {each.outcome for each in (*sent, *late)} == {"accepted"}
    assert bodies(node, "a") == [0, 3]
    assert bodies(node, "b") == [1, 5]
    assert bodies(node, "other") == [2, 6, "late"]


def test_senders_of_one_connection_that_wait_for_one_log_all_go_on() -> None:
    node = PausedNode(auto_create_partitions=1)
    pairs = [EnginePair(node) for _ in range(3)]
    senders = [(pair, pair.sender(None)) for pair in pairs for _ in range(2)]
    sent = [pair.send(sender, to("new", number))[0] for number, (pair, sender) in enumerate(senders)]
    assert {each.outcome for each in sent} == {None}
    node.resume()
    assert {each.outcome for each in sent} == {"accepted"}
    assert sorted(bodies(node, "new")) == list(range(6))


def test_a_message_to_a_log_that_a_request_creates_waits_for_it() -> None:
    node = PausedNode(auto_create_partitions=1)
    manager, pair = Manager(node), EnginePair(node)
    sender = pair.sender(None)
    manager.ask("CREATE", "new", partitions=3)
    sent = pair.send(sender, to("new", 1))
    assert [each.outcome for each in sent] == [None]
    node.resume()
    assert (manager.statuses(), [each.outcome for each in sent]) == ([201], ["accepted"])
    assert len(node.store.logs["new"].partitions) == 3


def test_a_log_that_cannot_be_created_costs_only_the_messages_that_name_it() -> None:
    node = PausedNode(auto_create_partitions=2, limits=Limits(partitions=3))
    pair = EnginePair(node)
    sender = pair.sender(None)
    sent = pair.send(sender, to("other", 1), to("new", 2), to("new", 3), to("other", 4))
    node.resume()
    assert [each.outcome for each in sent] == ["accepted", "rejected", "rejected", "accepted"]
    assert sent[1].condition == names.RESOURCE_LIMIT_EXCEEDED
    assert bodies(node, "other") == [1, 4]


def test_a_disk_that_fails_while_a_log_is_created_lets_the_client_send_again() -> None:
    files = FaultyFiles()
    node = PausedNode(files, auto_create_partitions=1)
    pair = EnginePair(node)
    sender = pair.sender(None)
    sent = pair.send(sender, to("new", 1), to("other", 2))
    files.fault = lambda operation, path: 5 if operation == "rename" and "trash" in path.parts else 0
    node.resume()
    files.fault = lambda operation, path: 0
    assert [each.outcome for each in sent] == ["modified", "accepted"]
    (again,) = pair.send(sender, to("new", 1))
    assert again.outcome == "accepted"


Leave = Callable[[PausedNode, EnginePair, Any], None]


def detach(_node: PausedNode, pair: EnginePair, sender: Any) -> None:
    pair.detach(sender)


def disconnect(node: PausedNode, pair: EnginePair, _sender: Any) -> None:
    node.disconnect(pair)
    node.run()


def test_a_sender_that_leaves_while_it_waits_loses_only_what_was_not_accepted() -> None:
    node = PausedNode(auto_create_partitions=1)
    first, pair = EnginePair(node), EnginePair(node)
    waiting, sender = first.sender(None), pair.sender(None)
    first.send(waiting, to("new", 1))
    pair.send(sender, to("new", 2))
    disconnect(node, pair, sender)
    node.resume()
    assert bodies(node, "new") == [1]


def test_a_connection_whose_sender_was_closed_while_it_waited_goes_on() -> None:
    node = PausedNode(auto_create_partitions=1)
    pair = EnginePair(node)
    sender = pair.sender(None)
    pair.send(sender, to("new", 1))
    sender.link.close()
    node.run()
    node.resume()
    other = pair.sender("other")
    (sent,) = pair.send(other, proton.Message(body=2))
    assert sent.outcome == "accepted"


def test_a_batch_waits_for_the_creation_of_its_log() -> None:
    node = PausedNode(auto_create_partitions=1)
    others = EnginePair(node)
    peer, other = producing(node, None, batched=False), others.sender("other")
    send(peer, 0, batch_to("new", "a", "b", "c"))
    assert peer.take("disposition") == []
    (elsewhere,) = others.send(other, proton.Message(body=1))
    assert elsewhere.outcome == "accepted"
    node.resume()
    assert states(peer) == {0: ACCEPTED}
    assert bodies(node, "new") == ["a", "b", "c"]


def test_a_batch_whose_log_cannot_be_created_is_refused() -> None:
    files = FaultyFiles()
    node = PausedNode(files, auto_create_partitions=1)
    peer = producing(node, None, batched=False)
    send(peer, 0, batch_to("new", "a", "b", "c"))
    files.fault = lambda operation, path: 5 if operation == "rename" and "trash" in path.parts else 0
    assert peer.take("disposition") == []
    node.resume()
    assert states(peer) == {0: MODIFIED}


def test_attaches_that_wait_for_one_creation_continue_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns.Iteration, "ends_s", lambda _: 0.0)  # one call takes all the time
    node = PausedNode(auto_create_partitions=1)
    pair = EnginePair(node)
    waiting = [pair.session.sender(f"waiting-{number}") for number in range(20)]
    for link in waiting:
        link.target.address = "made"
        link.open()
    node.run()
    node.held.keeper.at_once = True
    node.held.keeper.run()
    answered = [0]
    while node.turn():
        answered.append(sum(bool(link.state & proton.Endpoint.REMOTE_ACTIVE) for link in waiting))
    assert answered[-1] == 20
    assert max(after - before for before, after in pairwise(answered)) == 1
