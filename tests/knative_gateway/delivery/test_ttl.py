"""The limit on how often an event may go through Brokers."""

import pytest

from event_formats.event import Value
from knative_gateway.delivery.ttl import TTL, TTL_DEFAULT, arriving, departing, reply_to, ttl_of
from tests.knative_gateway.delivery.made import event


@pytest.mark.parametrize(
    ("value", "held"),
    [
        (5, 5),
        (0, 0),
        (-3, 0),
        ("7", 7),
        ("+7", 7),
        ("-1", 0),
        ("", None),
        ("x", None),
        ("7.5", None),
        (True, None),
        (b"7", None),
    ],
)
def test_the_attribute_is_read_as_an_integer_or_not_at_all(value: Value, held: int | None) -> None:
    assert ttl_of({TTL: value}) == held


def test_a_new_event_gets_the_default() -> None:
    stored = arriving(event())
    assert stored is not None
    assert stored.attributes == {**event().attributes, TTL: TTL_DEFAULT}
    assert stored.data == event().data


def test_a_count_that_is_not_an_integer_counts_as_absent() -> None:
    stored = arriving(event(**{TTL: "forever"}))
    assert stored is not None
    assert stored.attributes[TTL] == TTL_DEFAULT


def test_an_event_that_returns_to_a_broker_has_one_less_and_ends_at_zero() -> None:
    seen = []
    coming = arriving(event(**{TTL: "4"}))
    while coming is not None:
        seen.append(coming.attributes[TTL])
        coming = arriving(coming)
    assert seen == [3, 2, 1]
    assert arriving(event(**{TTL: -5})) is None


def test_subscribers_do_not_see_it() -> None:
    assert departing(event(**{TTL: 5}, subject="x")) == event(subject="x")
    plain = event()
    assert departing(plain) is plain


def test_a_chain_of_replies_ends_whatever_the_replies_say() -> None:
    cause, replies = arriving(event(), default=10), 0
    while cause is not None:
        cause = reply_to(cause, event(**{TTL: 1_000_000}))
        replies += 1
    assert replies == 10


def test_a_reply_to_an_event_that_came_over_amqp_begins_a_chain() -> None:
    stored = reply_to(event(), event(type="reply"))
    assert stored is not None
    assert stored.attributes[TTL] == TTL_DEFAULT - 1
    assert stored.attributes["type"] == "reply"
