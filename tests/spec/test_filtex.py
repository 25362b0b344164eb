"""AMQP Filter Expressions 1.0 at a link: negotiation, refusals, and the isolation of other links.

The meaning of texts and values is tested in `tests/amqp_streams/filters`. docs/spec-coverage.md has the whole
list.
"""

import logging
from collections.abc import Mapping
from typing import Any

import proton
import pytest
import structlog

from amqp_streams import names
from amqp_streams.filters import kinds
from amqp_streams.testing_amqp import EnginePair, InMemoryNode
from amqp_streams.wire.offsets import offset_text
from tests.amqp_streams.decoded import condition
from tests.spec.reading import EARLIEST, bound

SQL = proton.symbol(names.FILTEX_SQL)


def sql(text: str) -> dict[str, Any]:
    """A source's filters with one text."""
    return {"mine": proton.Described(SQL, text)}


def described(kind: str, value: Any) -> proton.Described:
    return proton.Described(proton.symbol(kind), value)


def event(body: str = "event", properties: Mapping[str, Any] | None = None, **fields: Any) -> proton.Message:
    return proton.Message(body=body, properties=dict(properties or {}), **fields)


def info_of(client: EnginePair, name: str) -> Any:
    """The error's info of the link `name`."""
    return condition(next(each.link for each in client._receivers.values() if each.link.name == name)).info


def test_each_group_of_filters_has_a_capability_of_its_own(client: EnginePair) -> None:
    """2.2: on connection establishment the filters that are supported are indicated, each type-group on its
    own.
    """
    offered = list(client.connection.remote_offered_capabilities)
    wanted = {names.CAPABILITY_FILTEX_SQL, names.CAPABILITY_FILTEX_PROPERTIES, names.CAPABILITY_FILTEX_GROUPS}
    assert wanted <= set(offered)
    assert wanted == {"AMQP_FILTEX_SQL_V1_0", "AMQP_FILTEX_PROP_V1_0", "AMQP_FILTEX_GROUP_V1_0"}


def test_filters_that_are_supported_are_answered(client: EnginePair) -> None:
    """2.2: support is indicated, and the answer contains an accepted filter as it was given."""
    answered = client.receiver("single", filters=sql("kind = 'alarm'")).link.remote_source.filter
    assert answered.next() is not None
    assert answered.get_object() == {"mine": proton.Described(SQL, "kind = 'alarm'")}


def test_supported_filters_may_be_refused_all_the_same(client: EnginePair) -> None:
    """2.2: support may be indicated and some combinations refused: here too many at once."""
    receiver = client.receiver(
        "single", filters={f"f{number}": described(names.FILTEX_TRUE, True) for number in range(33)}
    )
    assert receiver.refused == names.INVALID_FIELD


def test_a_filter_is_validated_before_the_attach_is_answered(client: EnginePair) -> None:
    """2.3: the answer to an attach with a malformed filter never shows the filter as in force: its source is
    null.
    """
    receiver = client.receiver("single", credit=10, filters=sql("kind ="))
    assert receiver.link.remote_source.type == proton.Terminus.UNSPECIFIED
    assert receiver.link.remote_source.filter.next() is None


@pytest.mark.parametrize(
    ("filters", "position"),
    [
        (sql("kind ="), "7"),
        ({"mine": described(names.FILTEX_PROPERTIES, {"subject": "x", "colour": "blue"})}, "2"),
        (
            {
                "mine": described(
                    names.FILTEX_ANY, [described(names.FILTEX_TRUE, True), described("vendor:unheard-of", 1)]
                )
            },
            "2",
        ),
        ({"mine": described(names.SELECTOR, "kind = ")}, "8"),
        ({"mine": described(names.FILTER_SQL, "a.kind = 'x'")}, "1"),
        ({"mine": described(names.FILTER_DELIVERY_ANNOTATIONS, {proton.symbol("x"): 1})}, "1"),
    ],
)
def test_a_filter_that_fails_validation_detaches_the_link_and_is_named_with_the_position(
    client: EnginePair, filters: dict[str, Any], position: str
) -> None:
    """2.3: the link is detached with invalid-field; the error says which filter, and where in it."""
    receiver = client.receiver("single", name="bad", credit=10, filters=filters)
    assert receiver.refused == names.INVALID_FIELD
    assert receiver.link.state & proton.Endpoint.REMOTE_CLOSED
    assert info_of(client, "bad") == {"field": "filter", "filter": "mine", "position": position}


def test_a_filter_of_an_unknown_kind_is_left_out_of_the_answer(
    node: InMemoryNode, client: EnginePair
) -> None:
    """2.3: a filter that is indicated and not supported. By AMQP 3.5.3, which takes precedence, the answer
    omits it, so the receiver notices: docs/decisions/0003. The known filter in the same set is in force.
    """
    filters = {"other": described("vendor:unheard-of", "x"), "mine": described(names.FILTEX_FALSE, True)}
    node.append("single", b"before")
    receiver = client.receiver("single", credit=10, filters=filters)
    answered = receiver.link.remote_source.filter
    assert answered.next() is not None
    assert list(answered.get_object()) == ["mine"]
    assert receiver.bodies == []


def test_a_message_that_cannot_be_evaluated_is_not_delivered_and_stays(client: EnginePair) -> None:
    """2.3: a message that causes an evaluation error is not eligible.

    It is not moved to another node: it stays in the log for others.
    """
    client.send(client.sender("single"), event("bad", {"n": "text"}), event("good", {"n": 5}))
    assert client.receiver("single", credit=10, filters=sql("n - 1 = 4")).bodies == ["good"]
    assert client.receiver("single", credit=10, filters=EARLIEST).bodies == ["bad", "good"]


def test_all_named_filters_of_a_source_must_hold(client: EnginePair) -> None:
    """2.1, with AMQP 3.5.8: only messages for which all are true are delivered."""
    client.send(
        client.sender("single"), *(event(f"{a}{b}", {"a": a, "b": b}) for a in (1, 2) for b in (1, 2))
    )
    both = {
        "one": proton.Described(SQL, "a = 2"),
        "two": described(names.FILTEX_APPLICATION_PROPERTIES, {"b": 1}),
    }
    assert client.receiver("single", credit=10, filters=both).bodies == ["21"]


@pytest.mark.parametrize(
    "filters",
    [
        sql("a" * 4097),
        sql(" AND ".join(["a = 1"] * 200)),
        sql("(" * 33 + "TRUE" + ")" * 33),
        {
            "mine": described(
                names.FILTEX_APPLICATION_PROPERTIES, {f"key-{number}": number for number in range(65)}
            )
        },
        {f"f{number}": described(names.FILTEX_TRUE, True) for number in range(33)},
    ],
    ids=["characters", "tokens", "depth", "entries", "filters"],
)
def test_limits_are_reported_to_the_client_that_reaches_them_and_to_the_operator(
    client: EnginePair, filters: dict[str, Any]
) -> None:
    """7.1: excessive complexity is refused. The refusal is logged and its reason is not hidden: the author of
    a filter needs it (docs/decisions/0003).
    """
    with structlog.testing.capture_logs() as logged:
        receiver = client.receiver("single", name="greedy", filters=filters)
    assert receiver.refused == names.INVALID_FIELD
    (line,) = [entry for entry in logged if entry["event"] == "filter_refused"]
    assert line["log_level"] == "warning"
    assert any(word in line["reason"] for word in ("allowed", "more than"))


def test_errors_of_evaluation_are_not_logged(client: EnginePair) -> None:
    """7.2: messages that cause errors do not flood the log: a failed evaluation logs nothing."""
    receiver = client.receiver("single", credit=10, filters=sql("n - 1 = 4"))
    with structlog.testing.capture_logs() as logged:
        client.send(
            client.sender("single", name="attacker"), *(event("bad", {"n": "text"}) for _ in range(50))
        )
    assert receiver.bodies == []
    assert [
        entry for entry in logged if entry["log_level"] != logging.getLevelName(logging.DEBUG).lower()
    ] == []


def test_a_filter_that_rejects_everything_delays_no_other_consumer(
    node: InMemoryNode, client: EnginePair
) -> None:
    """7.1: while one link wants nothing, others get all events, on the same connection and on others."""
    other = EnginePair(node, container="other")
    nothing = client.receiver("single", credit=10, filters=sql("a = 'never'"))
    beside, elsewhere = client.receiver("single", credit=10_000), other.receiver("single", credit=10_000)
    client.send(client.sender("single"), *(event(str(number)) for number in range(3000)))
    assert len(beside.bodies) == len(elsewhere.bodies) == 3000
    assert nothing.bodies == []
    (told,) = other.receiver("single/$info", credit=1).arrived
    assert told.body["partitions"][0]["latest-offset"] == offset_text(2999)


def test_a_filter_that_rejects_everything_does_not_spin(
    node: InMemoryNode, client: EnginePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """7.1: without new records in the log, a link whose filter rejects everything does no work: no record is
    read twice.
    """
    partition = node.store.logs["single"].partitions[0]
    node.append("single", *(b"x" for _ in range(2000)))
    client.receiver("single", credit=10, filters=sql("a = 'never'"))
    reads: list[int] = []
    read = partition.read

    def counted(at: int, *more: Any) -> Any:
        reads.append(at)
        return read(at, *more)

    monkeypatch.setattr(partition, "read", counted)
    node.advance(60_000)
    assert reads == []
    node.append("single", b"y")
    node.run()
    assert {at for at in reads if at < 2000} == set()


def test_a_filter_that_rejects_everything_lets_a_cursor_go_on(node: InMemoryNode) -> None:
    """7.1: events that a durable consumer's filter skipped are not examined again: the next attach continues
    after them.
    """

    def durable(link: Any) -> None:
        link.source.durability, link.source.expiry_policy = (
            proton.Terminus.DELIVERIES,
            proton.Terminus.EXPIRE_NEVER,
        )

    def attached(text: str) -> tuple[EnginePair, Any]:
        client = EnginePair(node, container="durable")
        return client, client.receiver("single", name="kept", credit=10, filters=sql(text), prepare=durable)

    first, _ = attached("a = 'never'")
    node.append("single", *(b"x" for _ in range(2000)))
    node.run()
    node.disconnect(first)
    _, receiver = attached("TRUE")
    node.append("single", b"y")
    node.run()
    assert receiver.bodies == [b"y"]


def test_a_text_is_read_once_when_its_link_attaches(
    client: EnginePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """6: an expression is compiled with the attach, not with each message."""
    receiver = client.receiver("single", credit=10, filters=sql("a = 1"))

    def never(*_: object) -> None:
        raise AssertionError

    for function in ("parse", "condition", "property_condition"):
        monkeypatch.setattr(kinds, function, never)
    client.send(client.sender("single"), event("hit", {"a": 1}), event("miss", {"a": 2}))
    assert receiver.bodies == ["hit"]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("d.event-streams-offset > '{0}' AND a IS NULL", 901),
        ("d.event-streams-offset >= '{0}' AND d.event-streams-timestamp > 0", 900),
        ("a IS NULL AND d.event-streams-timestamp > {1}", 900),
    ],
)
def test_bounds_of_offset_and_time_are_sought_not_scanned(
    node: InMemoryNode, client: EnginePair, monkeypatch: pytest.MonkeyPatch, text: str, first: int
) -> None:
    """7.1, and 5.2 of Event Streams: a conjunction that bounds offset or timestamp makes the reader begin
    there.
    """
    for _ in range(9):
        node.append("single", *(b"x" for _ in range(100)))
    before_ms = node.clock.now_ms
    node.advance(10)
    node.append("single", b"y", b"z")
    partition = node.store.logs["single"].partitions[0]
    reads: list[int] = []
    read = partition.read

    def counted(at: int, *more: Any) -> Any:
        reads.append(at)
        return read(at, *more)

    monkeypatch.setattr(partition, "read", counted)
    receiver = client.receiver("single", credit=10, filters=sql(text.format(offset_text(900), before_ms)))
    assert len(receiver.bodies) == 902 - first
    assert min(reads) >= 900


def test_every_kind_of_filter_is_served(client: EnginePair) -> None:
    """8: each part may be implemented alone, and all are recommended. All are implemented completely."""
    client.send(
        client.sender("single"),
        event("hit", {"k": 1}, subject="s", durable=True),
        event("miss", {"k": 2}, subject="t"),
    )
    members = [described(names.FILTEX_APPLICATION_PROPERTIES, {"k": 1})]
    kinds: dict[str, Any] = {
        names.FILTEX_ALL: members,
        names.FILTEX_ANY: members,
        names.FILTEX_NOT: [described(names.FILTEX_APPLICATION_PROPERTIES, {"k": 2})],
        names.FILTEX_SQL: "k = 1 AND p.subject = 's' AND h.durable",
        names.FILTEX_HEADER: {"durable": True},
        names.FILTEX_DELIVERY_ANNOTATIONS: {proton.symbol(names.OFFSET): proton.symbol(offset_text(0))},
        names.FILTEX_PROPERTIES: {proton.symbol("subject"): "s"},
        names.FILTEX_APPLICATION_PROPERTIES: {"k": 1},
        names.SELECTOR: "k = 1 AND JMSType = 's'",
    }
    for kind, value in kinds.items():
        receiver = client.receiver("single", credit=10, filters={"mine": described(kind, value)})
        assert receiver.bodies == ["hit"], kind
    for kind, value, bodies in (
        (names.FILTEX_TRUE, True, ["hit", "miss"]),
        (names.FILTEX_FALSE, True, []),
        (names.FILTEX_MESSAGE_ANNOTATIONS, {proton.symbol("x"): 1}, []),
        (names.FILTEX_FOOTER, {proton.symbol("x"): None}, ["hit", "miss"]),
    ):
        receiver = client.receiver("single", credit=10, filters={"mine": described(kind, value)})
        assert receiver.bodies == bodies, kind


def test_filters_hold_on_bound_and_on_agnostic_links(client: EnginePair) -> None:
    """2.1: a filter is evaluated for outgoing messages, on each kind of link."""
    sender = client.sender("temps")
    for number in range(8):
        client.send(sender, event(str(number), {"even": number % 2 == 0}))
    agnostic = client.receiver("temps", credit=10, filters=sql("even"))
    assert sorted(agnostic.bodies) == ["0", "2", "4", "6"]
    (single,) = [
        client.receiver("temps", credit=10, filters=sql("even"), properties=bound(index)).bodies
        for index in (0,)
    ]
    assert set(single) <= {"0", "2", "4", "6"}
