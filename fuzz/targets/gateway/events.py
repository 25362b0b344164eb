"""Requests with events as the gateway takes them: what the ingress stores a reader reads, and a subscriber
gets, whatever its attributes, media types and data. Only `GatewayError` and `EventFormatError` are answers.
"""

import json
from typing import Final

from amqp_streams.wire.encoder import encode as amqp_encode
from amqp_streams.wire.types import Symbol, Value
from event_formats.amqp_binding import decode, encode, passed_on
from event_formats.amqp_to_http import Outgoing
from event_formats.attributes import text_of
from event_formats.errors import EventFormatError
from event_formats.event import CloudEvent
from event_formats.http_binding import events_from_http, from_http, to_binary
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.values import value as amqp_value
from knative_gateway.delivery.headers import forwarded
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.posting.sending import lines
from knative_gateway.errors import GatewayError
from knative_gateway.ingress.receiving import received
from knative_gateway.ingress.requests import Request
from knative_gateway.ingress.transcoding import head
from knative_gateway.ports import Stored

NOW: Final = "2026-01-02T03:04:05.000678Z"
TYPES: Final = (
    b"application/json", b"text/plain", b"application/cloudevents+json",
    b"application/cloudevents-batch+json", b"application/cloudevents", b"application/cloudevents+avro",
    b"Application/CloudEvents+JSON; charset=utf-16", b"text/plain;\tq=1",
)  # fmt: skip
NAMES: Final = (
    "id", "source", "type", "specversion", "subject", "time", "dataschema", "datacontenttype",
    "datacontentencoding", "partitionkey", "knativebrokerttl", "traceparent", "data", "data_base64", "x",
    "n" * 128, "n" * 129,
)  # fmt: skip
_AMQP_PREFIX: Final = "cloudEvents:"
_TEXTS: Final = (
    "",
    "a",
    "1",
    "a b",
    "\x00",
    "\r\nx: y",
    "\u00e9",
    "%41",
    "2026-01-31T12:00:00Z",
    "x" * 300,
    '"q"',
)
_HOSTS: Final = (
    ((b"h",), True), ((b"h:80",), True), ((b"[::1]:80",), True), ((b"",), True), ((), False),
    ((b"h", b"h"), False), ((b"h", b"a b@c"), False), ((b"a b@c",), False), ((b"h/",), False),
    ((b"[::1",), False), ((b"h\x00",), False),
)  # fmt: skip
"""Values of the Host headers of a request, and whether they are valid (RFC 9112, 3.2)."""
Headers = list[tuple[bytes, bytes]]


def run(data: bytes) -> str:
    """The first byte chooses the mode and the hosts; the rest are attributes, headers and the body."""
    draw = Draw(data)
    hosts_number, mode = divmod(draw.byte(), 3)
    headers, body = (_binary, _structured, _message)[mode](draw)
    if headers is None:
        return _stored(body)
    hosts, is_valid = _HOSTS[hosts_number % len(_HOSTS)]
    headers += [*((b"host", host) for host in hosts), (b"content-length", str(len(body)).encode())]
    try:
        request = Request(headers)
        if request.has_host is not is_valid or (not is_valid and head(headers, NOW) is not None):
            message = f"a fast way takes the hosts {hosts}, or none takes them"
            raise WrongError(message)
        events = [received(event, NOW, request.trace) for event in events_from_http(headers, body)]
    except (GatewayError, EventFormatError) as error:
        if head(headers, NOW) is not None:
            message = f"the fast way takes what the other refuses: {error}"
            raise WrongError(message) from None
        return str(error)[:20]
    begun = head(headers, NOW)
    if begun is not None and _arrived(begun.message(body)).event != events[0]:
        message = "the fast way stores another event"
        raise WrongError(message)
    for event in events:
        _delivered(event, encode(event, request.passed_on))
    return f"{len(events)} {begun is None}"


def _binary(draw: Draw) -> tuple[Headers | None, bytes]:
    headers = [(b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-source", b"/s"), (b"ce-type", b"t")][
        draw.byte() % 8 == 1 :
    ]
    for _ in range(draw.byte() % 6):
        headers.append(
            (b"ce-" + draw.pick(NAMES).encode(), draw.raw(40).replace(b"\r", b"").replace(b"\n", b""))
        )
    headers.append((b"content-type", draw.pick(TYPES)))
    if draw.chance(4):
        headers.append(
            (draw.pick((b"traceparent", b"tracestate", b"x-request-id", b"knative-hops")), draw.raw(40))
        )
    return headers, draw.rest()


def _structured(draw: Draw) -> tuple[Headers | None, bytes]:
    content_type = draw.pick((b"application/cloudevents+json", b"application/cloudevents-batch+json"))
    if draw.chance(4):
        return [(b"content-type", content_type)], draw.rest()
    event: dict[str, object] = {
        "specversion": draw.pick(("1.0", "0.3")),
        "id": "1",
        "source": "/s",
        "type": "t",
    }
    if draw.chance(2):
        event["datacontenttype"] = draw.pick(TYPES).decode()
    for _ in range(draw.byte() % 6):
        value = draw.pick((draw.text(20), draw.number(4), True, None, "\ud800", "\ufffe"))
        event[draw.pick(NAMES)] = value
    body = json.dumps([event] if b"batch" in content_type else event)
    return [(b"content-type", content_type)], body.encode()


def _message(draw: Draw) -> tuple[Headers | None, bytes]:
    """Mostly the sections of an event, its attributes of any type; or any bytes."""
    if draw.chance(3):
        return None, draw.rest()
    properties: dict[Value, Value] = {
        _AMQP_PREFIX + name: text
        for name, text in (("specversion", "1.0"), ("id", "1"), ("source", "/s"), ("type", "t"))
        if not draw.chance(12)
    }
    for _ in range(draw.byte() % 6):
        prefix = draw.pick((_AMQP_PREFIX, "cloudEvents_", "httpHeader_", "httpHeader_knative-", ""))
        properties[prefix + (draw.pick(NAMES) if not draw.chance(4) else draw.text(6))] = (
            draw.pick(_TEXTS) if draw.chance(2) else amqp_value(draw)
        )
    sections: list[tuple[int, Value]] = [(0x74, properties), (0x75, draw.raw(60))]
    if draw.chance(2):
        content_type = draw.pick(TYPES).decode() if not draw.chance(4) else draw.text(9)
        sections.insert(0, (0x73, [None] * 6 + [Symbol(content_type.encode("ascii", "ignore").decode())]))
    if draw.chance(4):
        sections.insert(0, (0x72, {Symbol("event-streams-group-key"): draw.text(5)}))
    if draw.chance(8):
        sections[-1] = draw.pick((0x77, 0x77, 0x76, 0x75)), draw.pick((amqp_value(draw), None, "text"))
    return None, b"".join(bytes((0, 0x53, code)) + amqp_encode(content) for code, content in sections)


def _stored(message: bytes) -> str:
    """What a client wrote to a log over AMQP."""
    arrival = _arrived(message)
    if arrival.problem.startswith("internal error"):
        raise WrongError(arrival.problem)
    lines(forwarded(arrival.passed_on))
    if arrival.event is not None:
        arrival.request(departs=True, structured=True)
        lines(arrival.request(departs=True, structured=False).headers)
    if arrival.plain is not None:
        _is_the_slow_way(arrival.plain, message)
    return "".join("#" if character.isdigit() else character for character in arrival.problem)[:30]


def _is_the_slow_way(plain: Outgoing, message: bytes) -> None:
    """The fast way out gives the attributes, data and header fields that the slow way gives."""
    slow = decode(message)
    fields = sorted(lines(to_binary(slow).headers).splitlines())
    if (
        (slow.attributes, slow.data) != (plain.attributes, plain.data)
        or sorted((plain.lines + plain.own).splitlines()) != fields
        or passed_on(message)
    ):
        wrong = f"the fast way gives {plain!r}, the slow way {slow!r} {fields!r}"
        raise WrongError(wrong)


def _arrived(message: bytes) -> Arrival:
    return Arrival(Stored(0, "0000000000000001", 5, message), "0000000000000000")


def _delivered(event: CloudEvent, message: bytes) -> None:
    arrival = _arrived(message)
    if arrival.event != event:
        wrong = f"{event!r} is read as {arrival.event!r} {arrival.problem}"
        raise WrongError(wrong)
    for structured in (False, True):
        headers, body = arrival.request(departs=False, structured=structured)
        lines(headers)
        again = from_http([(name.encode(), value.encode()) for name, value in headers], body)
        if _texts(again) != _texts(event) or _data(again, structured=structured) != _data(
            event, structured=structured
        ):
            wrong = f"{event!r} is delivered as {again!r}"
            raise WrongError(wrong)


def _texts(event: CloudEvent) -> dict[str, str]:
    return {name: text_of(value) for name, value in event.attributes.items()}


def _data(event: CloudEvent, *, structured: bool) -> bytes:
    """Binary mode does not tell empty data from none; in structured mode the space around JSON is not part of
    it.
    """
    data = event.data or b""
    return data.strip(b" \t\r\n") if structured else data


TARGET: Final = Target(
    "events",
    run,
    seconds_max=0.5,
    words=(b"application/cloudevents", b"ce-", b"cloudEvents_", b"\x00\x53\x74\xc1", b"\x00\x53\x73\xc0"),
)
