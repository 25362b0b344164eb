"""Frames are split as they were written, and flows that ask for an echo are found in blocks of any size."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Connection, Transport

from amqp_streams.errors import WireError
from amqp_streams.wire import frames
from amqp_streams.wire.codec import Described, Symbol, UInt, ULong, encode
from amqp_streams.wire.frames import (
    FIELDS,
    FLOW_SIZE_MAX,
    NAMES,
    SASL,
    Echo,
    EchoFinder,
    Frame,
    attach_handle,
    find_echoes,
    flow_frame,
    frame,
    performative,
    read_frame,
    read_frames,
    read_performative,
)

TRANSFER = frame(0, bytes.fromhex("005314c00b0543304300a001004342") + b"\x00\x53\x75\xa0\x04body")
uints = st.integers(0, (1 << 32) - 1)
channels = st.integers(0, 65535)


def flow(channel: int = 1, handle: int | None = 2, *, echo: bool = True, **fields: Any) -> bytes:
    return flow_frame(
        channel,
        next_incoming_id=1,
        incoming_window=100,
        next_outgoing_id=2,
        outgoing_window=100,
        handle=handle,
        delivery_count=None if handle is None else 3,
        link_credit=None if handle is None else 10,
        echo=echo,
        **fields,
    )


@given(st.lists(st.tuples(channels, st.binary(max_size=40))), st.integers(0, 20))
def test_frames_are_read_as_written_and_a_part_of_one_is_waited_for(
    written: list[tuple[int, bytes]], cut: int
) -> None:
    data = b"".join([frame(channel, body) for channel, body in written])
    assert list(read_frames(data)) == [Frame(0, channel, body) for channel, body in written]
    if written:
        last = len(written[-1][1]) + 8
        shorter = list(read_frames(data[: len(data) - 1 - cut % last]))
        assert shorter == [Frame(0, channel, body) for channel, body in written[:-1]]


def test_a_frame_with_an_extended_header_is_read() -> None:
    assert read_frame(bytes.fromhex("0000000e 03 01 0005 ffffffff 4142")) == (Frame(SASL, 5, b"AB"), 14)


@pytest.mark.parametrize(
    "header", ["00000007 02 00 0000", "00000008 01 00 0000", "00000008 03 00 0000", "00000000 00 00 0000"]
)
def test_a_frame_that_cannot_be_is_an_error(header: str) -> None:
    with pytest.raises(WireError, match="frame at byte 0"):
        read_frame(bytes.fromhex(header))


def test_a_frame_beyond_the_limit_is_refused_before_it_is_there() -> None:
    with pytest.raises(WireError, match="513 bytes; at most 512"):
        read_frame(frame(0, bytes(505))[:8], size_max=512)


@pytest.mark.parametrize("code", FIELDS)
def test_a_performative_is_read_as_written(code: int) -> None:
    fields = {field: Symbol(field) for field in FIELDS[code]}
    body = performative(NAMES[code], fields) + b"payload"
    read = read_performative(body)
    assert (read.name, dict(read.fields), read.payload) == (NAMES[code], fields, b"payload")
    assert set(read_performative(performative(NAMES[code], {})).fields.values()) == {None}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x45",
        encode(Described(ULong(0x10), {})),
        encode(Described(ULong(0x30), [])),
        encode(Described(Symbol("x"), [])),
    ],
)
def test_a_body_that_is_not_a_performative_is_an_error(body: bytes) -> None:
    with pytest.raises(WireError):
        read_performative(body)


def proton_output() -> bytes:
    connection, transport = Connection(), Transport(Transport.CLIENT)
    transport.bind(connection)
    connection.container = "probe"
    connection.open()
    session = connection.session()
    session.open()
    receiver = session.receiver("link")
    receiver.source.address = "temps"
    receiver.open()
    receiver.flow(10)
    sent = transport.peek(transport.pending())
    assert sent
    return bytes(sent)


def test_frames_of_proton_are_read() -> None:
    read = [read_performative(found.body) for found in read_frames(proton_output()[8:])]
    assert [performative.name for performative in read] == ["open", "begin", "attach", "flow"]
    assert read[0].fields["container-id"] == "probe"
    assert read[2].fields["name"] == "link"
    assert read[3].fields["link-credit"] == 10
    assert find_echoes(proton_output()) == []


def test_proton_takes_a_flow_of_ours() -> None:
    connection, transport = Connection(), Transport(Transport.SERVER)
    transport.bind(connection)
    sent = proton_output()
    transport.push(sent)
    transport.push(flow(channel=0, handle=0, properties={"x": 1}))
    assert transport.condition is None
    link = connection.link_head(0)
    assert link is not None
    assert link.credit == 13  # delivery-count 3 + link-credit 10, and nothing was sent


flow_fields = st.fixed_dictionaries(
    {
        "next_incoming_id": st.none() | uints,
        "incoming_window": uints,
        "next_outgoing_id": uints,
        "outgoing_window": uints,
        "handle": st.none() | uints,
        "delivery_count": st.none() | uints,
        "link_credit": st.none() | uints,
        "available": st.none() | uints,
        "drain": st.booleans(),
        "echo": st.booleans(),
    }
)


@given(channels, flow_fields)
def test_a_flow_says_what_it_was_given(channel: int, fields: dict[str, Any]) -> None:
    written = flow_frame(channel, **fields)
    ((_, at, body),) = read_frames(written)
    read = read_performative(body).fields
    assert at == channel
    assert {
        name.replace("_", "-"): value or None if value is False else value for name, value in fields.items()
    }.items() <= read.items()
    excess = (fields["link_credit"] or 0) > (1 << 31) - 1
    wanted = [Echo(channel, fields["handle"], fields["echo"], excess)]
    assert find_echoes(written) == (wanted if fields["echo"] or excess else [])


@given(
    st.lists(
        st.sampled_from(
            [
                TRANSFER,
                flow(echo=False),
                flow(3, 4),
                flow(5, None),
                flow(6, 7, properties={"p": "q" * 300}),
                b"\x00\x53\x13" * 3,
                frame(0, b""),
            ]
        ),
        max_size=12,
    ),
    st.data(),
)
def test_each_echo_of_a_stream_is_found_once_however_it_is_cut(
    parts: list[bytes], data: st.DataObject
) -> None:
    stream = b"AMQP\x00\x01\x00\x00" + b"".join(parts)
    expected = find_echoes(stream)
    assert expected == [echo for part in parts for echo in find_echoes(part)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    finder = EchoFinder()
    found: list[Echo] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += finder.feed(stream[start:end])
    assert found == expected


def test_each_echo_is_found_once_byte_by_byte() -> None:
    stream = (
        TRANSFER * 10
        + flow(1, 2)
        + TRANSFER
        + flow(3, None)
        + flow(4, 5, properties={"p": "q" * 400})
        + TRANSFER * 20
    )
    finder = EchoFinder()
    found = [echo for byte in stream for echo in finder.feed(bytes((byte,)))]
    assert found == [Echo(1, 2), Echo(3, None), Echo(4, 5)]


def test_echoes_are_found_among_bytes_that_are_all_candidates() -> None:
    block = b"\x13" * 3 * frames._SCAN_CANDIDATES_MAX
    assert find_echoes(block + flow(1, 2) + block + flow(3, 4)) == [Echo(1, 2), Echo(3, 4)]


def test_a_flow_in_the_wide_encodings_is_found() -> None:
    fields = bytes.fromhex("7000000001") * 4 + bytes.fromhex("7000000009") + b"\x40" * 4 + b"\x56\x01"
    body = b"\x00\x53\x13\xd0" + (len(fields) + 4).to_bytes(4) + (10).to_bytes(4) + fields
    assert find_echoes(frame(258, body)) == [Echo(258, 9)]


flows = st.lists(
    st.sampled_from(
        [
            b"\x00\x53\x13",
            b"\xc0\x20\x0a",
            b"\xd0\x00\x00\x00",
            b"\x02\x00\x00\x01",
            b"\x00\x00\x00\x20",
            b"\x41" * 10,
            b"\x43" * 9,
        ]
    ),
    max_size=12,
)


@given(flows.map(b"".join) | st.binary(max_size=60))
def test_bytes_that_only_look_like_a_flow_do_no_harm(block: bytes) -> None:
    find_echoes(block)
    finder = EchoFinder()
    for at in range(len(block)):
        finder.feed(block[at : at + 1])
    with contextlib.suppress(WireError):
        list(read_frames(block))
    with contextlib.suppress(WireError):
        read_performative(block)


def test_a_block_larger_than_the_seam_keeps_only_its_end() -> None:
    finder = EchoFinder()
    whole = flow(1, 2)
    assert finder.feed(TRANSFER * (FLOW_SIZE_MAX // len(TRANSFER) + 1) + whole[:20]) == []
    assert finder.feed(whole[20:] + TRANSFER * 100) == [Echo(1, 2)]
    assert finder.feed(TRANSFER * 100) == []


def test_a_flow_for_the_session_has_no_handle() -> None:
    ((_, _, body),) = read_frames(flow(handle=None))
    assert read_performative(body).fields["handle"] is None
    assert read_performative(body).fields["incoming-window"] == UInt(100)


@pytest.mark.parametrize(
    "fields",
    [
        "c0 0c 0a 43 43 43 43 43 40 40 40 40 3f",  # no value where the echo would be
        "c0 0c 0a 43 43 43 43 a1 ff 40 40 40 41",  # a handle that goes beyond the end
        "c0 0d 0a 43 43 43 43 50 01 40 40 40 40 41",  # a handle that is not a uint
        "c0 0c 0a 43 43 43 43 43 40 40 40 40 42",  # echo false
        "c0 0b 09 43 43 43 43 43 40 40 40 40",  # no echo at all
        "d0",
        "c1 01 00",
    ],
)
def test_a_malformed_flow_or_one_without_a_request_gets_no_echo(fields: str) -> None:
    assert find_echoes(frame(0, b"\x00\x53\x13" + bytes.fromhex(fields))) == []


@given(st.binary(max_size=700), st.integers(min_value=0, max_value=60))
def test_a_flow_that_begins_in_a_skipped_block_is_found_where_it_ends(before: bytes, cut: int) -> None:
    """Blocks that contain only transfers are not searched, but the flow after them may have begun in one."""
    wanted = flow_frame(
        3, next_incoming_id=1, incoming_window=2, next_outgoing_id=3, outgoing_window=4, handle=5, echo=True
    )
    stream, end = before + wanted, len(before) + min(cut, len(wanted) - 1)
    finder = EchoFinder()
    finder.skip(stream[:end][-FLOW_SIZE_MAX:])
    assert Echo(3, 5) in finder.feed(stream[end:])


@pytest.mark.parametrize("name", ["link", "l" * 300, "\N{SNOWMAN}"])
def test_the_handle_of_an_attach_is_found_among_any_fields(name: str) -> None:
    body = performative("attach", {"name": name, "handle": UInt(700), "role": True})
    assert attach_handle(body) == 700
    assert attach_handle(body.replace(name.encode(), b"\xff" * len(name.encode()))) == 700
    assert attach_handle(body[:12]) is None
    assert attach_handle(performative("flow", {"handle": UInt(7)})) is None
