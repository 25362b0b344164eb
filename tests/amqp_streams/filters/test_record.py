"""Fields are found in any message, and no producer can make the search slow."""

import pytest
from hypothesis import given

from amqp_streams.filters.record import (
    COMPOUND_BYTES_MAX,
    ENTRIES_MAX,
    SECTIONS_MAX,
    VALUE_BYTES_MAX,
    WORK_MAX,
    getter,
    once,
    whole_map,
    with_default,
)
from amqp_streams.filters.values import FAILED, MISSING, TEXT_MAX
from amqp_streams.wire.types import Described, Symbol, Timestamp, Value
from tests.amqp_streams.decoded import mapping
from tests.amqp_streams.filters.messages import Sample, truth
from tests.amqp_streams.filters.trees import samples

APPLICATION, PROPERTIES, DELIVERY = 0x74, 0x73, 0x71


def found(sample, name, section=APPLICATION):
    return getter(section, name)(sample.record())


def raw(message, name="kind", section=APPLICATION):
    record = Sample().record()
    record.turn_to(message, 7, 1000)
    return getter(section, name)(record)


@given(samples)
def test_every_entry_of_every_map_is_found(sample):
    record = sample.record()
    for section, entries in (
        (0x72, sample.message_annotations),
        (APPLICATION, sample.application_properties),
        (0x78, sample.footer),
    ):
        whole = mapping(whole_map(section)(record))
        assert list(whole) == list(entries or {})
        for name in ("kind", "n", "in", "odd name", "b]c[", "none"):
            value = getter(section, name)(record)
            expected = (entries or {}).get(name, MISSING)
            assert value is expected or repr(value) == repr(expected)  # a not-a-number equals nothing


def test_a_key_that_also_occurs_as_a_value_is_not_confused_with_it():
    sample = Sample(
        application_properties={"other": "kind", "kin": "\x04kind\xa1\x01x", "kind": "right", "last": "kind"}
    )
    assert found(sample, "kind") == "right"
    assert found(Sample(application_properties={"other": "kind"}), "kind") is MISSING
    assert found(Sample(application_properties={"other": {"kind": 1}}), "kind") is MISSING
    assert found(Sample(application_properties={"kindness": 1, "other": "\x04kind"}), "kind") is MISSING


def test_of_equal_keys_the_last_one_counts():
    """The codec has the same rule."""
    assert raw(b"\x00\x53\x74\xc1\x12\x04\xa1\x04kind\x54\x01\xa3\x04kind\x54\x02") == 2


def test_delivery_annotations_are_those_of_the_node():
    sample = Sample(number=5, timestamp_ms=6)
    assert found(sample, "event-streams-offset", DELIVERY) == Symbol("0000000000000005")
    assert found(sample, "event-streams-timestamp", DELIVERY) == Timestamp(6)
    assert found(sample, "event-streams-source-partition", DELIVERY) == Symbol("3")
    assert found(sample, "event-streams-target-partition", DELIVERY) is MISSING


def test_lists_shorter_than_the_field_are_as_good_as_null():
    assert found(Sample(properties=[]), "subject", PROPERTIES) is MISSING
    assert found(Sample(properties=[None, None, "to"]), "subject", PROPERTIES) is MISSING
    assert found(Sample(properties=[None, None, None, None]), "subject", PROPERTIES) is MISSING
    assert with_default(0x70, "priority")(Sample(header=[True]).record()) == 4


@pytest.mark.parametrize(
    "message",
    [
        b"\x00\x53\x74\xc1\x0a\x02\xa1\x04kind\xa1\x09x",
        b"\x00\x53\x74\xa1\x04kind",
        b"\x00\x53\x74\xc1",
        b"\x00\x53\x74\xd1\x00\x00",
        b"\x00\x53\x74\xc1\x0a\x02\xff\x04kind\xa1\x01x",
        b"\x00\x53\x73\xc0\xff\x00\x00\x53\x74\xc1",
        b"\x00\x53\x75\xff",
        b"\x00\x53\x01\x45",
        b"nonsense",
        b"",
    ],
)
def test_malformed_bytes_fail_or_are_missing_and_never_raise(message):
    assert raw(message) in (FAILED, MISSING)
    assert raw(message, "subject", PROPERTIES) in (FAILED, MISSING)
    assert raw(message, "sum", 0x78) in (FAILED, MISSING)


def test_maps_of_very_many_entries_fail():
    few = {f"k{n}": n for n in range(ENTRIES_MAX - 1)} | {"kind": "x"}
    assert found(Sample(application_properties=few), "kind") == "x"
    many = {f"k{n}": n for n in range(ENTRIES_MAX)} | {"kind": "x"}
    assert found(Sample(application_properties=many), "kind") is FAILED


def test_very_large_values_fail():
    assert found(Sample(application_properties={"kind": "x" * (VALUE_BYTES_MAX - 5)}), "kind") == "x" * (
        VALUE_BYTES_MAX - 5
    )
    assert found(Sample(application_properties={"kind": "x" * VALUE_BYTES_MAX}), "kind") is FAILED
    large: list[Value] = ["x"] * (COMPOUND_BYTES_MAX // 3 + 1)
    assert found(Sample(application_properties={"kind": large}), "kind") is FAILED
    assert found(Sample(application_properties={"kind": Described(Symbol("x"), large)}), "kind") is FAILED
    assert len(found(Sample(application_properties={"kind": large[:1000]}), "kind")) == 1000


def test_a_field_is_looked_for_once_a_record():
    record = Sample(application_properties={"kind": "one"}).record()
    get = with_default(APPLICATION, "kind")
    assert get(record) == "one"
    record.message = b""
    assert get(record) == "one"
    record.turn_to(Sample(application_properties={"kind": "two"}).encoded(), 8, 1001)
    assert (get(record), record.number, record.timestamp_ms) == ("two", 8, 1001)
    record.turn_to(Sample().encoded(), 9, 1001)
    assert get(record) is MISSING


def test_texts_do_not_grow_without_bound():
    long = Sample(application_properties={"x": "x" * (TEXT_MAX // 2), "y": "y" * (TEXT_MAX + 1)})
    assert truth("x + x IS NOT NULL", long) is True
    assert truth("x + x + 'x' IS NOT NULL", long) is FAILED
    assert truth("UPPER(y) IS NOT NULL", long) is FAILED
    assert truth("LEFT(y, 1) = 'y'", long) is True


def test_sections_that_a_filter_does_not_name_are_not_decoded():
    """Malformed maps are covered elsewhere."""
    wrong = b"\xc1\x04\x02\xa1\x01k"  # a map that ends where its value should be
    message = (
        b"\x00\x53\x70\xc0\x03\x02\xff\xff\x00\x53\x72" + wrong + b"\x00\x53\x73\xc0\x02\x01\xff"
        b"\x00\x53\x74\xc1\x05\x02\xa1\x01n\x41\x00\x53\x75\xa0\x01x\x00\x53\x78" + wrong
    )
    assert raw(message, "n") is True
    for section, name in ((0x70, "priority"), (0x72, "k"), (PROPERTIES, "message-id"), (0x78, "k")):
        assert raw(message, name, section) is FAILED


def test_a_key_of_the_message_does_not_make_the_search_slow():
    """Searching backwards takes the product of both lengths: a second for each MiB that a producer fills with
    the filter's key.
    """
    name = "b" + "a" * (97 + 15 * 256 - 1)
    large = Sample(application_properties={"other": "a" * (1 << 20), "x": 1})
    record = large.record()
    assert getter(APPLICATION, name)(record) is MISSING
    assert record.work <= 1 << 20
    assert (
        found(Sample(application_properties={"other": "a" * (1 << 20), name: "here", "last": 1}), name)
        == "here"
    )


def test_all_fields_of_a_record_share_its_work():
    """A filter names hundreds of fields, and the producer makes each of them large."""
    texts = {f"k{n}": "x" * (VALUE_BYTES_MAX - 100) for n in range(15)}
    record = Sample(application_properties=texts).record()
    values = [once(APPLICATION, name)(record) for name in texts]
    assert values[0] == texts["k0"]
    assert values[-1] is FAILED
    assert once(APPLICATION, "k0")(record) == texts["k0"]
    record.turn_to(Sample(application_properties={"k0": "next"}).encoded(), 8, 1000)
    assert once(APPLICATION, "k0")(record) == "next"


def test_a_large_compound_is_decoded_once_however_often_it_is_asked_for():
    items = ["x"] * 10_000
    record = Sample(application_properties={"kind": items}).record()
    for get in (once(APPLICATION, "kind"), with_default(APPLICATION, "kind"), once(APPLICATION, "kind")):
        assert get(record) == items
    assert record.work < WORK_MAX // 2
    record = Sample(message_annotations={Symbol("kind"): items}).record()
    assert whole_map(0x72)(record) is whole_map(0x72)(record)


@pytest.mark.parametrize("data", [b"\x00\x53\x75\xa0\x00", b"\x00\x80" + bytes(7) + b"\x75\xa0\x00"])
def test_many_sections_before_the_footer_fail(data):
    footer = b"\x00\x53\x78\xc1\x08\x02\xa1\x04kind\x41"
    assert raw(data * (SECTIONS_MAX - 1) + footer, section=0x78) is True
    assert raw(data * SECTIONS_MAX + footer, section=0x78) is FAILED
