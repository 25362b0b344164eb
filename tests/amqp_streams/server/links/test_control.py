"""The links without events: information at a limited rate, and requests with their answers."""

from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.server.links.control import INFO_INTERVAL_MS, REQUEST_BYTES_MAX, REQUESTS_MAX
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, Receiving, Sending
from amqp_streams.testing_amqp.engine import Sent
from tests.amqp_streams.decoded import mapping


def request(
    operation: str, name: str = "", body: Any = None, *, reply_to: str | None = "answers", **fields: Any
) -> bytes:
    properties = {"operation": operation, "type": "event-log", "name": name}
    message = proton.Message(
        body=body, id=fields.pop("id", 1), reply_to=reply_to, properties=properties, **fields
    )
    return bytes(message.encode())


def managing(
    node: InMemoryNode, *, container: str = "client", credit: int = 100
) -> tuple[EnginePair, Sending, Receiving]:
    """A requester, with a receiver whose target is `answers`."""
    pair = EnginePair(node, container=container)
    receiver = pair.receiver("$management", prepare=_called_answers, credit=credit)
    return pair, pair.sender("$management"), receiver


def _called_answers(link: Any) -> None:
    link.target.address = "answers"


def statuses(receiver: Receiving) -> list[int]:
    return [mapping(each.message.properties)["status-code"] for each in receiver.take()]


# -- information


def test_information_is_one_message_a_credit_at_a_pace() -> None:
    """Section 6: reasonable separation between transfers; a greedy client is not a load."""
    node = InMemoryNode({"temps": 2})
    pair = EnginePair(node)
    receiver = pair.receiver("temps/$info", credit=3)
    assert len(receiver.arrived) == 1
    node.advance(INFO_INTERVAL_MS)
    assert len(receiver.arrived) == 2
    node.advance(10 * INFO_INTERVAL_MS)
    assert len(receiver.arrived) == 3
    assert all(each.settled for each in receiver.arrived)


def test_information_carries_every_entry() -> None:
    node = InMemoryNode()
    node.create("temps", partitions=2, retention_ms=60_000)
    node.append("temps", b"a", b"b", partition=1)
    pair = EnginePair(node)
    body = mapping(pair.receiver("temps/$info", credit=1).arrived[0].message.body)
    assert [dict(entry) for entry in body["partitions"]] == [
        {
            "partition": "0",
            "earliest-offset": None,
            "latest-offset": None,
            "event-count": 0,
            "bytes": 0,
            "first-timestamp": None,
            "last-timestamp": None,
            "state": "running",
        },
        {
            "partition": "1",
            "earliest-offset": "0000000000000000",
            "latest-offset": "0000000000000001",
            "event-count": 2,
            "bytes": 12,
            "first-timestamp": node.clock(),
            "last-timestamp": node.clock(),
            "state": "running",
        },
    ]
    assert (body["log"], body["retention-ms"], body["retention-bytes"], body["sync"]) == (
        "temps",
        60_000,
        None,
        "always",
    )
    assert body["incarnation"]


def test_a_drained_information_link_gives_its_credit_back() -> None:
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node)
    receiver = pair.receiver("temps/$info")
    receiver.link.drain(10)
    node.advance(100)
    assert len(receiver.arrived) >= 1
    assert receiver.link.credit == 0


def test_an_ended_information_link_sends_nothing_more() -> None:
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node)
    first, second = pair.receiver("temps/$info", credit=5), pair.receiver("temps/$info", credit=5)
    first.link.close()
    node.run()
    node.disconnect(pair)
    node.advance(1000)
    assert len(first.arrived) == len(second.arrived) == 1


# -- requests


def test_a_log_lives_by_request_from_creation_to_deletion() -> None:
    node = InMemoryNode()
    pair, sender, receiver = managing(node)
    pair.send(sender, request("CREATE", "new", {"partitions": 3}))
    pair.send(
        sender,
        request("CREATE", "new"),
        request("READ", "new"),
        request("QUERY"),
        request("UPDATE", "new", {"retention-ms": 5000}),
    )
    pair.send(
        sender,
        request("DELETE", "new"),
        request("READ", "new"),
        request("DANCE", "new"),
        request("CREATE", "a/b"),
    )
    assert statuses(receiver) == [201, 409, 200, 200, 200, 204, 404, 501, 400]


def test_an_answer_names_its_request() -> None:
    pair, sender, receiver = managing(InMemoryNode({"temps": 2}))
    pair.send(
        sender, request("READ", "temps", id="r-1"), request("READ", "temps", id="r-2", correlation_id="c-2")
    )
    first, second = receiver.take()
    assert (first.message.correlation_id, second.message.correlation_id) == ("r-1", "c-2")
    properties, body = mapping(first.message.properties), mapping(first.message.body)
    assert (properties["statusCode"], properties["statusDescription"]) == (200, "OK")
    assert (body["name"], body["partitions"][1]["partition"]) == ("temps", "1")


def test_answers_travel_to_an_address_that_the_node_made_up() -> None:
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node)

    def dynamic(link: Any) -> None:
        link.source.dynamic = True

    receiver = pair.receiver(None, prepare=dynamic, credit=10)
    address = receiver.link.remote_source.address
    assert address is not None
    assert address.startswith("$reply.")
    assert receiver.link.remote_source.dynamic
    pair.send(pair.sender("$management"), request("READ", "temps", reply_to=address))
    assert statuses(receiver) == [200]


def test_a_request_without_a_reply_to_is_answered_on_the_only_receiver() -> None:
    """Some clients do not send one."""
    pair, sender, receiver = managing(InMemoryNode({"temps": 1}))
    pair.send(sender, request("READ", "temps", reply_to=None))
    assert statuses(receiver) == [200]


def test_each_connection_gets_its_own_answers_whatever_its_addresses_are_called() -> None:
    """Two clients of one program choose the same name."""
    node = InMemoryNode({"temps": 1})
    first, first_sender, first_receiver = managing(node, container="one")
    second, second_sender, second_receiver = managing(node, container="one")
    first.send(first_sender, request("READ", "temps", id="first"))
    second.send(second_sender, request("READ", "temps", id="second"))
    assert [each.message.correlation_id for each in first_receiver.take()] == ["first"]
    assert [each.message.correlation_id for each in second_receiver.take()] == ["second"]
    second_receiver.link.close()
    node.run()
    first.send(first_sender, request("READ", "temps", id="third"))
    assert [each.message.correlation_id for each in first_receiver.take()] == ["third"]


@pytest.mark.parametrize(
    ("message", "condition"),
    [
        (request("READ", "temps", reply_to="nowhere"), names.PRECONDITION_FAILED),
        (b"garbage", names.DECODE_ERROR),
    ],
)
def test_a_request_that_cannot_be_answered_is_rejected(message: bytes, condition: str) -> None:
    node = InMemoryNode({"temps": 1})
    pair, sender, receiver = managing(node)
    (sent,) = pair.send(sender, message)
    assert (sent.outcome, sent.condition) == ("rejected", condition)
    assert receiver.arrived == []


def test_a_request_before_any_receiver_is_rejected_and_does_nothing() -> None:
    node = InMemoryNode()
    pair = EnginePair(node)
    (sent,) = pair.send(pair.sender("$management"), request("CREATE", "new", reply_to=None))
    assert (sent.outcome, sent.condition) == ("rejected", names.PRECONDITION_FAILED)
    assert not node.store.logs


def test_no_request_is_performed_before_its_answer_has_credit() -> None:
    node = InMemoryNode({"temps": 1})
    pair, sender, receiver = managing(node, credit=0)
    sent = pair.send(sender, *[request("CREATE", f"new-{index}", id=index) for index in range(3)])
    assert set(node.store.logs) == {"temps"}
    pair.flow(receiver, 2)
    assert set(node.store.logs) == {"temps", "new-0", "new-1"}
    assert [each.message.correlation_id for each in receiver.arrived] == [0, 1]
    pair.flow(receiver, 2)
    assert [each.outcome for each in sent] == ["accepted"] * 3
    assert [each.message.correlation_id for each in receiver.arrived] == [0, 1, 2]


def test_a_link_has_credit_for_so_many_requests_as_may_wait() -> None:
    pair, sender, receiver = managing(InMemoryNode({"temps": 1}), credit=0)
    while sender.link.credit > 0:
        pair.send(sender, request("READ", "temps"))
    pair.flow(receiver, 1)
    assert sender.link.credit <= 1
    pair.flow(receiver, 1000)
    assert len(receiver.arrived) == REQUESTS_MAX
    assert sender.link.credit > REQUESTS_MAX // 2


def test_requests_that_wait_are_bounded_in_bytes() -> None:
    node = InMemoryNode({"temps": 1})
    pair, sender, receiver = managing(node, credit=0)
    sent = [
        each
        for index in range(6)
        for each in pair.send(sender, request("READ", "temps", "x" * 900_000, id=index))
    ]
    assert [each.outcome for each in sent if each.outcome] == ["rejected"] * 4
    assert sent[-1].condition == names.RESOURCE_LIMIT_EXCEEDED
    pair.flow(receiver, 10)
    assert len(receiver.arrived) == 2
    assert node.service.turns.uses()["request_bytes"].used == 0


def test_requests_of_an_ended_connection_are_forgotten() -> None:
    node = InMemoryNode({"temps": 1})
    pair, sender, _ = managing(node, credit=0)
    pair.send(sender, request("READ", "temps"))
    assert node.service.turns.uses()["request_bytes"].used > 0
    node.disconnect(pair)
    node.run()
    assert node.service.turns.uses()["request_bytes"].used == 0


def test_a_request_whose_receiver_went_looks_for_it_again() -> None:
    node = InMemoryNode({"temps": 1})
    pair, sender, receiver = managing(node, credit=0)
    (sent,) = pair.send(sender, request("READ", "temps"))
    pair.detach(receiver)
    node.run()
    assert (sent.outcome, sent.condition) == ("rejected", names.PRECONDITION_FAILED)


def test_an_answer_that_cannot_be_encoded_is_a_status_of_its_own_and_costs_no_connection() -> None:
    node = InMemoryNode({"temps": 1})
    node.store.create(
        "poison", LogSettings.model_construct(partitions=1, retention_ms=1 << 63), incarnation="i"
    )
    pair, sender, receiver = managing(node)
    pair.send(sender, request("READ", "poison"), request("READ", "temps"))
    assert statuses(receiver) == [500, 200]
    info = pair.receiver("poison/$info", credit=1)
    assert info.refused == names.INTERNAL_ERROR
    pair.send(sender, request("READ", "temps"))
    assert statuses(receiver) == [200]


def test_a_drained_answer_link_gives_its_credit_back() -> None:
    pair, _, receiver = managing(InMemoryNode(), credit=0)
    receiver.link.drain(5)
    pair.node.run()
    assert receiver.link.credit == 0


def test_a_request_that_is_too_large_closes_the_link_at_the_announced_size() -> None:
    pair, sender, _ = managing(InMemoryNode())
    assert sender.link.remote_max_message_size == REQUEST_BYTES_MAX
    pair.send(sender, request("CREATE", "new", "x" * REQUEST_BYTES_MAX))
    assert sender.refused == names.LINK_MESSAGE_SIZE_EXCEEDED


def test_a_requester_always_has_credit() -> None:
    pair, sender, receiver = managing(InMemoryNode({"temps": 1}), credit=10_000)
    sent: list[Sent] = []
    for _ in range(30):
        sent += pair.send(sender, *[request("READ", "temps")] * 20)
    assert {each.outcome for each in sent} == {"accepted"}
    assert len(receiver.arrived) == 600


def test_deleting_a_log_closes_its_links_and_no_others() -> None:
    node = InMemoryNode({"temps": 2, "other": 1})
    pair = EnginePair(node)
    gone: list[Sending | Receiving] = [
        pair.sender("temps"),
        pair.sender("temps", properties={names.PARTITION: proton.symbol("1")}),
        pair.receiver("temps", credit=5),
        pair.receiver("temps/$info"),
    ]
    producer = pair.sender("other")
    stay: list[Sending | Receiving] = [producer, pair.receiver("other", credit=5), pair.sender(None)]
    manager, sender, receiver = managing(node)
    manager.send(sender, request("DELETE", "temps"))
    assert statuses(receiver) == [204]
    assert [link.refused for link in gone] == [names.RESOURCE_DELETED] * len(gone)
    assert [link.refused for link in stay] == [None] * len(stay)
    assert pair.receiver("temps").refused == names.NOT_FOUND
    (sent,) = pair.send(producer, b"\x00\x53\x75\xa0\x01x")
    assert sent.outcome == "accepted"


def test_a_recreated_log_begins_at_the_first_offset() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", b"old")
    manager, sender, _ = managing(node)
    manager.send(sender, request("DELETE", "temps"), request("CREATE", "temps"))
    receiver = manager.receiver("temps", credit=10, filters=None)
    node.append("temps", b"new")
    node.run()
    assert receiver.bodies == [b"new"]


def test_a_deletion_is_answered_when_it_is_on_the_disk_and_other_links_do_not_wait() -> None:
    node = InMemoryNode({"temps": 1})
    node.store.states.held = True
    pair, sender, receiver = managing(node)
    pair.send(sender, request("DELETE", "temps"))
    pair.send(sender, request("READ", "temps"))
    other, other_sender, other_receiver = managing(node)
    other.send(other_sender, request("READ", "temps"))
    assert (statuses(receiver), statuses(other_receiver)) == ([], [200])
    node.store.states.complete()
    node.run()
    assert statuses(receiver) == [204, 404], "requests of one link are answered in their order"


def test_a_connection_may_end_while_its_deletion_waits_for_the_disk() -> None:
    node = InMemoryNode({"temps": 1})
    node.store.states.held = True
    pair, sender, _ = managing(node)
    pair.send(sender, request("DELETE", "temps"))
    node.disconnect(pair)
    node.store.states.complete()
    node.run()
    assert "temps" in node.store.logs, "the request had not begun to delete"
