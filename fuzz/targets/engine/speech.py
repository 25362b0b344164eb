"""What a peer might say: frames that are mostly right, in an order that mostly makes sense, with something
wrong now and then.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from amqp_streams import names
from amqp_streams.testing_amqp.script import AMQP_HEADER, frame_of, terminus
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.frames import flow_frame, frame
from amqp_streams.wire.types import Array, Described, Symbol, UByte, UInt, ULong, UShort, Value
from fuzz.draw import Draw
from fuzz.values import mapping, text, value

STEPS_MAX: Final = 24
ADDRESSES: Final = (
    *4 * ("events",),
    "single",
    "single",
    "events/$info",
    "$management",
    "nowhere",
    None,
    "",
    "$cbs",
    "events/$x",
    "e" * 300,
)
_FILTERS: Final = (
    *3 * (names.FILTER_DELIVERY_ANNOTATIONS,),
    names.FILTER_SQL,
    names.FILTEX_SQL,
    names.FILTEX_PROPERTIES,
    names.SELECTOR,
)


def conversation(draw: Draw) -> list[bytes]:
    """Blocks of bytes, from the protocol header on. The security layer, if there is one, is over."""
    blocks = [AMQP_HEADER if not draw.chance(16) else draw.raw(12)]
    if not draw.chance(16):
        blocks.append(_open(draw) + _begin(draw))
        for _ in range(draw.below(5)):
            blocks += draw.pick((_reads, _reads, _writes, _loosely))(draw)
    blocks += frames_of(draw)
    return blocks


def _reads(draw: Draw) -> list[bytes]:
    """A consumer as it should be, and what it says of what it gets."""
    handle = _new_handle(draw)
    start = Described(Symbol(names.FILTER_DELIVERY_ANNOTATIONS), {Symbol(names.OFFSET): Symbol("@earliest")})
    filters: Value = {Symbol("start"): start} if not draw.chance(3) else _filter(draw)
    more: dict[str, Value] = {"durable": UInt(2), "expiry_policy": Symbol("never")} if draw.chance(3) else {}
    source = terminus(0x28, draw.pick(("events", "single", "events/$info")), filter=filters, **more)
    attach = frame_of(
        "attach",
        name=f"reads-{handle}",
        handle=UInt(handle),
        role=True,
        rcv_settle_mode=UByte(1) if draw.chance(4) else None,
        source=source,
        target=terminus(0x29, None),
        properties=_properties(draw),
    )
    credit = {"handle": UInt(handle), "delivery_count": UInt(0), "link_credit": UInt(draw.pick((1, 10, 100)))}
    window = {"incoming_window": UInt(1 << 20), "next_outgoing_id": UInt(0), "outgoing_window": UInt(1 << 20)}
    flow = frame_of("flow", next_incoming_id=UInt(0), **window, **credit)
    return [attach, flow, *(_disposition(draw) for _ in range(draw.below(4)))]


def _writes(draw: Draw) -> list[bytes]:
    """A producer as it should be, and what it sends."""
    handle = _new_handle(draw)
    target = terminus(0x29, draw.pick(("events", "events", "single", "$management", None)))
    attach = frame_of(
        "attach",
        name=f"writes-{handle}",
        handle=UInt(handle),
        role=False,
        source=terminus(0x28, "here"),
        target=target,
        initial_delivery_count=UInt(0),
        properties=_properties(draw),
    )
    sent = [
        frame_of(
            "transfer",
            message(draw),
            handle=UInt(handle),
            delivery_id=UInt(number),
            delivery_tag=b"%d" % number,
            settled=draw.chance(4) or None,
        )
        for number in range(draw.below(4))
    ]
    return [attach, *sent]


def _loosely(draw: Draw) -> list[bytes]:
    return [draw.pick(_ATTACHES)(draw), draw.pick(_USES)(draw)]


def frames_of(draw: Draw) -> list[bytes]:
    """Frames of any kind until the choices end, each perhaps damaged."""
    return [_damaged(draw, draw.pick(_FRAMES)(draw)) for _ in range(1 + draw.below(STEPS_MAX)) if draw.left]


def flows(draw: Draw) -> list[bytes]:
    """Flows as our own writer makes them, some asking for an echo."""
    return [
        flow_frame(
            draw.below(3),
            next_incoming_id=draw.pick((None, 0, 7)),
            incoming_window=draw.number(2),
            next_outgoing_id=draw.number(4),
            outgoing_window=1,
            handle=draw.pick((None, 0, 5, 1 << 31)),
            link_credit=draw.pick((None, 1, 1000)),
            drain=draw.chance(3),
            echo=draw.chance(2),
        )
        for _ in range(1 + draw.below(6))
    ]


def _damaged(draw: Draw, data: bytes) -> bytes:
    match draw.byte():
        case damage if damage < 0xF4:
            return data
        case damage if damage < 0xF7:
            changed = bytearray(data)
            changed[draw.below(len(changed))] ^= 1 << draw.below(8)
            return bytes(changed)
        case damage if damage < 0xF9:
            return data[: draw.below(len(data) + 1)]
        case damage if damage < 0xFB:
            return data + data
        case damage if damage < 0xFD:
            return data + draw.raw(16)
        case _:
            return draw.raw(32)


def _with(draw: Draw, frame_name: str, payload: bytes = b"", /, **fields: Any) -> bytes:
    """A frame in which now and then a field is anything at all."""
    if draw.chance(24):
        fields[draw.pick(tuple(fields))] = value(draw)
    channel = draw.below(3) if draw.chance(24) else 0
    try:
        return frame_of(frame_name, payload, channel=channel, **fields)
    except ValueError:
        return frame(
            channel,
            encode(
                Described(ULong(draw.pick(range(0x10, 0x19))), [value(draw) for _ in range(draw.below(6))])
            )
            + payload,
        )


def _uint(draw: Draw) -> UInt:
    return UInt(draw.pick((0, 1, 2, 3, 7, 1000, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)))


def _new_handle(draw: Draw) -> int:
    """One that is free, mostly."""
    handle = len(draw.handles) if not draw.chance(16) else draw.below(6)
    draw.handles.append(handle)
    return handle


def _handle(draw: Draw) -> int:
    """One that is attached, mostly."""
    return draw.pick(draw.handles) if draw.handles and not draw.chance(16) else draw.below(6)


def _open(draw: Draw) -> bytes:
    if not draw.chance(4):
        return frame_of("open", container_id="peer", max_frame_size=UInt(4096))
    return _with(
        draw,
        "open",
        container_id=text(draw)[:64],
        hostname=draw.pick((None, "localhost", "x")),
        max_frame_size=draw.pick((None, UInt(512), UInt(4096), UInt(0), UInt(511), UInt((1 << 32) - 1))),
        channel_max=draw.pick((None, UShort(0), UShort(10), UShort(65535))),
        idle_time_out=draw.pick((None, None, UInt(0), UInt(1), UInt(30_000))),
        desired_capabilities=draw.pick(
            (None, Symbol(names.CAPABILITY_EVENT_STREAMS), Array(Symbol, (Symbol("x"),)))
        ),
        properties=draw.pick((None, {Symbol("product"): "azsdk-python-eventhubs"}, {})),
    )


def _begin(draw: Draw) -> bytes:
    window = UInt(draw.pick((1 << 20, 1 << 20, 1, 0, 1 << 31)))
    return _with(
        draw,
        "begin",
        remote_channel=None,
        next_outgoing_id=UInt(0),
        incoming_window=window,
        outgoing_window=UInt(2048),
        handle_max=None,
    )


def _properties(draw: Draw) -> Value:
    if draw.chance(3):
        return {
            Symbol(key): value(draw) if draw.chance(4) else wanted
            for key, wanted in _LINK_PROPERTIES
            if draw.chance(2)
        }
    return None if not draw.chance(6) else mapping(draw)


_LINK_PROPERTIES: Final[tuple[tuple[str, Value], ...]] = (
    (names.PARTITION, Symbol("1")),
    (names.CONSUMER_GROUP, "group"),
    (names.EPOCH, ULong(1)),
)


def _filter(draw: Draw) -> Value:
    if draw.chance(2):
        return None
    kind = draw.pick(_FILTERS)
    content: Value = draw.pick(("a = 1", "d.event-streams-offset > '@earliest'", "NOT", "a.x LIKE '%y%'"))
    if kind == names.FILTER_DELIVERY_ANNOTATIONS:
        content = {
            Symbol(names.OFFSET): Symbol(
                draw.pick(("@earliest", "@earliest", "@latest", "0000000000000001", "x"))
            )
        }
    return {Symbol("f"): Described(Symbol(kind), value(draw) if draw.chance(8) else content)}


def _producer(draw: Draw) -> bytes:
    return _attach(
        draw,
        receiver=False,
        target=terminus(0x29, draw.pick(ADDRESSES)),
        source=terminus(0x28, draw.pick((None, "here"))),
    )


def _consumer(draw: Draw) -> bytes:
    more: dict[str, Value] = {}
    if draw.chance(4):
        more = {
            "durable": UInt(draw.below(4)),
            "expiry_policy": Symbol(draw.pick(("never", "link-detach", "session-end", "x"))),
        }
    if draw.chance(8):
        more = {"dynamic": True}
    source = terminus(0x28, draw.pick(ADDRESSES), filter=_filter(draw), **more)
    return _attach(draw, receiver=True, source=source, target=terminus(0x29, draw.pick((None, "here"))))


def _attach(draw: Draw, *, receiver: bool, source: Value, target: Value) -> bytes:
    handle = _new_handle(draw) if not draw.chance(16) else draw.pick((1024, (1 << 31) - 1, (1 << 32) - 1))
    return _with(
        draw,
        "attach",
        name=draw.pick(("link", f"link-{handle}", text(draw)[:32])),
        handle=UInt(handle),
        role=receiver,
        snd_settle_mode=draw.pick((None, UByte(0), UByte(1), UByte(2), UByte(9))),
        rcv_settle_mode=draw.pick((None, UByte(0), UByte(1))),
        source=source,
        target=target,
        initial_delivery_count=None if receiver else UInt(draw.pick((0, 0, (1 << 32) - 1))),
        max_message_size=draw.pick((None, ULong(0), ULong(100))),
        properties=_properties(draw),
    )


def _flow(draw: Draw) -> bytes:
    linked = not draw.chance(5)
    return _with(
        draw,
        "flow",
        next_incoming_id=draw.pick((UInt(0), None, _uint(draw))),
        incoming_window=UInt(draw.pick((1 << 20, 0, 1))),
        next_outgoing_id=draw.pick((UInt(0), _uint(draw))),
        outgoing_window=UInt(1 << 20),
        handle=UInt(_handle(draw)) if linked else None,
        delivery_count=draw.pick((UInt(0), None, _uint(draw))) if linked else None,
        link_credit=draw.pick((UInt(10), UInt(1), _uint(draw))) if linked else None,
        drain=draw.chance(4) or None,
        echo=draw.chance(3) or None,
    )


def message(draw: Draw) -> bytes:
    """Bytes of a message, mostly one."""
    parts: list[tuple[int, Value]] = []
    if draw.chance(3):
        parts.append((0x70, [value(draw) for _ in range(draw.below(6))]))
    if draw.chance(3):
        parts.append(
            (
                0x71,
                {Symbol(names.TARGET_PARTITION): Symbol(draw.pick(("0", "1", "9")))}
                if draw.chance(2)
                else mapping(draw),
            )
        )
    if draw.chance(3):
        parts.append((0x72, {Symbol(names.GROUP_KEY): text(draw)} if draw.chance(2) else mapping(draw)))
    if draw.chance(2):
        parts.append(
            (
                0x73,
                [
                    draw.pick(("id", UInt(5), None)),
                    None,
                    draw.pick(("events", "$management", None)),
                    None,
                    draw.pick(("back", None)),
                ],
            )
        )
    if draw.chance(2):
        parts.append((0x74, _request(draw)))
    parts.append((0x75, draw.raw(64)) if draw.chance(2) else (0x77, mapping(draw)))
    data = b"".join(bytes((0, 0x53, code)) + encode(content) for code, content in parts)
    return data if not draw.chance(12) else data[: draw.below(len(data) + 1)] + draw.raw(8)


def _request(draw: Draw) -> Value:
    if draw.chance(3):
        return mapping(draw)
    types = (names.LOG_TYPE, names.CURSOR_TYPE, names.GROUP_TYPE, "x")
    operations = ("READ", "CREATE", "QUERY", "UPDATE", "DELETE", "GET-TYPES", "put-token")
    made: Mapping[Value, Value] = {
        "operation": draw.pick(operations),
        "type": draw.pick(types),
        "name": text(draw),
        "log": draw.pick(("events", "x")),
    }
    return dict(made)


def _transfer(draw: Draw) -> bytes:
    number = draw.below(200)
    return _with(
        draw,
        "transfer",
        message(draw),
        handle=UInt(_handle(draw)),
        delivery_id=draw.pick((UInt(number), UInt(number), None, _uint(draw))),
        delivery_tag=draw.pick((b"%d" % number, b"", b"\xff\xfe", draw.raw(40), None)),
        message_format=draw.pick((UInt(0), None, UInt(0x80013700))),
        settled=draw.chance(4) or None,
        more=draw.chance(6) or None,
        aborted=draw.chance(16) or None,
        state=Described(ULong(0x24), []) if draw.chance(12) else None,
        resume=draw.chance(20) or None,
    )


def _disposition(draw: Draw) -> bytes:
    outcomes: tuple[Value, ...] = (
        *(Described(ULong(code), []) for code in (0x23, 0x24, 0x25, 0x26, 0x27, 0x33, 0x34)),
        Described(ULong(0x23), [UInt(1), ULong(2)]),
        Described(ULong(0x27), [True, True, {Symbol("x"): 1}]),
        None,
    )
    first = draw.pick((0, 0, 0, 1, 2, 5, 1000, (1 << 32) - 1))
    return _with(
        draw,
        "disposition",
        role=not draw.chance(6),
        first=UInt(first),
        last=draw.pick((None, UInt(first), UInt(min(first + 10, (1 << 32) - 1)), _uint(draw))),
        settled=draw.chance(2) or None,
        state=draw.pick(outcomes),
        batchable=None,
    )


def _detach(draw: Draw) -> bytes:
    error = Described(ULong(0x1D), [Symbol("amqp:not-found"), "gone"]) if draw.chance(4) else None
    return _with(draw, "detach", handle=UInt(_handle(draw)), closed=draw.chance(2) or None, error=error)


def _any(draw: Draw) -> bytes:
    return frame(
        draw.below(3),
        encode(Described(ULong(draw.pick(range(0x0F, 0x1A))), [value(draw) for _ in range(draw.below(15))])),
    )


_ATTACHES: Final = (_producer, _consumer, _consumer)
_USES: Final = (_transfer, _flow, _flow)
_FRAMES: Final[tuple[Callable[[Draw], bytes], ...]] = (
    *(3 * (_producer, _consumer, _flow, _transfer)),
    _transfer,
    _flow,
    _disposition,
    _disposition,
    _detach,
    _any,
    _begin,
    _open,
    lambda draw: _with(draw, "end", error=None),
    lambda draw: _with(draw, "close", error=None) if draw.chance(2) else frame(0, b""),
)
