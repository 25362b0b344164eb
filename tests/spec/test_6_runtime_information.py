"""Section 6: the answers of `<address>/$info`."""

import proton
import pytest

from amqp_streams import names
from amqp_streams.server.links.control import INFO_INTERVAL_MS
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer
from amqp_streams.wire.codec import decode
from amqp_streams.wire.types import Described, ULong


def test_each_log_has_an_information_address(node: InMemoryNode, client: EnginePair) -> None:
    """6: "Each event log node MUST implement a special, subordinate source address named $info … If the
    container-relative source address of an event log node is "example", the information source address MUST
    be "example/$info"."
    """
    node.create("example")
    for log in ("example", "temps", "single"):
        assert len(client.receiver(f"{log}/$info", credit=1).arrived) == 1
    assert client.receiver("nowhere/$info").refused == names.NOT_FOUND
    assert client.receiver("$info").refused == names.NOT_FOUND


def test_one_credit_brings_one_message(client: EnginePair) -> None:
    """6: "the producer or consumer opens a receive link and flows at least one unit of link credit. The
    information source responds with transferring a message".
    """
    receiver = client.receiver("temps/$info")
    assert receiver.arrived == []
    for count in (1, 2, 3):
        client.flow(receiver, 1)
        client.node.advance(INFO_INTERVAL_MS)
        assert len(receiver.arrived) == count


def test_several_credits_are_answered_with_a_pause_between(client: EnginePair) -> None:
    """6: "If multiple link credits are granted, the information source MAY choose to put reasonable,
    application-defined temporal separation between transfers."
    """
    receiver = client.receiver("temps/$info", credit=3)
    assert len(receiver.arrived) == 1
    client.node.advance(2 * INFO_INTERVAL_MS)
    assert len(receiver.arrived) == 3


def test_the_body_is_an_amqp_value_section_with_a_map(node: InMemoryNode) -> None:
    """6: "a message that contains the desired information in its amqp-value section. The amqp-value section
    of the message contains an AMQP map at the top level."
    """
    peer = ScriptedPeer(node)
    peer.open()
    peer.attach(0, source="temps/$info")
    peer.flow(0, 1)
    (transfer,) = peer.take("transfer")
    section, end = decode(transfer.payload)
    assert isinstance(section, Described)
    assert section.descriptor == ULong(0x77)
    assert isinstance(section.value, dict)
    assert end == len(transfer.payload)


def test_the_partitions_entry_lists_every_partition(client: EnginePair) -> None:
    """6: "The partitions entry's value is a list, with one entry for each partition." """
    (answer,) = client.receiver("temps/$info", credit=1).arrived
    assert isinstance(answer.body["partitions"], list)
    assert [entry["partition"] for entry in answer.body["partitions"]] == ["0", "1", "2", "3"]


def test_an_unpartitioned_log_lists_its_main_partition(client: EnginePair) -> None:
    """6: "The list MUST carry an entry for the "main partition" if the log is unpartitioned." """
    (answer,) = client.receiver("single/$info", credit=1).arrived
    assert [entry["partition"] for entry in answer.body["partitions"]] == ["0"]


@pytest.mark.parametrize("events", [0, 1, 5])
def test_each_entry_has_the_reserved_keys(node: InMemoryNode, client: EnginePair, events: int) -> None:
    """6: "The entries in the partitions list are map objects and MUST contain the following reserved entries
    for each partition": partition (symbol), earliest-offset and latest-offset (symbol, "MAY be null").
    """
    if events:
        node.append("single", *[b"x"] * events)
    (answer,) = client.receiver("single/$info", credit=1).arrived
    (entry,) = answer.body["partitions"]
    assert {"partition", "earliest-offset", "latest-offset"} <= set(entry)
    assert isinstance(entry["partition"], proton.symbol)
    expected = (None, None) if not events else ("0000000000000000", f"{events - 1:016d}")
    assert (entry["earliest-offset"], entry["latest-offset"]) == expected
    assert all(
        offset is None or isinstance(offset, proton.symbol)
        for offset in (entry["earliest-offset"], entry["latest-offset"])
    )


def test_the_earliest_offset_is_the_earliest_retained(client: EnginePair, node: InMemoryNode) -> None:
    """6: "earliest-offset: The earliest retained offset in the partition." """
    node.create("short", retention_ms=1000, segment_ms=1000)
    node.append("short", b"a", b"b")
    node.advance(20_000)
    node.append("short", b"c")
    (answer,) = client.receiver("short/$info", credit=1).arrived
    (entry,) = answer.body["partitions"]
    assert (entry["earliest-offset"], entry["latest-offset"]) == ("0000000000000002", "0000000000000002")


def test_other_entries_are_extensions(client: EnginePair) -> None:
    """6: "all other entries MAY be used for application specific extensions." """
    (answer,) = client.receiver("single/$info", credit=1).arrived
    assert set(answer.body) == {"partitions", "log", "incarnation", "retention-ms", "retention-bytes", "sync"}
    assert set(answer.body["partitions"][0]) == {
        *("partition", "earliest-offset", "latest-offset"),
        *("event-count", "bytes", "first-timestamp", "last-timestamp", "state"),
    }
