"""Random trees of filter texts, and records that have the fields that the texts name."""

from decimal import Decimal

from hypothesis import strategies as st

from amqp_streams.filters.language.syntax import (
    And,
    Call,
    Compare,
    Constant,
    Exists,
    Field,
    Holds,
    In,
    Index,
    IsNull,
    Key,
    Like,
    Negative,
    Not,
    Operation,
    Or,
    Positive,
)
from amqp_streams.wire.types import (
    Array,
    Char,
    Decimal64,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
)
from tests.amqp_streams.filters.messages import Sample

WORDS = ("a", "ab", "kind", "x%y", "1970-01-01T00:00:01Z", "PT1S", "", "\u00e9", "[odd]")
NAMES = ("kind", "n", "in", "odd name", "b]c[")
texts = st.sampled_from(WORDS)
numbers = st.integers(0, 12) | st.sampled_from([2**31, 2**53 + 1, 2**63, 2**64 - 1])

constants = st.one_of(
    st.builds(Constant, texts),
    st.builds(Constant, numbers),
    st.builds(
        Constant,
        st.sampled_from(
            [
                Decimal("0.1"),
                Decimal("1.0"),
                Decimal("2.50"),
                1.5,
                1e300,
                float("inf"),
                None,
                True,
                False,
                b"\x01",
            ]
        ),
    ),
)


def fields(index: st.SearchStrategy) -> st.SearchStrategy[Field]:
    steps = st.one_of(st.builds(Key, st.sampled_from(NAMES)), st.builds(Index, index))
    return st.one_of(
        st.builds(
            Field,
            st.sampled_from([0x72, 0x74, 0x78]),
            st.sampled_from(NAMES),
            st.lists(steps, max_size=2).map(tuple),
        ),
        st.builds(Field, st.just(0x74), st.sampled_from(NAMES)),
        st.builds(Field, st.just(0x70), st.sampled_from(["durable", "priority", "ttl", "delivery-count"])),
        st.builds(
            Field,
            st.just(0x73),
            st.sampled_from(["message-id", "subject", "content-type", "creation-time", "group-sequence"]),
        ),
        st.builds(Field, st.just(0x71), st.sampled_from(["event-streams-source-partition", "other"])),
    )


def arithmetic(inner: st.SearchStrategy) -> st.SearchStrategy:
    operands = inner.filter(
        lambda node: not isinstance(node, Constant) or type(node.value) in (int, float, Decimal)
    )
    texts_too = inner.filter(
        lambda node: not isinstance(node, Constant) or type(node.value) not in (bool, bytes)
    )
    return st.one_of(
        st.builds(Negative, operands),
        st.builds(Positive, operands),
        st.builds(Operation, st.sampled_from("-*/%"), operands, operands),
        st.builds(Operation, st.just("+"), texts_too, texts_too),
        st.builds(lambda name, of: Call(name, (of,)), st.sampled_from(["LOWER", "UPPER", "my:own"]), inner),
        st.builds(
            lambda name, of, count: Call(name, (of, count)), st.sampled_from(["LEFT", "RIGHT"]), inner, inner
        ),
        st.just(Call("UTC", ())),
        fields(inner),
    )


expressions = st.recursive(constants | fields(constants), arithmetic, max_leaves=5)
no_deltas = expressions.filter(lambda node: not (isinstance(node, Field) and node.section == 0x71))
patterns = st.sampled_from(["a%", "%b", "_b", "%i_d", "a", "%", "%d%", "a!%", "x!%y", "k__d%", ""]).map(
    Constant
)
subjects = expressions.filter(lambda node: not isinstance(node, Constant))
comparisons = st.sampled_from(["=", "<>", ">", ">=", "<", "<="])


def _compares_no_delta(node: Compare) -> bool:
    return not (isinstance(node.left, Field) and node.left.section == 0x71)


def _ends_without_escape(pattern: Constant) -> bool:
    return not str(pattern.value).endswith("!")


leaves = st.one_of(
    st.builds(Compare, comparisons, no_deltas, no_deltas),
    st.builds(Compare, comparisons, fields(constants), texts.map(Constant)).filter(_compares_no_delta),
    st.builds(
        Compare, st.just("="), st.builds(Field, st.just(0x74), st.sampled_from(NAMES)), texts.map(Constant)
    ),
    st.builds(IsNull, expressions, st.booleans()),
    st.builds(In, expressions, st.lists(expressions, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(
        In, fields(constants), st.lists(texts.map(Constant), min_size=1, max_size=3).map(tuple), st.booleans()
    ),
    st.builds(Like, subjects, patterns, st.just(None), st.booleans()),
    st.builds(
        Like, fields(constants), patterns.filter(_ends_without_escape), st.just(Constant("!")), st.booleans()
    ),
    st.builds(Exists, fields(constants)),
    st.builds(Holds, fields(constants)),
    st.builds(Holds, st.sampled_from([True, False, None]).map(Constant)),
)
predicates = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda operands: And(tuple(operands))),
        st.lists(inner, min_size=2, max_size=3).map(lambda operands: Or(tuple(operands))),
    ),
    max_leaves=5,
)

simple_values = st.one_of(
    texts,
    texts.filter(str.isascii).map(Symbol),
    numbers.filter(lambda n: n < 2**63),
    st.integers(0, 255).map(UByte),
    st.integers(-3, 3).map(Int),
    st.sampled_from(
        [
            ULong(2**63),
            UInt(1),
            Float(0.1),
            0.1,
            1.0,
            1.5,
            float("nan"),
            True,
            False,
            None,
            b"\x01",
            Char("a"),
            Timestamp(1000),
        ]
    ),
    st.just(Decimal64((0x31C00000000000000 & 0xFFFFFFFFFFFFFFFF | 1).to_bytes(8))),
)
values = st.recursive(
    simple_values,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        st.builds(Described, st.just(Symbol("described")), inner),
        st.lists(texts, max_size=3).map(lambda items: Array(str, tuple(items))),
    ),
    max_leaves=4,
)
maps = st.none() | st.dictionaries(st.sampled_from(NAMES), values, max_size=4)
annotations = st.none() | st.dictionaries(st.sampled_from(NAMES).map(Symbol), values, max_size=4)
properties = st.tuples(
    st.none() | texts,
    st.none(),
    st.none(),
    st.none() | texts,
    st.none(),
    st.none(),
    st.none() | st.just(Symbol("kind")),
    st.none(),
    st.none(),
    st.none() | st.just(Timestamp(1000)),
    st.none(),
    st.none() | st.just(UInt(3)),
).map(list)
headers = st.tuples(
    st.none() | st.booleans(), st.none() | st.integers(0, 9).map(UByte), st.none() | st.just(UInt(5))
).map(list)
samples = st.builds(
    Sample,
    header=st.none()
    | st.tuples(
        st.none() | st.booleans(), st.none() | st.integers(0, 9).map(UByte), st.none() | st.just(UInt(5))
    ).map(list),
    message_annotations=annotations,
    properties=st.none() | properties,
    application_properties=maps,
    footer=annotations,
    number=st.integers(0, 200),
    timestamp_ms=st.integers(0, 2000),
)

# Trees and records that agree often: for laws about what is let through.
_FIELDS = st.sampled_from(
    [
        Field(0x74, "kind"),
        Field(0x74, "n"),
        Field(0x72, "kind"),
        Field(0x73, "subject"),
        Field(0x74, "kind", (Index(Constant(0)),)),
    ]
)
_TEXTS = st.sampled_from(["alarm", "a", "\u00e9", "2020-01-01"])
_telling_leaves = st.one_of(
    st.builds(Compare, st.sampled_from(["=", "=", "<>", "<"]), _FIELDS, _TEXTS.map(Constant)),
    st.builds(Compare, st.just("="), _TEXTS.map(Constant), _FIELDS),
    st.builds(
        Compare,
        st.sampled_from(["=", ">"]),
        _FIELDS,
        st.builds(Operation, st.just("+"), _FIELDS, st.just(Constant(0))),
    ),
    st.builds(In, _FIELDS, st.lists(_TEXTS.map(Constant), min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(
        Like,
        _FIELDS,
        st.sampled_from(["al%m", "%la%", "_", "a", "%-01-%"]).map(Constant),
        st.just(None),
        st.booleans(),
    ),
    st.builds(IsNull, _FIELDS, st.booleans()),
    st.builds(Exists, _FIELDS),
    st.builds(Holds, _FIELDS),
)
telling_predicates = st.recursive(
    _telling_leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda operands: And(tuple(operands))),
        st.lists(inner, min_size=2, max_size=3).map(lambda operands: Or(tuple(operands))),
    ),
    max_leaves=4,
)
_telling_values = st.one_of(
    _TEXTS,
    _TEXTS,
    st.sampled_from([Symbol("alarm"), Symbol("a"), Timestamp(1_577_836_800_000), 3, True]),
    st.builds(lambda text: [text], _TEXTS),
    st.builds(lambda text: Array(str, (text,)), _TEXTS),
    st.builds(lambda text: Described(Symbol("x"), text), _TEXTS),
)
telling_samples = st.builds(
    Sample,
    message_annotations=st.none() | st.dictionaries(st.just(Symbol("kind")), _telling_values),
    properties=st.none() | _TEXTS.map(lambda text: [None, None, None, text]),
    application_properties=st.dictionaries(st.sampled_from(["kind", "n"]), _telling_values),
)
