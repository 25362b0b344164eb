"""Texts that are filters, texts that are not, and the positions of their errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.filters.evaluation.sql import condition
from amqp_streams.filters.language.parser import parse
from amqp_streams.filters.language.syntax import (
    And,
    Compare,
    Constant,
    Dialect,
    Field,
    Holds,
    Index,
    Key,
    Operation,
    Or,
    Predicate,
)
from amqp_streams.filters.refusal import FilterError, Limits
from amqp_streams.filters.values import FAILED
from tests.amqp_streams.filters.messages import LIMITS, Sample

KIND = Field(0x74, "kind")


def sql(text: str) -> Predicate:
    return parse(text, Dialect.SQL, LIMITS)


def refused(text: str, dialect: Dialect = Dialect.SQL, limits: Limits = LIMITS) -> tuple[int | None, str]:
    with pytest.raises(FilterError) as error:
        parse(text, dialect, limits)
    return error.value.position, error.value.reason


MALFORMED = [
    ("", 1, "the text ends, but expected a value"),
    ("a.kind =", 9, "the text ends"),
    ("a.kind = 'x", 10, "is not closed"),
    ("a.kind = 'x' AND", 17, "the text ends"),
    ("a.kind = 'x' 'y'", 14, "AND, OR"),
    ("a.kind == 'x'", 9, "found '='"),
    ("a.kind = 'x')", 13, "found ')'"),
    ("(a.kind = 'x'", 14, "expected )"),
    ("a.kind = 1 = 2", 12, "found '='"),
    ("'x'", 1, "not a boolean"),
    ("5", 1, "not a boolean"),
    ("a.n + 1", 5, "not a boolean"),
    ("(a.n = 1) + 1 = 2", 6, "expected a value, found a condition"),
    ("(a.n = 1) = TRUE", 6, "found a condition"),
    ("a.n IN ()", 9, "a value"),
    ("a.n IN 5", 8, "expected ("),
    ("a.n NOT 5", 9, "LIKE or IN"),
    ("a.n IS 5", 8, "expected NULL"),
    ("a.n IS NOT", 11, "expected NULL"),
    ("a.n BETWEEN 1 AND 2", 5, "found 'BETWEEN'"),
    ("EXISTS a.n", 8, "expected ("),
    ("EXISTS(5)", 8, "expected a field"),
    ("p.nothing = 1", 3, "no field 'nothing'"),
    ("h.ttl = 1 OR header.prio = 2", 21, "no field 'prio'"),
    ("p. = 1", 4, "a field of properties"),
    ("a.x. = 1", 6, "a key"),
    ("a.x[ = 1", 6, "a value"),
    ("a.x[0 = 1", 7, "expected ]"),
    ("[x = 1", 1, "is not closed"),
    ("[x\ty] = 1", 3, "control character"),
    ("a.x = 'y\x07'", 9, "control character"),
    ("a.x = 5abc", 8, "must not follow a number"),
    ("a.x = 0x1", 7, "pairs of hexadecimal digits"),
    ("a.x = 0xZZ", 7, "pairs of hexadecimal digits"),
    ("a.x = 18446744073709551616", 7, "does not fit"),
    ("a.x = 1.0E999", 7, "does not fit"),
    ("a.x = ;", 7, "unexpected character ';'"),
    ("a.x\u00b2 = 1", 4, "in brackets"),
    ("LOWER() = 'x'", 1, "takes 1 or 2 arguments, not 0"),
    ("UTC(1) = 1", 1, "takes 0 arguments"),
    ("acme: = 1", 5, "found ':'"),
    ("acme:x = 1", 8, "arguments of a function"),
    ("DATE('soon') = 1", 6, "not a valid ISO 8601 date"),
    ("a.x = 'y' - 1", 7, "cannot be used in arithmetic"),
    ("a.x = TRUE + 1", 7, "cannot be used in arithmetic"),
    ("a.x = -'y'", 8, "cannot be used in arithmetic"),
    ("a.x LIKE 5", 10, "LIKE compares texts"),
    ("5 LIKE 'x'", 1, "LIKE compares texts"),
    ("a.x LIKE 'y' ESCAPE 'ab'", 21, "one character"),
    ("a.x LIKE 'y!' ESCAPE '!'", 10, "ends with the escape character"),
    ("d.event-streams-offset > 5", 26, "a symbol"),
    ("TRUE = d.event-streams-timestamp", 1, "a timestamp"),
    ("d.event-streams-timestamp > 'x'", 29, "a timestamp"),
    ("and = 5", 1, "found 'and'"),
    ("NOT", 4, "the text ends"),
]


@pytest.mark.parametrize(("text", "position", "reason"), MALFORMED)
def test_a_malformed_text_is_refused_with_the_character_where_it_shows(text, position, reason):
    found, words = refused(text)
    assert (found, reason in words) == (position, True), words


def test_and_binds_closer_than_or_and_not_closer_than_both():
    one, two, three = (Compare("=", KIND, Constant(n)) for n in (1, 2, 3))
    assert sql("kind = 1 OR kind = 2 AND kind = 3") == Or((one, And((two, three))))
    assert sql("kind = 1 AND kind = 2 AND kind = 3") == And((one, two, three))
    assert sql("NOT kind = 1 OR kind = 2") == sql("(NOT (kind = 1)) OR kind = 2")


def test_products_come_before_sums_and_equals_go_from_left_to_right():
    assert sql("kind = 1 - 2 - 3 * 4") == Compare(
        "=",
        KIND,
        Operation("-", Operation("-", Constant(1), Constant(2)), Operation("*", Constant(3), Constant(4))),
    )


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("kind", KIND),
        ("a.kind", KIND),
        ("application_properties.kind", KIND),
        ("application-properties.kind", KIND),
        ("[kind]", KIND),
        ("a . kind", KIND),
        ("[a]", Field(0x74, "a")),
        ("[a].kind", Field(0x74, "a", (Key("kind"),))),
        (
            "a.a.kind[0].[x y][1]",
            Field(0x74, "a", (Key("kind"), Index(Constant(0)), Key("x y"), Index(Constant(1)))),
        ),
        ("[]]]", Field(0x74, "]")),
        ("[]", Field(0x74, "")),
        ("[[[x]]]", Field(0x74, "[x]")),
        ("a.like", Field(0x74, "like")),
        ("h", Field(0x74, "h")),
        ("p.content-type", Field(0x73, "content-type")),
        ("p.contentType", Field(0x73, "content-type")),
        ("p.[content-type]", Field(0x73, "content-type")),
        ("properties.content_type", Field(0x73, "content-type")),
        ("header.first-acquirer", Field(0x70, "first-acquirer")),
        ("messageAnnotations.x-opt-key", Field(0x72, "x-opt-key")),
        ("m.x-in-not", Field(0x72, "x-in-not")),
        ("f.sum", Field(0x78, "sum")),
        ("d.event-streams-offset", Field(0x71, "event-streams-offset")),
        ("deliveryAnnotations.eventStreamsOffset", Field(0x71, "event-streams-offset")),
        ("_x", Field(0x74, "_x")),
        ("\u00e9t\u00e9", Field(0x74, "\u00e9t\u00e9")),
    ],
)
def test_fields_are_named_in_several_spellings(text, field):
    assert sql(text) == Holds(field)


def test_hyphens_in_application_properties_are_differences_as_the_grammar_has_it():
    assert sql("a.x-y = 1") == Compare("=", Operation("-", Field(0x74, "x"), Field(0x74, "y")), Constant(1))
    assert sql("m.x - y = 1") == Compare("=", Operation("-", Field(0x72, "x"), Field(0x74, "y")), Constant(1))
    assert sql("m.x -y = 1") == sql("m.x- y = 1") == sql("m.x - y = 1") != sql("m.x-y = 1")
    assert sql("p.group-sequence-a.y = 1") == sql("p.[group-sequence] - a.y = 1")


def test_a_nested_text_is_refused_beyond_the_depth_and_never_exhausts_the_stack():
    for opening, closing in (("(", ")"), ("NOT ", ""), ("-", ""), ("LOWER(", ")")):
        inner = "TRUE" if opening in ("(", "NOT ") else "a"
        text = opening * 33 + inner + closing * 33 + (" = 1" if inner == "a" else "")
        assert "32 levels" in refused(text)[1]
        sql(opening * 32 + inner + closing * 32 + (" = 1" if inner == "a" else ""))
    assert "32 levels" in refused("a" + "[a" * 33)[1]


def test_long_texts_are_refused_by_characters_and_by_tokens():
    assert refused("a.x = '" + "y" * 4096 + "'") == (
        4097,
        "the text has 4104 characters; at most 4096 are allowed",
    )
    assert refused(" AND ".join(["x=1"] * 200)) == (1025, "the text has more than 512 tokens")
    assert "3 are allowed" in refused("TRUE", limits=Limits(characters=3))[1]
    long = condition(sql("1" + "+1" * 254 + "= 255"), FAILED)
    assert long(Sample().record()) is True


SUBSET = [
    ("d.event-streams-offset > '0000000000000005'", None),
    ("delivery_annotations.event-streams-timestamp >= 1585672841 AND TRUE OR d.x = 'y'", None),
    ("(TRUE)", 1),
    ("a.x = 'y'", 1),
    ("x = 'y'", 1),
    ("NOT TRUE", 1),
    ("d.x IS NULL", 5),
    ("d.x LIKE 'y'", 5),
    ("d.x = -5", 7),
    ("d.x = 1.5", 7),
    ("d.x = 1.5E0", 7),
    ("d.x = NULL", 7),
    ("d.x = TRUE", 7),
    ("d.x", 1),
    ("d.x.y = 1", 1),
    ("d.x = 1 + 1", 9),
    ("EXISTS(d.x)", 7),
]


@pytest.mark.parametrize(("text", "position"), SUBSET)
def test_the_event_streams_filter_takes_its_subset_of_the_grammar_and_no_more(text, position):
    """Event Streams 5.2.2."""
    if position is None:
        parse(text, Dialect.EVENT_STREAMS, LIMITS)
    else:
        found, words = refused(text, Dialect.EVENT_STREAMS)
        assert found == position, words
        assert "5.2.2" in words


PIECES = """a b d.event-streams-offset p.to h. m. ' '' " x' 'x' [ ] [[ ]] [x] ( ) , . + - * / % = <> !=
< <= > >= AND OR NOT IN LIKE ESCAPE
IS NULL TRUE EXISTS LEFT UTC() DATE('x') acme:f 1 1.5 1E5 0x 0x0a 9999999999999999999999 \u00b2 \u0663
\0 \U0001f600 BETWEEN .5 $"""
_PIECES = st.sampled_from(PIECES.split())


@given(
    st.lists(_PIECES, max_size=25).map(" ".join)
    | st.lists(_PIECES, max_size=25).map("".join)
    | st.text(max_size=40),
    st.sampled_from(Dialect),
)
def test_any_text_is_a_filter_or_refused(text, dialect):
    try:
        parse(text, dialect, LIMITS)
    except FilterError as error:
        refusal = error
    else:
        return
    assert refusal.position is not None
    assert 1 <= refusal.position <= len(text) + 1


def test_digits_of_any_script_are_digits():
    """FILTEX 6.4.4.6: a digit is any of Unicode's decimal numerics."""
    assert sql("x = \u0663") == sql("x = 3")
    assert sql("x = \u0663.\u0664") == sql("x = 3.4")
    assert sql("x = 0x\u06630") == sql("x = 0x30")
