"""Inquiries and descriptions as bytes."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.describing.describing import NAMED_MAX
from amqp_streams.homes.messages import Described, Description, Inquiry, Kept, Named, Subject
from amqp_streams.homes.protocol.descriptions import (
    DESCRIPTION_BYTES_MAX,
    DESCRIPTION_CHARACTERS_MAX,
    INQUIRIES_BYTES_MAX,
    INQUIRY_BYTES_MAX,
    OWNERS_AN_ITEM,
    SUBJECTS_MAX,
    UNFINISHED_BYTES_MAX,
    Descriptions,
    Inquiries,
    description_parts,
    inquiry_parts,
)
from amqp_streams.homes.protocol.frames import FrameError
from amqp_streams.homes.protocol.parts import PART_BYTES
from amqp_streams.streams.groups.claims import GROUP_CHARACTERS_MAX

NUMBERS = st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8"))
NAMES = st.none() | TEXTS
BUCKET = st.integers(0, BUCKETS - 1)
SUBJECTS = st.lists(st.builds(Subject, BUCKET, TEXTS, NAMES, NAMES), max_size=4).map(tuple)
NAMED_BUCKETS = st.lists(BUCKET, max_size=3).map(tuple)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3).map(tuple)
OWNERS = st.lists(st.tuples(st.integers(0, 2**31 - 1), TEXTS), max_size=3).map(tuple)
KEPT = st.none() | st.builds(Kept, NAMES, NUMBERS, PAIRS)
DESCRIBED = st.builds(
    Described, st.integers(0, SUBJECTS_MAX - 1), st.booleans(), st.booleans(), NUMBERS, OWNERS, PAIRS, KEPT
)
ITEMS = st.lists(
    st.one_of(DESCRIBED, st.builds(Named, BUCKET, TEXTS, TEXTS)),
    max_size=4,
    unique_by=lambda each: getattr(each, "at", each),
).map(tuple)


def inquiry_of(parts: list[bytes]) -> Inquiry:
    inquiries = Inquiries()
    taken = [inquiries.take(part) for part in parts]
    assert not any(taken[:-1])
    assert taken[-1] is not None
    return taken[-1]


def description_of(parts: list[bytes]) -> Description:
    descriptions = Descriptions()
    taken = [descriptions.take(part) for part in parts]
    assert not any(taken[:-1])
    assert taken[-1] is not None
    return taken[-1]


@given(st.builds(Inquiry, NUMBERS, SUBJECTS, NAMED_BUCKETS))
def test_an_inquiry_is_read_as_it_was_written(inquiry: Inquiry) -> None:
    assert inquiry_of(list(inquiry_parts(inquiry))) == inquiry


@given(st.builds(Description, NUMBERS, NAMED_BUCKETS, ITEMS))
def test_a_description_is_read_as_it_was_written(description: Description) -> None:
    assert description_of(list(description_parts(description))) == description


def test_a_group_with_many_owners_is_described_in_several_parts() -> None:
    owners = tuple((index, "m" * 400) for index in range(5 * OWNERS_AN_ITEM + 1))
    items = (Described(0, True, True, 2, owners), Described(1, False), Named(3, "log", "g"))
    description = Description(7, (3,), items)
    parts = list(description_parts(description))
    assert len(parts) > 3
    assert max(map(len, parts)) < 3 * PART_BYTES
    assert description_of(parts) == description


def test_the_largest_inquiry_and_description_fit() -> None:
    """Three bytes for each character, or two in JSON."""
    for letter in ("\u20ac", '"'):
        name = letter * GROUP_CHARACTERS_MAX
        subjects = tuple(Subject(BUCKETS - 1, "i" * 22, name) for _ in range(SUBJECTS_MAX))
        assert sum(map(len, inquiry_parts(Inquiry(1, subjects)))) < INQUIRY_BYTES_MAX
        named = (Named(15, "i" * 22, name),) * NAMED_MAX
        member = "\x01" * (DESCRIPTION_CHARACTERS_MAX // SUBJECTS_MAX)
        items = tuple(
            Described(at, True, True, 9, ((0, member),), ((0, 2**64 - 1),), Kept(None, 2**50, ((0, 2**63),)))
            for at in range(SUBJECTS_MAX)
        )
        size = sum(map(len, description_parts(Description(1, (), (*items, *named)))))
        assert size < DESCRIPTION_BYTES_MAX


def test_messages_have_a_largest_size_and_a_largest_number_of_subjects() -> None:
    inquiries, body = Inquiries(), json.dumps({"number": 1, "more": True, "pad": "x" * (1 << 20)}).encode()
    for part in range(3):
        inquiries.take(body[:-1] + b',"part":%d}' % part)
    with pytest.raises(FrameError, match=f"more than {INQUIRY_BYTES_MAX} bytes"):
        inquiries.take(body[:-1] + b',"part":3}')
    many = Inquiry(1, tuple(Subject(0, "i", "g") for _ in range(SUBJECTS_MAX + 1)))
    with pytest.raises(FrameError, match=f"and may have {SUBJECTS_MAX}"):
        inquiry_of(list(inquiry_parts(many)))
    # Several nodes can inquire, and several homes answer, at the same time.
    assert INQUIRIES_BYTES_MAX > INQUIRY_BYTES_MAX
    assert UNFINISHED_BYTES_MAX > DESCRIPTION_BYTES_MAX


def test_each_owner_has_a_partition() -> None:
    body = json.dumps({"number": 1, "items": [{"at": 0, "exists": True, "members": ["a"]}]}).encode()
    with pytest.raises(FrameError, match=r"members must be one for each of the partitions"):
        Descriptions().take(body)


def test_fields_of_a_later_version_are_ignored() -> None:
    (body,) = inquiry_parts(Inquiry(1, (Subject(0, "i", "g"),)))
    assert Inquiries().take(body[:-1] + b',"later":[1]}') == Inquiry(1, (Subject(0, "i", "g"),))


@given(
    st.binary()
    | st.dictionaries(TEXTS, NUMBERS | TEXTS | st.none()).map(lambda each: json.dumps(each).encode())
    | st.fixed_dictionaries(
        {"number": NUMBERS, "items": st.lists(st.dictionaries(st.sampled_from(("at", "kept")), NUMBERS))}
    ).map(lambda each: json.dumps(each).encode())
)
def test_garbage_gives_the_documented_error_only(body: bytes) -> None:
    for reader in (Inquiries(), Descriptions()):
        with contextlib.suppress(FrameError):
            reader.take(body)
