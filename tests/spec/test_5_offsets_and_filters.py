"""Section 5: offsets, timestamps, and the filters that choose where a consumer begins."""

from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, filter_of
from amqp_streams.wire.offsets import OFFSET_MAX, offset_text
from tests.spec.reading import EARLIEST, bound, message, offsets

NAME = "amqp:event-streams-delivery-annotations-filter"


def timed(node: InMemoryNode, log: str = "single") -> list[int]:
    """Six events at 0, 0, 10, 20, 20, 30 ms; their times."""
    times: list[int] = []
    for step in (0, 0, 10, 20, 20, 30):
        node.clock.now_ms = 1_700_000_000_000 + step
        node.append(log, b"%d" % len(times))
        times.append(node.clock.now_ms)
    return times


# -- 5.1


def test_every_message_delivered_carries_offset_and_timestamp(node: InMemoryNode, client: EnginePair) -> None:
    """5.1: "these delivery annotations MUST be added by the event log node to all messages delivered to
    consumers": also to messages with annotations of their own, to large messages, to repeated deliveries, and
    on links of every kind.
    """
    noted = message("noted", key="k")
    noted.durable = True
    client.send(client.sender("single"), message("plain"), noted, proton.Message(body="x" * 100_000))
    links = [
        client.receiver("single", credit=10, filters=EARLIEST),
        client.receiver("single", credit=10, filters=EARLIEST, properties=bound(0)),
        client.receiver(
            "single", credit=10, filters=EARLIEST, settle=(proton.Link.SND_SETTLED, proton.Link.RCV_FIRST)
        ),
    ]
    for each in list(links[0].arrived):
        client.settle(each, proton.Delivery.RELEASED)
    node.run()
    assert [len(link.arrived) for link in links] == [6, 3, 3]
    for each in [each for link in links for each in link.arrived]:
        assert isinstance(each.annotations[names.OFFSET], proton.symbol)
        assert isinstance(each.annotations[names.TIMESTAMP], proton.timestamp)


def test_an_event_has_one_offset_on_every_link(node: InMemoryNode, client: EnginePair) -> None:
    """5.1.1: "The offset value represents a relative position of the event to the beginning of the log." It
    does not depend on the reader or the time.
    """
    node.append("single", b"a", b"b", b"c")
    first = client.receiver("single", credit=10, filters=EARLIEST)
    second = client.receiver("single", credit=10, filters=EARLIEST, properties=bound(0))
    assert offsets(first) == offsets(second)
    assert len(set(offsets(first))) == 3


@given(st.integers(0, OFFSET_MAX), st.integers(0, OFFSET_MAX))
def test_offsets_sort_as_the_log_does(first: int, second: int) -> None:
    """5.1.1: "the lexicographical order of the event-streams-offset of any event in the log MUST be greater
    than the lexicographical order of any other event preceding it in the order of the log."
    """
    assert (offset_text(first) < offset_text(second)) == (first < second)
    assert (offset_text(first).encode() < offset_text(second).encode()) == (first < second)


def test_offsets_rise_along_the_log(node: InMemoryNode, client: EnginePair) -> None:
    """5.1.1, the same sentence, over the wire and across the places where decimal numbers get longer."""
    for _ in range(12):
        node.append("single", *[b"x"] * 100)
    receiver = client.receiver("single", credit=2000, filters=EARLIEST)
    got = offsets(receiver)
    assert len(got) == 1200
    assert got == sorted(got)
    assert len(set(got)) == 1200


def test_offsets_are_learnt_from_runtime_information_or_from_deliveries(
    node: InMemoryNode, client: EnginePair
) -> None:
    """5.1.1: "Receivers learn about offset values either by obtaining the runtime information of a partition,
    which contains the offset of the most recently added event, or by retaining the value of the last
    event-streams-offset delivery annotation property".
    """
    node.append("single", b"a", b"b", b"c")
    (info,) = client.receiver("single/$info", credit=1).arrived
    latest = info.body["partitions"][0]["latest-offset"]
    assert latest == offsets(client.receiver("single", credit=10, filters=EARLIEST))[-1]


@pytest.mark.parametrize(("word", "expected"), [("@earliest", [b"a", b"b", b"new"]), ("@latest", [b"new"])])
def test_the_reserved_values_are_before_and_after_all_offsets(
    node: InMemoryNode, client: EnginePair, word: str, expected: list[bytes]
) -> None:
    """5.1.1: "For use with delivery filter expressions, the reserved values MAY be used as constants for
    comparand values" (editors' list: "@earliest" is smaller than all existing offsets, "@latest" greater than
    all).
    """
    node.append("single", b"a", b"b")
    receiver = client.receiver("single", credit=10, filters=filter_of(word))
    node.append("single", b"new")
    node.run()
    assert receiver.bodies == expected


def test_the_timestamp_is_when_the_log_took_the_event(node: InMemoryNode, client: EnginePair) -> None:
    """5.1.2: the timestamp "reflects the absolute UTC instant when the event has been added to the event log.
    This is different from the creation-time message property that is set by the sender."
    """
    node.clock.now_ms = 1_712_345_678_901
    client.send(client.sender("single"), proton.Message(body="x", creation_time=5.0))
    (arrived,) = client.receiver("single", credit=1, filters=EARLIEST).arrived
    assert arrived.annotations[names.TIMESTAMP] == 1_712_345_678_901
    assert arrived.message.creation_time == 5.0


def test_events_may_share_a_timestamp_and_order_is_the_offsets(
    node: InMemoryNode, client: EnginePair
) -> None:
    """5.1.2: "Multiple events added to the log around the same instant MAY have identical timestamps … MUST
    NOT be used to determine the order of events."
    """
    node.append("single", b"a", b"b", b"c")
    receiver = client.receiver("single", credit=10, filters=EARLIEST)
    assert len({each.annotations[names.TIMESTAMP] for each in receiver.arrived}) == 1
    assert receiver.bodies == [b"a", b"b", b"c"]


def test_timestamps_never_decrease_though_the_clock_does(node: InMemoryNode, client: EnginePair) -> None:
    """5.1.2: a log "MAY record event-streams-timestamp values that reflect the existing clock skew". In this
    node, timestamps never decrease within a partition, so that a start by time is exact.
    """
    for change in (0, 50, -500, 10):
        node.clock.now_ms += change
        client.send(client.sender("single"), message())
    receiver = client.receiver("single", credit=10, filters=EARLIEST)
    stamps = [each.annotations[names.TIMESTAMP] for each in receiver.arrived]
    assert stamps == sorted(stamps)


# -- 5.2


def test_a_delivery_filter_is_given_as_a_source_filter_and_answered(client: EnginePair) -> None:
    """5.2: "The delivery filter is provided as a source filter during link attach." The answer has the
    filters in force.
    """
    filters = client.receiver("single", filters=EARLIEST).link.remote_source.filter
    filters.rewind()
    filters.next()
    assert set(filters.get_object()) == {NAME}


def test_the_filter_is_evaluated_from_the_earliest_retained_event_to_the_latest(
    node: InMemoryNode, client: EnginePair
) -> None:
    """5.2: "The source filter MUST be evaluated against the retained events in the log from earliest to
    latest. Events matching the source expression are eligible for delivery." A filter without any condition
    matches everything retained.
    """
    node.append("single", b"a", b"b")
    empty = {NAME: proton.Described(proton.symbol(NAME), {})}
    receiver = client.receiver("single", credit=10, filters=empty)
    node.append("single", b"c")
    node.run()
    assert receiver.bodies == [b"a", b"b", b"c"]


def test_segments_that_are_no_longer_retained_are_not_examined(
    client: EnginePair, node: InMemoryNode
) -> None:
    """5.2: "against the retained events": a start before the earliest retained one begins there."""
    node.create("short", retention_ms=1000, segment_ms=1000)
    node.append("short", b"old")
    node.advance(20_000)
    node.append("short", b"kept")
    for start in (EARLIEST, filter_of("0000000000000000"), filter_of(None, 5)):
        assert client.receiver("short", credit=10, filters=start).bodies == [b"kept"]


def test_other_filters_may_be_used_where_they_are_supported(client: EnginePair) -> None:
    """5.2: "Delivery filters MAY be expressed using any AMQP filter expression that is supported by the
    source". One that is not is left out of the answer (AMQP 3.5.3), and does not open the past.
    """
    client.node.append("single", b"before")
    unknown = client.receiver(
        "single", credit=10, filters={"x": proton.Described(proton.symbol("vendor:some-filter"), "a > 1")}
    )
    assert unknown.refused is None
    assert unknown.link.remote_source.filter.next() is None
    assert unknown.arrived == []
    sql = client.receiver(
        "single", credit=10, filters={"sql": proton.Described(proton.symbol("amqp:sql-filter"), "a IS NULL")}
    )
    assert sql.link.remote_source.filter.next() is not None
    assert sql.bodies == [b"before"]


# -- 5.2.1


@pytest.mark.parametrize("code", [False, True])
def test_the_delivery_annotations_filter_is_known_by_symbol_and_by_code(
    node: InMemoryNode, client: EnginePair, code: bool
) -> None:
    """5.2.1: "The filter-type is "amqp:event-streams-delivery-annotations-filter", with type-code
    0x00000000:0x00000200".
    """
    node.append("single", b"a", b"b")
    assert client.receiver("single", credit=10, filters=filter_of("0000000000000000", code=code)).bodies == [
        b"b"
    ]


def test_an_offset_matches_what_is_greater(node: InMemoryNode, client: EnginePair) -> None:
    """5.2.1: "the filter matches messages added after that offset." """
    timed(node)
    for start in range(6):
        receiver = client.receiver("single", credit=10, filters=filter_of(f"{start:016d}"))
        assert receiver.bodies == [b"%d" % number for number in range(start + 1, 6)]


def test_a_timestamp_matches_what_is_greater(node: InMemoryNode, client: EnginePair) -> None:
    """5.2.1: "The property values match the given values in the filter expression, if the value of the
    property is greater than value given in the filter expression."
    """
    times = timed(node)
    for start in (times[0] - 1, *times, times[0] + 5):
        receiver = client.receiver("single", credit=10, filters=filter_of(None, start))
        assert receiver.bodies == [b"%d" % number for number, time in enumerate(times) if time > start]


def test_offset_and_timestamp_must_both_match(node: InMemoryNode, client: EnginePair) -> None:
    """5.2.1: "The filter evaluates to true if all annotations enclosed in the filter expression match"."""
    times = timed(node)
    for offset in range(6):
        for start in times:
            receiver = client.receiver("single", credit=10, filters=filter_of(f"{offset:016d}", start))
            assert receiver.bodies == [
                b"%d" % number for number, time in enumerate(times) if time > start and number > offset
            ]


@pytest.mark.parametrize(
    "conditions",
    [
        {proton.symbol("event-streams-source-partition"): proton.symbol("0")},
        {proton.symbol("x-other"): 1},
        {proton.symbol("event-streams-offset"): 7},
        {proton.symbol("event-streams-offset"): proton.symbol("no offset")},
        {proton.symbol("event-streams-timestamp"): "yesterday"},
        "no map",
    ],
)
def test_other_properties_are_not_eligible_and_refuse_the_link(client: EnginePair, conditions: Any) -> None:
    """5.2.1: "Only the event-streams-offset and/or event-streams-timestamp delivery annotation properties are
    eligible to be used with this filter." A filter that cannot be read is never ignored in silence.
    """
    receiver = client.receiver("single", filters={NAME: proton.Described(proton.symbol(NAME), conditions)})
    assert receiver.refused == names.INVALID_FIELD


# -- 5.2.2


@pytest.mark.parametrize("descriptor", [proton.symbol("amqp:event-streams-sql-filter"), proton.ulong(0x201)])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("d.event-streams-offset > '0000000000000001'", [b"c"]),
        ("d.event-streams-offset >= '0000000000000001'", [b"b", b"c"]),
        ("d.event-streams-timestamp > 1585672841", [b"a", b"b", b"c"]),
        ("delivery_annotations.event-streams-offset > '@earliest'", [b"a", b"b", b"c"]),
    ],
)
def test_the_sql_filter_is_known_by_symbol_and_by_code(
    node: InMemoryNode, client: EnginePair, descriptor: Any, text: str, wanted: list[bytes]
) -> None:
    """5.2.2: "with type-code 0x00000000:0x00000201"; the examples of the editors' text."""
    node.append("single", b"a", b"b", b"c")
    receiver = client.receiver("single", credit=10, filters={"sql": proton.Described(descriptor, text)})
    assert receiver.link.remote_source.filter.next() is not None
    assert receiver.bodies == wanted


def test_the_sql_filter_takes_its_own_grammar_only(node: InMemoryNode, client: EnginePair) -> None:
    """5.2.2: "The grammar builds on the grammar defined for those SQL filters, but is constrained": other
    sections are not in it.
    """
    node.append("single", b"before")
    given = {"sql": proton.Described(proton.symbol("amqp:event-streams-sql-filter"), "a.kind LIKE 'x%'")}
    receiver = client.receiver("single", credit=10, filters=given)
    assert receiver.refused == names.INVALID_FIELD
