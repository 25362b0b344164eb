"""The filter set of a source: the filters in force, the refusals, and the selection."""

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.filters import Bounds, Limits, compile_filters
from amqp_streams.filters.compiled import NEEDLE_MESSAGE_MAX
from amqp_streams.filters.kinds import CODES
from amqp_streams.filters.record import WORK_MAX
from amqp_streams.filters.values import FAILED
from amqp_streams.wire.offsets import Earliest, Latest
from amqp_streams.wire.types import Described, Symbol, Timestamp, ULong
from tests.amqp_streams.filters import naive
from tests.amqp_streams.filters.messages import LATEST, NOW_MS, Sample, application
from tests.amqp_streams.filters.printing import printed
from tests.amqp_streams.filters.trees import telling_predicates, telling_samples
from tests.properties import examples


def described(kind, value):
    return Described(Symbol(kind), value)


def sql(text):
    return described("amqp:sql-filter", text)


def picks(*filters, of):
    compiled = compile_filters({f"filter-{place}": each for place, each in enumerate(filters)})
    return compiled.matches(
        of.encoded(),
        number=of.number,
        timestamp_ms=of.timestamp_ms,
        partition="3",
        latest=LATEST,
        now_ms=NOW_MS,
    )


SAMPLE = Sample(
    header=[True],
    message_annotations={Symbol("m"): 1},
    properties=[None, None, "to"],
    application_properties={"kind": "alarm", "n": 5},
    footer={Symbol("f"): 2},
)
OFFSET = Symbol(names.OFFSET)
KINDS: dict[str, tuple[Any, bool]] = {
    "amqp:true-filter": (True, True),
    "amqp:false-filter": (True, False),
    "amqp:sql-filter": ("kind = 'alarm'", True),
    "amqp:header-filter": ({"durable": True}, True),
    "amqp:delivery-annotations-filter": ({OFFSET: Symbol("0000000000000007")}, True),
    "amqp:message-annotations-filter": ({Symbol("m"): 2}, False),
    "amqp:properties-filter": ({Symbol("to"): "to"}, True),
    "amqp:application-properties-filter": ({"kind": "alarm"}, True),
    "amqp:footer-filter": ({Symbol("f"): 2}, True),
    "amqp:all-filter": ([sql("n = 5"), sql("kind = 'alarm'")], True),
    "amqp:any-filter": ([sql("n = 6"), sql("kind = 'alarm'")], True),
    "amqp:not-filter": ([sql("n = 6"), sql("kind = 'alarm'")], False),
    "amqp:event-streams-delivery-annotations-filter": ({OFFSET: Symbol("0000000000000007")}, False),
    "amqp:event-streams-sql-filter": ("d.event-streams-offset >= '0000000000000007'", True),
    "apache.org:selector-filter:string": ("kind = 'alarm' AND n BETWEEN 4 AND 6", True),
}


@pytest.mark.parametrize("code", CODES)
def test_every_kind_is_known_by_its_symbol_and_by_its_code(code):
    value, expected = KINDS[CODES[code]]
    assert picks(described(CODES[code], value), of=SAMPLE) is expected
    assert picks(Described(ULong(code), value), of=SAMPLE) is expected
    assert (
        picks(described(CODES[code] + " ", value), of=SAMPLE) is expected
    )  # as FILTEX prints the first of them


def test_codes_are_those_of_the_specifications():
    """FILTEX 3 to 6, Event Streams 5.2.1 and 5.2.2, Apache's registry."""
    assert set(CODES) == {
        0x100, 0x101, 0x102, 0x110, 0x111, 0x120, 0x170, 0x171, 0x172, 0x173, 0x174, 0x178,
        0x200, 0x201, 0x468C00000004
    }  # fmt: skip


def test_all_filters_of_a_source_hold_together():
    """AMQP 3.5.8."""
    assert picks(sql("n = 5"), sql("kind = 'alarm'"), of=SAMPLE) is True
    assert picks(sql("n = 5"), sql("kind = 'fire'"), of=SAMPLE) is False


def test_filters_of_unknown_kinds_are_left_out_of_what_is_in_force():
    """AMQP 3.5.3."""
    known = sql("n = 5")
    compiled = compile_filters(
        {
            "a": known,
            "b": described("apache.org:no-local-filter:list", []),
            "c": Described(True, 1),
            "d": None,
        }
    )
    assert compiled.in_force == {"a": known}
    empty = compile_filters({"x": Described(ULong(0x999), "n = 5")})
    assert (empty.in_force, empty.bounds, empty.content) == ({}, Bounds(), False)


@pytest.mark.parametrize("value", ["n = 1", 7, {}, []])
def test_a_value_without_a_kind_refuses_the_attach(value):
    """AMQP 3.5.8: described or null. To leave it out would answer a beginner's first filter with silence."""
    with pytest.raises(PeerError, match="the value is not described") as refused:
        compile_filters({"f": value})
    assert refused.value.info["filter"] == "f"


def test_a_plain_value_is_described_by_its_name():
    compiled = compile_filters({"amqp:event-streams-sql-filter": "d.event-streams-offset > '@latest'"})
    assert compiled.bounds == Bounds(after=(Latest(),))
    assert list(compiled.in_force) == ["amqp:event-streams-sql-filter"]


def test_conditions_that_became_bounds_are_not_evaluated():
    compiled = compile_filters(
        {
            "a": described(
                "amqp:event-streams-delivery-annotations-filter",
                {OFFSET: "0000000000000003", names.TIMESTAMP: Timestamp(5)},
            ),
            "b": Described(
                ULong(0x201),
                sql("d.event-streams-timestamp > 9 AND d.event-streams-offset < '0000000000000009'"),
            ),
            "c": described(
                "amqp:all-filter",
                [described("amqp:event-streams-delivery-annotations-filter", {OFFSET: Symbol("@earliest")})],
            ),
        }
    )
    assert compiled.bounds == Bounds(after=(3, Earliest()), before=(9,), after_ms=9)
    assert not compiled.content
    assert compile_filters(
        {"a": sql("d.event-streams-offset > '0000000000000003' AND n = 5")}
    ).bounds == Bounds(after=(3,))
    assert (
        compile_filters({"a": sql("d.event-streams-offset > '0000000000000003' OR n = 5")}).bounds == Bounds()
    )
    assert compile_filters({"a": described("amqp:false-filter", False)}).bounds.done(0, 0, 100)


@pytest.mark.parametrize(
    ("given", "position", "words"),
    [
        (sql("n = "), "5", "the text ends"),
        (sql(5), None, "must be a text"),
        (described("amqp:event-streams-sql-filter", "n = 5"), "1", "5.2.2"),
        (described("apache.org:selector-filter:string", 'n = "5"'), "5", "single quotes"),
        (described("amqp:event-streams-delivery-annotations-filter", []), None, "must be a map"),
        (
            described("amqp:event-streams-delivery-annotations-filter", {OFFSET: Symbol("5")}),
            "1",
            "not a valid offset",
        ),
        (described("amqp:event-streams-delivery-annotations-filter", {OFFSET: 5}), "1", "wrong type"),
        (
            described("amqp:event-streams-delivery-annotations-filter", {names.TIMESTAMP: True}),
            "1",
            "wrong type",
        ),
        (described("amqp:event-streams-delivery-annotations-filter", {"x": 1}), "1", "cannot be filtered on"),
        (described("amqp:properties-filter", {"to": 5}), "1", "to cannot be"),
        (described("amqp:true-filter", "yes"), None, "must be a boolean"),
        (described("amqp:all-filter", []), None, "a non-empty list"),
        (described("amqp:any-filter", {}), None, "must be a non-empty list"),
        (described("amqp:any-filter", [sql("TRUE"), described("unheard", 1)]), "2", "member 2"),
        (described("amqp:any-filter", ["TRUE"]), "1", "member 1"),
        (described("amqp:not-filter", [sql("TRUE"), sql("n =")]), "4", "member 2: the text ends"),
    ],
)
def test_a_filter_that_cannot_be_used_refuses_the_attach_with_its_name_and_the_place(given, position, words):
    """FILTEX 2.2."""
    with pytest.raises(PeerError) as error:
        compile_filters({"fine": sql("TRUE"), "mine": given})
    assert error.value.condition == names.INVALID_FIELD
    assert error.value.info == {"field": "filter", "filter": "mine"} | (
        {"position": position} if position else {}
    )
    assert error.value.description.startswith("filter mine")
    assert words in error.value.description


def test_too_many_filters_and_too_deep_groups_are_refused():
    """FILTEX 7.1."""
    with pytest.raises(PeerError, match="more than 32 filters"):
        compile_filters({str(n): sql("TRUE") for n in range(33)})
    with pytest.raises(PeerError, match="more than 32 filters"):
        compile_filters({"x": described("amqp:any-filter", [sql("TRUE")] * 32)})
    nested = sql("TRUE")
    for _ in range(4):
        nested = described("amqp:not-filter", [nested])
    with pytest.raises(PeerError, match="more than 3 levels deep"):
        compile_filters({"x": nested}, limits=Limits(depth=3))


FAILING, UNKNOWN, YES, NO = sql("kind > 5"), sql("none > 5"), sql("n = 5"), sql("n = 6")


@pytest.mark.parametrize(
    ("kind", "members", "expected"),
    [
        ("all", [YES, YES], True),
        ("all", [YES, NO], False),
        ("any", [YES, NO], True),
        ("any", [NO, NO], False),
        ("any", [UNKNOWN, YES], True),
        ("any", [FAILING, YES], False),
        ("not", [NO, NO], True),
        ("not", [YES, NO], False),
        ("not", [UNKNOWN], True),
        ("not", [FAILING], False),
        ("not", [described("amqp:not-filter", [YES, NO])], True),
        ("not", [described("amqp:all-filter", [YES, NO])], True),
        ("not", [described("amqp:all-filter", [NO, FAILING])], False),
        ("any", [described("amqp:any-filter", [NO, YES]), NO], True),
        (
            "not",
            [
                described(
                    "amqp:event-streams-delivery-annotations-filter", {OFFSET: Symbol("0000000000000007")}
                )
            ],
            True,
        ),
        ("not", [sql("d.event-streams-offset > '0000000000000003' AND n = 5")], False),
        ("any", [described("amqp:false-filter", True), described("amqp:true-filter", None)], True),
    ],
)
def test_groups_are_unknown_when_a_member_failed(kind, members, expected):
    """FILTEX 3."""
    assert picks(described(f"amqp:{kind}-filter", members), of=SAMPLE) is expected


def test_records_are_picked_by_their_indices():
    samples = [application(n=n % 3) for n in range(10)]
    messages = [sample.encoded() for sample in samples]
    times = array("q", [100, 100, 101, 101, 102, 103, 104, 104, 104, 105])
    compiled = compile_filters(
        {
            "a": sql("n = 1"),
            "b": sql("d.event-streams-timestamp > 100 AND d.event-streams-offset < '0000000000000028'"),
        }
    )
    assert compiled.select(messages, 20, times, partition="0", latest=30) == [4, 7]
    assert compiled.select(messages, 20, times, partition="0", latest=30, start=5) == [7]
    assert compiled.select(messages, 20, times, partition="0", latest=30, start=2, end=7) == [4]
    everything = compile_filters({})
    assert everything.select(messages, 20, times, partition="0", latest=30, start=8) == [8, 9]
    latest = compile_filters({"a": sql("d.event-streams-offset > '@latest'")})
    assert latest.select(messages, 20, times, partition="0", latest=27) == [7, 8, 9]


def test_records_with_one_of_several_values_are_picked_in_order():
    messages = [application(kind="b" if n == 3 else "a" if n == 65 else "c").encoded() for n in range(70)]
    compiled = compile_filters({"a": sql("kind IN ('a', 'b')")})
    assert compiled.needles[0] == (b"\x01a", b"\x01b") or compiled.needles[1] == (b"\x01a", b"\x01b")
    assert compiled.select(messages, 0, array("q", range(70)), partition="0", latest=70) == [3, 65]


def test_the_more_a_filter_asks_the_more_it_weighs():
    light, heavy = (
        compile_filters({"a": sql(text)}).weight for text in ("n = 1", " OR ".join(["n = 1"] * 50))
    )
    assert 1 <= light < heavy
    grouped = compile_filters(
        {"a": described("amqp:any-filter", [sql("n = 1"), described("amqp:footer-filter", {"a": 1, "b": 1})])}
    )
    assert grouped.weight > light + 2
    assert compile_filters({}).weight == 0


def test_a_broken_message_is_not_picked_and_does_not_raise():
    whole = SAMPLE.encoded()
    compiled = compile_filters(
        {"a": sql("kind = 'alarm'"), "b": described("amqp:properties-filter", {"to": "to"})}
    )
    for end in range(len(whole)):
        compiled.matches(whole[:end], number=0, timestamp_ms=0, partition="0", latest=0)
    assert not compiled.matches(
        b"alarm\x05alarm\x04kind\x02to", number=0, timestamp_ms=0, partition="0", latest=0
    )


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(telling_predicates, min_size=1, max_size=2), st.lists(telling_samples, max_size=6))
def test_the_selection_is_that_of_a_naive_interpreter_of_all_filters(trees, samples):
    compiled = compile_filters({str(place): sql(printed(tree)) for place, tree in enumerate(trees)})
    messages = [sample.encoded() for sample in samples]
    expected = [
        index
        for index, sample in enumerate(samples)
        if all(naive.holds(tree, sample) is True for tree in trees)
    ]
    assert (
        compiled.select(messages, 7, array("q", [1000] * len(samples)), partition="3", latest=LATEST)
        == expected
    )


@settings(max_examples=examples(150), deadline=None)
@given(telling_predicates, telling_predicates, st.lists(telling_samples, max_size=6))
def test_a_group_selects_what_its_members_define(one, other, samples):
    """FILTEX 3: any, with the bytes that its members require, and not."""
    members = [sql(printed(one)), sql(printed(other))]
    messages = [sample.encoded() for sample in samples]
    times = array("q", [1000] * len(samples))
    truths = [(naive.holds(one, sample), naive.holds(other, sample)) for sample in samples]
    whole = [index for index, pair in enumerate(truths) if FAILED not in pair]
    chosen = {
        kind: (
            compile_filters({"x": described(f"amqp:{kind}-filter", members)}).select(
                messages, 7, times, partition="3", latest=LATEST
            )
        )
        for kind in ("any", "not")
    }
    assert chosen["any"] == [index for index in whole if True in truths[index]]
    assert chosen["not"] == [index for index in whole if True not in truths[index]]


@given(
    st.dictionaries(
        st.sampled_from(["a", "b"]),
        st.builds(
            Described,
            st.sampled_from([Symbol(kind) for kind in CODES.values()]),
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers(-1, 5)
                | st.text(max_size=5)
                | st.sampled_from([*(value for value, _ in KINDS.values())]),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["to", "priority", "x", OFFSET]), inner, max_size=2)
                    | st.builds(Described, st.sampled_from([Symbol(kind) for kind in CODES.values()]), inner)
                ),
                max_leaves=6,
            ),
        ),
    )
)
def test_any_filter_set_is_compiled_or_refused(filters):
    try:
        compiled = compile_filters(filters)
    except PeerError as error:
        refusal = error
    else:
        compiled.select([SAMPLE.encoded()], 7, [1000], partition="3", latest=LATEST)
        return
    assert refusal.condition == names.INVALID_FIELD
    assert refusal.info["filter"] in filters


@pytest.mark.parametrize(
    "text",
    [
        "kind NOT LIKE '%_" + "a" * 3000 + "b%'",
        "NOT (kind LIKE '%_" + "a" * 3000 + "b%')",
        " AND ".join(["kind + kind IS NOT NULL"] * 70),
        " AND ".join(["UPPER(kind) <> LOWER(kind)"] * 50),
        " AND ".join([f"k{n} = kind" for n in range(100)]),
        " AND ".join(["kind NOT LIKE pattern"] * 80),
        " AND ".join([f"EXISTS (list{n})" for n in range(50)]),
    ],
)
def test_the_work_on_one_record_is_bounded_whatever_text_and_message_are(text):
    """The size of the text times that of the message, both at their limits, would be minutes of the node's
    loop.
    """
    properties: dict[str, Any] = {"kind": "a" * 20_000, "pattern": "_a" * 128} | {
        f"k{n}": "a" * 20_000 for n in range(100)
    }
    properties |= {f"list{n}": ["x"] * 10_000 for n in range(50)}
    message = Sample(application_properties=properties).encoded()
    compiled = compile_filters({f"f{n}": described("amqp:sql-filter", text) for n in range(8)})
    conditions = len(compiled.conditions)
    chosen, end = compiled.judge(
        [message] * 3, 0, [0] * 3, partition="0", latest=3, now_ms=None, start=0, end=3, work_max=WORK_MAX
    )
    assert (chosen, end) == ([], 1)
    assert conditions >= 8


def test_a_message_that_is_large_is_looked_into_instead_of_searched():
    compiled = compile_filters({"f": described("amqp:sql-filter", "kind = 'right'")})
    large = Sample(application_properties={"kind": "right"}).encoded() + b"x" * NEEDLE_MESSAGE_MAX
    other = (
        Sample(application_properties={"kind": "wrong", "right": "right"}).encoded()
        + b"x" * NEEDLE_MESSAGE_MAX
    )
    assert compiled.select([large, other, large], 0, [0] * 3, partition="0", latest=3) == [0, 2]
