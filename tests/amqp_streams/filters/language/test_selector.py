"""JMS selectors: their own words, their own numbers, the names of header fields.

Spec: Jakarta Messaging 3.8.1.
"""

import pytest

from amqp_streams.filters.bounds import bounds_of
from amqp_streams.filters.language.parser import parse
from amqp_streams.filters.language.syntax import Dialect
from amqp_streams.filters.refusal import FilterError
from amqp_streams.wire.types import Symbol, Timestamp, UByte, UInt
from tests.amqp_streams.filters.messages import LIMITS, Sample, truth

MESSAGE = Sample(
    header=[True, UByte(7), None, None, UInt(2)],
    message_annotations={Symbol("x-opt-key"): "k"},
    properties=[
        "ID:1",
        b"user",
        "queue",
        "type",
        "back",
        "ID:0",
        Symbol("text/plain"),
        None,
        Timestamp(5),
        Timestamp(6),
        "g",
        UInt(3),
    ],
    application_properties={
        "age": 15,
        "Country": "UK",
        "phrase": "12993",
        "ratio": 0.5,
        "flag": True,
        "null": None,
        "a.b": 1,
        "$x": 2,
    },
    number=42,
    timestamp_ms=1234,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the standard's own examples of BETWEEN, IN and LIKE
        ("age BETWEEN 15 AND 19", True),
        ("age NOT BETWEEN 15 AND 19", False),
        ("age between 16 and 19", False),
        ("Country IN (' UK', 'US', 'France')", False),
        ("Country IN ('UK', 'US', 'France')", True),
        ("Country NOT IN ('UK', 'US', 'France')", False),
        ("phrase LIKE '12%3'", True),
        ("phrase NOT LIKE '12%3'", False),
        (r"underscored LIKE '\_%' ESCAPE '\'", None),
        ("none IS NULL AND null IS NULL AND age IS NOT NULL", True),
        ("none BETWEEN 1 AND 2", None),
        # numbers
        ("ratio = .5 AND ratio < 7. AND ratio = 5E-1 AND ratio = 0.5f AND ratio < 1d", True),
        ("age = 15L AND age = 0xF AND age = 0x0FL AND -age = -15 AND age / 2 = 7 AND age * 2 + 1 = 31", True),
        # identifiers
        ("a.b = 1 AND $x = 2", True),
        ("a = 1", None),
        (
            (
                "JMSMessageID = 'ID:1' AND JMSCorrelationID = 'ID:0' AND JMSType = 'type' AND JMSTimestamp ="
                " 6 AND JMSExpiration = 5"
            ),
            True,
        ),
        (
            "JMSPriority = 7 AND JMSDeliveryMode = 'PERSISTENT' AND JMSRedelivered AND JMSXDeliveryCount = 3",
            True,
        ),
        ("JMSXGroupID = 'g' AND JMSXGroupSeq = 3 AND JMSDestination = 'queue' AND JMSReplyTo = 'back'", True),
        ("JMSXUnheard IS NULL", True),
        (
            (
                "amqp.message_id = 'ID:1' AND amqp.contentType LIKE 'text/%' AND amqp.priority > 6 AND"
                " amqp.durable"
            ),
            True,
        ),
        ("amqp.annotation.x-opt-key = 'k'", True),
        (
            (
                "amqp.annotation.x-opt-offset > '0000000000000041' AND amqp.annotation.x-opt-enqueued-time >"
                " 1233"
            ),
            True,
        ),
        # unlike types: false, not unknown; NULL: unknown
        ("age = '15'", False),
        ("age <> '15'", False),
        ("NOT (age = '15')", True),
        ("flag = TRUE AND flag <> FALSE", True),
        ("flag", True),
        ("NOT null", None),
    ],
)
def test_a_selector_means_what_the_standard_says(text, expected):
    assert truth(text, MESSAGE, Dialect.SELECTOR) is expected


def test_offsets_in_the_form_of_event_hubs_start_where_intended():
    """The offsets of Event Hubs are texts, `-1` is before all events, and times are milliseconds in
    quotes.
    """
    for text, expected in (
        ("amqp.annotation.x-opt-offset > '-1'", True),
        ("amqp.annotation.x-opt-offset > '@latest'", False),
        ("amqp.annotation.x-opt-offset >= '0000000000000042'", True),
        ("amqp.annotation.x-opt-enqueued-time > '1233'", True),
        ("'1234' < amqp.annotation.x-opt-enqueued-time", False),
        ("amqp.annotation.x-opt-offset > '41'", True),
        ("amqp.annotation.x-opt-sequence-number > 41", True),
        ("amqp.annotation.x-opt-sequence-number > '42'", False),
        ("42 <= amqp.annotation.x-opt-sequence-number", True),
        ("amqp.annotation.x-opt-sequence-number > -1", True),
        ("amqp.annotation.x-opt-sequence-number > '-1'", True),
        ("amqp.annotation.x-opt-sequence-number < 100000000000000000", True),
    ):
        assert truth(text, MESSAGE, Dialect.SELECTOR) is expected
        assert bounds_of(parse(text, Dialect.SELECTOR, LIMITS)) is not None


def test_a_message_without_header_is_not_persistent_and_not_redelivered():
    text = (
        "JMSDeliveryMode = 'NON_PERSISTENT' AND NOT JMSRedelivered AND JMSXDeliveryCount = 1 AND"
        " JMSPriority = 4"
    )
    assert truth(text, Sample(), Dialect.SELECTOR) is True


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('Country = "UK"', 11),
        ("LOWER(Country) = 'uk'", 6),
        ("EXISTS(age)", 7),
        ("[age] = 15", 1),
        ("age BETWEEN 1 OR 2", 15),
        ("amqp.nothing = 1", 1),
        ("amqp.body = 1", 1),
        ("age = 0x", 7),
        ("age = 5x", 8),
    ],
)
def test_elements_that_only_filtex_has_are_refused_in_a_selector(text, position):
    with pytest.raises(FilterError) as error:
        parse(text, Dialect.SELECTOR, LIMITS)
    assert error.value.position == position
