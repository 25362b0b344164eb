"""Bytes that a matching message must contain: they never exclude a message that the filter passes."""

from hypothesis import given, settings

from amqp_streams.filters.language.parser import parse
from amqp_streams.filters.language.syntax import Dialect
from amqp_streams.filters.needles import Required, either, required, text_needle
from tests.amqp_streams.filters import naive
from tests.amqp_streams.filters.messages import LIMITS
from tests.amqp_streams.filters.trees import telling_predicates, telling_samples
from tests.properties import examples


@settings(max_examples=examples(250), deadline=None)
@given(telling_predicates, telling_samples)
def test_bytes_that_a_filter_requires_are_in_every_message_that_it_lets_through(tree, sample):
    if naive.holds(tree, sample) is True:
        message = sample.encoded()
        for clause in required(tree).most_selective():
            assert any(needle in message for needle in clause), (clause, message)


def test_filters_that_name_a_field_or_its_value_require_bytes():
    """The law above would hold if nothing were required."""
    for text, clauses in (
        ("kind = 'alarm'", ((b"\x05alarm",), (b"\x04kind",))),
        ("'alarm' = kind AND n > 5", ((b"\x05alarm",), (b"\x04kind",), (b"\x01n",))),
        ("kind IN ('alarm', 'fire')", ((b"\x05alarm", b"\x04fire"), (b"\x04kind",))),
        ("kind = 'alarm' OR m.n = 'x'", ((b"\x05alarm", b"\x01x"),)),
        ("kind = 'alarm' OR n IS NULL", ()),
        ("kind LIKE 'ab_cde%f'", ((b"cde",), (b"\x04kind",))),
        ("p.subject = 'alarm'", ((b"\x05alarm",),)),
        ("kind <> 'alarm'", ((b"\x04kind",),)),
        ("NOT kind = 'alarm'", ((b"\x04kind",),)),
        ("kind = '2020-01-01'", ((b"\x04kind",),)),
        ("EXISTS(kind)", ((b"\x04kind",),)),
        ("NOT EXISTS(kind)", ()),
        ("kind IS NULL", ()),
        ("h.priority = 5", ()),
        ("-n + 1 = LEFT(kind, 2)", ((b"\x01n",), (b"\x04kind",))),
        ("kind = acme:f(n)", ((b"\x04kind",),)),
        ("n IS NOT NULL AND m.n", ((b"\x01n",),)),
        ("(kind = 'alarm' OR kind = 'fire') AND n = 1", ((b"\x05alarm", b"\x04fire"), (b"\x01n",))),
        ("kind LIKE '%' AND n LIKE n", ((b"\x04kind",), (b"\x01n",))),
        ("kind LIKE 'ab!%' ESCAPE '!'", ((b"ab%",), (b"\x04kind",))),
        ("kind LIKE 'ab' ESCAPE NULL", ((b"\x04kind",),)),
    ):
        assert required(parse(text, Dialect.SQL, LIMITS)).most_selective() == clauses, text


def test_long_texts_are_looked_for_by_the_last_byte_of_their_length():
    """A short encoding has one byte of length, a long one four: the last byte is the same in both."""
    assert text_needle("x" * 300) == b"\x2c" + b"x" * 300
    assert text_needle("\u00e9") == b"\x02\xc3\xa9"


def test_alternatives_are_required_only_if_each_branch_has_one_and_they_are_few():
    value, key = Required(values=((b"v",),)), Required(keys=((b"k",),))
    assert either([value, key]) == Required(keys=((b"v", b"k"),))
    assert either([value, value]) == value
    assert either([value, Required()]) == Required()
    assert either([]) == Required()
    assert either([Required(values=((bytes((n,)),),)) for n in range(9)]) == Required()
