"""Sections are found in every encoding, and malformed messages are reported."""

import pytest
from hypothesis import given

from amqp_streams.errors import WireError
from amqp_streams.wire.layout import NAMES, bare_message_start, find_section, sections
from tests.amqp_streams.wire.messages import VALUES, messages, short


@given(messages())
def test_every_form_of_every_section_is_found(message: tuple[list[int], list[bytes]]) -> None:
    codes, parts = message
    found = sections(b"".join(parts))
    assert [section.code for section in found] == codes
    assert [b"".join(parts)[section.start : section.end] for section in found] == parts


@given(messages())
def test_the_bare_message_begins_after_the_annotations(message: tuple[list[int], list[bytes]]) -> None:
    codes, parts = message
    front = [part for code, part in zip(codes, parts, strict=True) if code < 0x73]
    assert bare_message_start(b"".join(parts)) == len(b"".join(front))


@pytest.mark.parametrize(
    "codes",
    [
        [0x72, 0x71],
        [0x73, 0x73],
        [0x75, 0x76],
        [0x77, 0x77],
        [0x76, 0x75],
        [0x78, 0x75],
        [0x74, 0x70],
        [0x78, 0x78],
    ],
)
def test_a_walk_refuses_sections_out_of_order(codes: list[int]) -> None:
    with pytest.raises(WireError, match="may not follow"):
        sections(b"".join([short(code, VALUES[code]) for code in codes]))


@pytest.mark.parametrize("code", [code for code in VALUES if code != 0x77])
def test_a_walk_refuses_sections_of_the_wrong_type(code: int) -> None:
    with pytest.raises(WireError, match=f"not a constructor of {NAMES[code]}"):
        sections(short(code, 1.5))


@given(messages())
def test_the_first_section_of_a_kind_is_found_before_the_body(message: tuple[list[int], list[bytes]]) -> None:
    codes, parts = message
    received = b"".join(parts)
    for code in (0x70, 0x71, 0x72, 0x73, 0x74):
        found = find_section(received, code)
        if code not in codes:
            assert found is None
        else:
            before = b"".join(parts[: codes.index(code)])
            assert found is not None
            assert found.end == len(before) + len(parts[codes.index(code)])
            assert parts[codes.index(code)].endswith(received[found.start : found.end])
