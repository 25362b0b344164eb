"""The results of filter texts for records, by the sections of FILTEX."""

from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, settings

from amqp_streams.filters.evaluation.sql import condition
from amqp_streams.filters.language.parser import parse
from amqp_streams.filters.language.syntax import Dialect
from amqp_streams.filters.values import FAILED
from amqp_streams.wire.types import (
    Array,
    Byte,
    Char,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
)
from tests.amqp_streams.filters import naive
from tests.amqp_streams.filters.messages import LIMITS, NOW_MS, Sample, application, truth
from tests.amqp_streams.filters.printing import printed
from tests.amqp_streams.filters.trees import predicates, samples
from tests.properties import examples

A = application(
    color="blue",
    size=5,
    small=UByte(5),
    big=ULong(2**64 - 1),
    negative=Byte(-5),
    half=0.5,
    tenth=0.1,
    tenth32=Float(0.1),
    nan=float("nan"),
    flag=True,
    off=False,
    null=None,
    symbol=Symbol("blue"),
    blob=b"\x01\x02",
    when=Timestamp(1_577_836_800_000),
    id=UUID(int=5),
    char=Char("b"),
    words=["x", "y", ["z"]],
    place={"city": "Oslo", "at": {"lat": 59}, "odd key": 1},
    array=Array(int, (10, 20)),
    described=Described(Symbol("d"), "blue"),
    percent="50%",
    left="reserved",
    date="2020-01-01T00:00:00Z",
    length="PT1H",
    upper="ÀB",
)

CASES = [
    # 6.1: sections and their short forms; 6.4.4.4: without a section, application-properties
    ("6.1", "color = 'blue'", True),
    ("6.1", "application_properties.color = 'blue'", True),
    ("6.1", "application-properties.color = 'blue'", True),
    ("6.1", "applicationProperties.color = 'blue'", True),
    ("6.1", "a.color = 'blue' AND ( a.size = 5 OR a.size = 6 )", True),
    ("6.1", "a.color = 'red' OR a.color = 'green'", False),
    # 6.2: constants
    ("6.4.4.2.1", "a.big = 18446744073709551615", True),
    ("6.4.4.2.1", "-9223372036854775808 < a.negative", True),
    ("6.4.4.2.2", "a.half = 0.5", True),
    ("6.4.4.2.2", "a.tenth = 0.1", True),
    ("6.4.4.2.2", "a.tenth32 = 0.1", True),
    ("6.4.4.2.3", "a.half = 5.0E-1", True),
    ("6.4.4.2.3", "a.size < 1.0E10", True),
    ("6.4.4.2.3", "a.size < INF", True),
    ("6.4.4.2.3", "a.size < NAN", None),
    ("6.4.4.2.4", "a.flag = TRUE AND a.off = FALSE", True),
    ("6.4.4.2.5", 'a.color = "blue"', True),
    ("6.4.4.2.5", "'it''s' = \"it's\"", True),
    ("6.4.4.2.6", "a.blob = 0x0102", True),
    ("6.4.4.2.6", "a.blob > 0x01", True),
    # 6.4.1, 6.4.2: predicates and logic
    ("6.4.1", "TRUE", True),
    ("6.4.1", "FALSE", False),
    ("6.4.1", "a.flag", True),
    ("6.4.1", "NOT a.flag", False),
    ("6.4.1", "a.color", FAILED),
    ("6.4.1", "a.none", None),
    ("6.4.2", "NOT a.size = 5", False),
    ("6.4.2", "NOT a.size = 5 AND FALSE OR TRUE", True),
    ("6.4.2", "TRUE OR FALSE AND FALSE", True),
    ("6.4.2", "(TRUE OR FALSE) AND FALSE", False),
    ("6.4.2", "not a.size = 6 And True oR False", True),
    # 6.4.2.3: comparisons
    ("6.4.2.3", "a.size = a.small", True),
    ("6.4.2.3", "a.size != 5", False),
    ("6.4.2.3", "a.size <> 4", True),
    ("6.4.2.3", "a.size >= 5 AND a.size <= 5 AND a.size > 4 AND a.size < 6", True),
    ("6.4.2.3", "4 < a.size", True),
    ("6.4.2.3", "a.color = a.symbol", True),
    ("6.4.2.3", "a.color = 'Blue'", False),
    ("6.4.2.3", "a.color > 'blu' AND a.color < 'bluf'", True),
    ("6.4.2.3", "a.none = 5", None),
    ("6.4.2.3", "a.null <> 5", None),
    ("6.4.2.3", "a.nan = a.nan", None),
    ("6.4.2.3", "a.nan <> 1", None),
    ("6.4.2.3", "a.color = 5", FAILED),
    ("6.4.2.3", "a.color <> 5", FAILED),
    ("6.4.2.3", "a.flag = 1", FAILED),
    ("6.4.2.3", "a.id = 'x'", FAILED),
    ("6.4.2.3", "a.char = 'b'", FAILED),
    ("2.1", "a.color = 5 OR a.size = 5", True),
    ("2.1", "a.color = 5 AND a.size = 6", False),
    ("2.1", "NOT a.color = 5", FAILED),
    # 6.3.2: timestamps
    ("6.3.2", "a.when = 1577836800000", True),
    ("6.3.2", "a.when = '2020-01-01T00:00:00Z'", True),
    ("6.3.2", "'2020-01-01T01:00:00+01:00' = a.when", True),
    ("6.3.2", "a.when > '2019-12-31'", True),
    ("6.3.2", "a.when > 'PT1S'", True),
    ("6.3.2", "a.when - a.when < 'PT1S'", True),
    ("6.3.2", "a.when = 'yesterday'", FAILED),
    ("6.3.2", "a.when IN ('2020-01-01', 'x')", True),
    ("6.4.4.3.7", "a.when = DATE('2020-01-01')", True),
    ("6.4.4.3.7", "DATE(a.date) + 1000 = DATE('2020-01-01T00:00:01')", True),
    ("6.4.4.3.7", "DATE(a.color) = 1", FAILED),
    # 6.4.3.1: NULL
    ("6.4.3.1", "a.none IS NULL AND a.null IS NULL", True),
    ("6.4.3.1", "a.color IS NOT NULL AND a.words IS NOT NULL", True),
    ("6.4.3.1", "a.color = NULL", None),
    ("6.4.3.1", "(a.none + 1) IS NULL", True),
    ("6.4.3.1", "(a.color - 1) IS NULL", FAILED),
    # 6.4.3.2: LIKE
    ("6.4.3.2", "a.color LIKE 'b%'", True),
    (
        "6.4.3.2",
        "a.color LIKE '%ue' AND a.color LIKE '%lu%' AND a.color LIKE 'b_u_' AND a.color LIKE 'blue'",
        True,
    ),
    ("6.4.3.2", "a.color NOT LIKE 'b%'", False),
    ("6.4.3.2", "a.color LIKE 'B%'", False),
    ("6.4.3.2", "a.percent LIKE '50!%' ESCAPE '!'", True),
    ("6.4.3.2", "a.color LIKE 'b!%' ESCAPE '!'", False),
    ("6.4.3.2", r"a.percent LIKE '50\%'", False),
    ("6.4.3.2", "a.none LIKE 'b%'", None),
    ("6.4.3.2", "a.size LIKE '5'", FAILED),
    ("6.4.3.2", "a.color LIKE a.symbol", True),
    ("6.4.3.2", "a.color LIKE a.size", FAILED),
    ("6.4.3.2", "a.color LIKE 'b%' ESCAPE a.color", FAILED),
    ("6.4.3.2", "a.color LIKE a.none", None),
    # 6.4.3.3: IN
    ("6.4.3.3", "a.color IN ('red', 'blue')", True),
    ("6.4.3.3", "a.color NOT IN ('red', 'green')", True),
    ("6.4.3.3", "a.size IN (1 + 4, 'x')", True),
    ("6.4.3.3", "a.size IN (1, NULL)", None),
    ("6.4.3.3", "a.size IN (5, NULL)", True),
    ("6.4.3.3", "a.size NOT IN (1, NULL)", None),
    ("6.4.3.3", "a.none IN ('red')", None),
    ("6.4.3.3", "a.size IN ('red')", FAILED),
    # 6.4.3.4: EXISTS
    ("6.4.3.4", "EXISTS(a.null) AND EXISTS(color)", True),
    ("6.4.3.4", "EXISTS(a.none)", False),
    ("6.4.3.4", "EXISTS(a.place.city) AND NOT EXISTS(a.place.street)", True),
    # 6.4.4.1: arithmetic
    ("6.4.4.1", "a.size + 2 * 3 - 1 = 10", True),
    ("6.4.4.1", "(a.size + 2) * 3 = 21", True),
    ("6.4.4.1", "-a.size = a.negative AND +a.size = 5 AND - -a.size = 5", True),
    ("6.4.4.1", "a.size / 2 = 2.5 AND -a.size / 2 = -2.5 AND 10 / a.size = 2 AND 10 / 4 * 2 = a.size", True),
    ("6.4.4.1", "a.size / 2.0E0 = 2.5", True),
    ("6.4.4.1", "a.size % 3 = 2 AND -a.size % 3 = -2", True),
    ("6.4.4.1", "a.half % 1 = 0", True),
    ("6.4.4.1", "a.size % 0.5 = 0", FAILED),
    ("6.4.4.1.2", "a.size / 0 = 1", None),
    ("6.4.4.1.2", "a.size % 0 = 1 OR TRUE", True),
    ("6.4.4.1.2", "a.half / 0 > 1 OR NOT a.half / 0 > 1", None),
    ("6.3.1", "a.big + 1 > 0", None),
    ("6.3.1", "a.big * a.big = 1 OR a.size = 5", True),
    ("6.3.1", "9223372036854775807 + 1 = 9223372036854775808", True),
    ("6.3.1", "1.0E308 * 10.0E0 = INF", None),
    ("6.4.4.1.2", "a.color + '-' + a.symbol = 'blue-blue'", True),
    ("6.4.4.1.2", "a.color + 5 = 'blue5'", FAILED),
    ("6.4.4.1.1", "-a.color = 5", FAILED),
    # 6.4.4.3: functions
    ("6.4.4.3.1", "LOWER(a.upper) = 'àb'", True),
    ("6.4.4.3.2", "UPPER('straße', 'de') = 'STRASSE'", True),
    ("6.4.4.3.2", "UPPER('i', 'tr-TR') = 'İ' AND LOWER('I', 'tr') = '\u0131'", True),
    ("6.4.4.3.3", "LEFT(a.color, 2) = 'bl' AND LEFT(a.color, 9) = 'blue' AND LEFT(a.color, 0) = ''", True),
    ("6.4.4.3.4", "RIGHT(a.color, 2) = 'ue' AND RIGHT(a.color, 9) = 'blue' AND RIGHT(a.color, 0) = ''", True),
    ("6.4.4.3.4", "RIGHT(a.color, -1) = ''", FAILED),
    ("6.4.4.3.3", "LEFT(a.color, -1) = ''", FAILED),
    (
        "6.4.4.3.5",
        (
            "SUBSTRING(a.color, 2, 2) = 'lu' AND SUBSTRING(a.color, 9, 2) = '' AND SUBSTRING(a.color, 3, 9) ="
            " 'ue'"
        ),
        True,
    ),
    ("6.4.4.3.5", "SUBSTRING(a.color, 0, 2) = 'b'", FAILED),
    ("6.4.4.3.5", "SUBSTRING(a.color, 1, -2) = 'b'", FAILED),
    ("6.4.4.3.3", "LEFT(a.none, 1) IS NULL", True),
    ("6.4.4.3.2", "UPPER(a.size) = '5'", FAILED),
    ("6.4.4.3.6", f"UTC() = {NOW_MS} AND UTC() > a.when", True),
    ("6.4.4.3", "acme:distance(a.color, 1) IS NULL AND unheard(1) IS NULL", True),
    ("6.4.4.3", "acme:distance(a.color) = 1", None),
    # 6.4.4.5: inside maps, lists and arrays
    ("6.4.4.5", "a.place.city = 'Oslo' AND a.place.at.lat = 59 AND a.place.[odd key] = 1", True),
    ("6.4.4.5", "a.words[0] = 'x' AND a.words[1 + 1][0] = 'z' AND a.array[1] = 20", True),
    (
        "6.4.4.5",
        "a.words[9] IS NULL AND a.words[-1] IS NULL AND a.place.none.deeper IS NULL AND a.color.x IS NULL",
        True,
    ),
    ("6.4.4.5", "a.words['x'] = 'x'", FAILED),
    ("6.4.4.5", "a.words[a.none] IS NULL", True),
    ("6.4.4.4", "a.place = 'Oslo'", FAILED),
    ("4.1.5", "a.described = 'blue'", True),
    # 6.4.4.6: identifiers
    ("6.4.4.6", "[color] = 'blue' AND a.[color] = 'blue'", True),
    ("6.4.4.6", "a.left = 'reserved' AND left = 'reserved'", True),
]


@pytest.mark.parametrize(
    ("section", "text", "expected"), CASES, ids=[f"{section}: {text}" for section, text, _ in CASES]
)
def test_a_filter_text_means_what_its_section_of_the_specification_says(section, text, expected):
    assert truth(text, A) is expected


def test_every_section_of_a_message_is_reached_by_its_names():
    """FILTEX 6.4.4.4; hyphens as the standards write, underscores as the grammar, camelCase as its
    examples.
    """
    sample = Sample(
        header=[True, UByte(7), UInt(60_000), None, UInt(2)],
        message_annotations={Symbol("x-opt-key"): "k", Symbol("plain"): 1},
        properties=[
            "id-1",
            b"user",
            "to",
            "subject",
            "back",
            ULong(9),
            Symbol("text/plain"),
            None,
            Timestamp(5),
            Timestamp(6),
            "g",
            UInt(3),
            "r",
        ],
        application_properties={"odd name]": 1},
        footer={Symbol("sum"): 12},
        number=42,
        timestamp_ms=1234,
    )
    for text in (
        (
            "h.durable AND header.priority = 7 AND h.ttl = 60000 AND NOT h.first_acquirer AND h.deliveryCount"
            " = 2 AND h.delivery-count = 2"
        ),
        (
            "m.x-opt-key = 'k' AND message_annotations.[x-opt-key] = 'k' AND message-annotations.plain = 1"
            " AND messageAnnotations.plain = 1"
        ),
        "p.message-id = 'id-1' AND p.messageId = 'id-1' AND properties.message_id = 'id-1'",
        "p.user-id = 0x75736572 AND p.to = 'to'",
        (
            "p.subject = 'subject' AND p.reply-to = 'back' AND p.correlation-id = 9 AND p.contentType LIKE"
            " 'text/%'"
        ),
        "p.content-encoding IS NULL",
        (
            "p.absolute-expiry-time = 5 AND p.creation_time = 6 AND p.group-id = 'g' AND p.group-sequence -"
            " 1 = 2"
        ),
        "p.reply-to-group-id = 'r'",
        "[odd name]]] = 1 AND f.sum = 12 AND footer.sum = 12",
        "d.event-streams-offset = '0000000000000042' AND delivery_annotations.event_streams_timestamp = 1234",
        (
            "d.eventStreamsSourcePartition = '3' AND d.other IS NULL AND"
            " delivery-annotations.event-streams-timestamp > 1233"
        ),
        "p.group-sequence-2 = 1",
    ):
        assert truth(text, sample) is True, text


def test_absent_header_fields_have_their_defaults_and_do_not_exist_all_the_same_as_the_standard_has_them():
    """AMQP 3.2.1; FILTEX 4: an omitted field counts as its default."""
    for sample in (Sample(), Sample(header=[]), Sample(header=[None, None])):
        assert (
            truth(
                "h.priority = 4 AND NOT h.durable AND NOT h.first-acquirer AND h.delivery-count = 0 AND h.ttl"
                " IS NULL",
                sample,
            )
            is True
        )
        assert truth("EXISTS(h.priority)", sample) is False


def test_reserved_offsets_compare_as_smaller_and_greater_than_all():
    """Event Streams 5.1.1: events that were stored after the attach are greater than `@latest`."""
    before, after = Sample(number=99), Sample(number=100)
    assert (
        truth("d.event-streams-offset > '@earliest' AND '@earliest' < d.event-streams-offset", before) is True
    )
    assert truth("d.event-streams-offset > '@latest'", before) is False
    assert truth("d.event-streams-offset > '@latest' AND d.event-streams-offset >= '@latest'", after) is True
    assert truth("d.event-streams-offset < '@latest' AND d.event-streams-offset <> '@latest'", before) is True
    assert truth("d.event-streams-offset = '@latest' OR d.event-streams-offset = '@earliest'", after) is False


def test_a_malformed_message_fails_and_never_raises():
    record = A.record()
    whole = record.message
    check = condition(
        parse("a.upper = 'ÀB' AND f.x IS NULL AND p.subject IS NULL", Dialect.SQL, LIMITS), FAILED
    )
    for end in range(len(whole)):
        record.turn_to(whole[:end], 7, 1000)
        assert check(record) in (True, False, None, FAILED)
    record.turn_to(b"\x00\x53\x74\x40", 7, 1000)
    assert check(record) is None
    record.turn_to(b"\x00\x53\x74\xa1\x01x", 7, 1000)
    assert condition(parse("a.x = 1", Dialect.SQL, LIMITS), FAILED)(record) is FAILED


def test_long_descriptors_and_wide_encodings_are_read_like_the_short_ones():
    wide = (
        b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x74\xd1\x00\x00\x00\x19\x00\x00\x00\x02"
        b"\xb1\x00\x00\x00\x04kind\xb1\x00\x00\x00\x05alarm"
    )
    wide = wide[:11] + (len(wide) - 15).to_bytes(4) + wide[15:]
    record = Sample().record()
    record.turn_to(b"\x00\x53\x70\xd0\x00\x00\x00\x04\x00\x00\x00\x00" + wide, 7, 1000)
    assert condition(parse("kind = 'alarm'", Dialect.SQL, LIMITS), FAILED)(record) is True


@settings(max_examples=examples(200), deadline=None)
@given(predicates, samples)
def test_a_compiled_filter_equals_a_naive_interpreter(tree, sample):
    assert condition(tree, FAILED)(sample.record()) is naive.holds(tree, sample)


@settings(max_examples=examples(150), deadline=None)
@given(predicates)
def test_parsing_what_was_printed_gives_the_tree_again(tree):
    assert parse(printed(tree), Dialect.SQL, LIMITS) == tree


def test_decimals_are_exact():
    assert truth("0.1 + 0.2 = 0.3", A) is True
    assert truth("a.size * 0.1 = 0.5", A) is True
    assert truth("1.0 / 3 < 0.34 AND -0.5 < 0.1 AND 1.0 / 0 IS NOT NULL", A) is True
    assert Decimal("0.1") == Decimal("0.10")


def test_widths_do_not_matter_to_integers():
    sample = application(u=UInt(7), i=Int(-7), b=Byte(7))
    assert truth("u = 7 AND i = -7 AND u + i = 0 AND b = u AND -u = i", sample) is True
