"""What a subscriber answers: read in one piece or in many, it means the same; whatever its status, headers
and body are, the delivery goes on: a reply is stored and read again, a wait is bounded, a dead letter is an
event.
"""

import json
from typing import Final

from event_formats.amqp_binding import decode, encode
from event_formats.attributes import text_of
from event_formats.errors import EventFormatError
from event_formats.event import CloudEvent
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.gateway.transport import Transport
from knative_gateway.delivery.backoff import WAIT_MAX_MS, wait_ms
from knative_gateway.delivery.dead_letter import Attempt, dead_letter
from knative_gateway.delivery.headers import (
    delivery_headers,
    forwarded,
    hops_of,
    stored_with_reply,
    trace_headers,
)
from knative_gateway.delivery.outcome import Answer, Verdict, overloaded, verdict
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.posting.connection import Connection, Response
from knative_gateway.dispatcher.posting.replies import Replies
from knative_gateway.dispatcher.posting.sending import Sender, SendSettings, lines
from knative_gateway.errors import GatewayError
from knative_gateway.ingress.receiving import received
from knative_gateway.ports import BackoffPolicy, Delivery, Stored

_NOW_MS: Final = 1_700_000_000_000
_LINES: Final = (
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 202 Accepted\r\n", b"HTTP/1.1 503 x\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 101 x\r\nupgrade: a\r\nconnection: upgrade\r\n\r\n", b"HTTP/1.1 999 \r\n", b"HTTP/2 200\r\n",
    b"content-length: 3\r\n", b"content-length: 0\r\n\r\n", b"content-length: 99999999999999999999\r\n",
    b"content-length: -1\r\n", b"transfer-encoding: chunked\r\n", b"\r\n3\r\nabc\r\n0\r\n\r\n",
    b"\r\n3;x=y\r\nabc\r\n0\r\ntrailer: z\r\n\r\n", b"connection: close\r\n", b"ce-specversion: 1.0\r\n",
    b"ce-id: 1\r\n", b"ce-source: /s\r\n", b"ce-type: t\r\n", b"ce-subject: %F0%9F%98%80\"a b\"\r\n",
    b"ce-id: \xff\r\n", b"content-type: application/cloudevents+json\r\n",
    b"content-type: application/cloudevents-batch+json\r\n", b"content-type: text/plain\r\n",
    b"retry-after: 120\r\n", b"retry-after: Mon, 01 Jan 2024 00:00:00 +99999999999999999999\r\n",
    b"retry-after: \xff\r\n", b"retry-after: Fri, 31 Dec 9999 23:59:59 -2359\r\n",
    b"retry-after: 1 Jan 1 0:0:0 +0\r\n", b"knative-hops: 5\r\n", b"x-b3-a: b\r\n", b"knative-x: \x00\r\n",
    b"x-request-id: \xe9\r\n", b"ce-traceparent: 00-1-2-00\r\n", b"ce-knativebrokerttl: 1\r\n", b"\r\n",
    b"\r\nabc", b"a: b\r\n", b": x\r\n", b"x-big: " + b"x" * 5000 + b"\r\n",
)  # fmt: skip
_FIELDS: Final = tuple(
    line
    for line in _LINES
    if b": " in line and not line.startswith((b"HTTP", b"content-length", b"transfer", b"\r\n", b": "))
)
_EVENT_FIELDS: Final = (b"ce-specversion: 1.0\r\n", b"ce-id: 1\r\n", b"ce-source: /s\r\n", b"ce-type: t\r\n")
_EVENT: Final = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
_HEAD: Final = b"POST / HTTP/1.1\r\nhost: h\r\n\r\n"
_SENDER: Final = Sender(SendSettings(reply_bytes_max=4096), now_ms=lambda: _NOW_MS)


def run(data: bytes) -> str:
    """One answer, or what pretends to be one, in one piece and in many."""
    draw = Draw(data)
    reply_wanted = draw.chance(2)
    ends = draw.chance(2)
    step = 1 + draw.below(60)
    sent = _sent(draw)
    whole = _read([sent] if sent else [], reply_wanted=reply_wanted, ends=ends)
    parts = _read(
        [sent[at : at + step] for at in range(0, len(sent), step)], reply_wanted=reply_wanted, ends=ends
    )
    if isinstance(whole, OSError) or isinstance(parts, OSError) or whole is None or parts is None:
        if type(whole) is not type(parts):
            message = f"whole {whole!r}, in pieces of {step} {parts!r}: {sent[:300]!r}"
            raise WrongError(message)
        return type(whole).__name__
    if whole != parts:
        message = f"whole {whole!r}, in pieces of {step} {parts!r}"
        raise WrongError(message)
    return _goes_on(whole, draw, reply_wanted=reply_wanted)


def _sent(draw: Draw) -> bytes:
    """Mostly an answer as it should be, with any headers; or pieces of answers in any order."""
    if draw.chance(6):
        return draw.rest() if draw.chance(2) else b"".join(_piece(draw) for _ in range(draw.below(16)))
    status = draw.pick((200, 200, 200, 202, 404, 429, 500, 503, 503, 302))
    fields = [draw.pick(_FIELDS) for _ in range(draw.below(8))]
    if draw.chance(2):
        fields += _EVENT_FIELDS
    body = draw.raw(200)
    if draw.chance(3):
        event: dict[str, object] = {
            **_EVENT,
            draw.text(4): draw.pick((1, True, None, "x", {}, "\ud800")),
            "data": draw.text(9),
        }
        fields.append(b"content-type: application/cloudevents+json\r\n")
        body = json.dumps(event).encode()
    head = b"HTTP/1.1 %d x\r\n" % status + b"".join(fields) + b"content-length: %d\r\n\r\n" % len(body)
    return head + body


def _piece(draw: Draw) -> bytes:
    return draw.raw(30) if draw.chance(6) else draw.pick(_LINES)


def _read(pieces: list[bytes], *, reply_wanted: bool, ends: bool) -> Response | OSError | None:
    """The first answer to a request; None: nothing that ends it came."""
    connection, transport, outcomes = Connection(), Transport(), list[Response | OSError]()
    connection.connection_made(transport)
    limit_of = _SENDER._of_reply if reply_wanted else (lambda _status, _headers: 100)
    replies = Replies(8192)
    connection.begin(
        _HEAD,
        b"",
        limit_of,
        lambda _connection, outcome: outcomes.append(outcome),
        replies=replies,
        owner="o",
    )
    for piece in pieces:
        if transport.is_closed or outcomes:
            break
        connection.data_received(piece)
    if ends or transport.is_closed:
        connection.eof_received()
        connection.connection_lost(None)
    if len(outcomes) > 1:
        message = f"an exchange has {len(outcomes)} ends"
        raise WrongError(message)
    if outcomes and replies.used:
        message = f"{replies.used} bytes are counted for an answer that has ended"
        raise WrongError(message)
    return outcomes[0] if outcomes else None


def _goes_on(response: Response, draw: Draw, *, reply_wanted: bool) -> str:
    status, headers, body = response
    wanted = reply_wanted and status == 200
    answer = _SENDER._read(status, headers, body, 0.0, wanted=wanted)
    lines(forwarded(headers, of_reply=True))
    hops_of(headers)
    overloaded(answer)
    delivery = Delivery(
        retry=draw.below(9),
        backoff_policy=draw.pick(tuple(BackoffPolicy)),
        backoff_delay_ms=draw.number(4),
        retry_after_max_ms=draw.pick((None, 0, 1000, 1 << 50)),
    )
    wait = wait_ms(delivery, 1 + draw.below(2000), answer, jitter=0.5, chance=draw.byte() / 256)
    if not 0 <= wait <= WAIT_MAX_MS:
        message = f"a wait of {wait} ms"
        raise WrongError(message)
    decided = verdict(answer, reply_wanted=reply_wanted)
    if decided is Verdict.REPLIED:
        return _stored(answer)
    if decided in {Verdict.RETRY, Verdict.FAILED}:
        _dead(answer)
    return f"{status} {decided} {answer.reason[:30]} {sorted({name for name, _ in headers})}"


def _stored(answer: Answer) -> str:
    assert answer.event is not None
    try:
        event = received(answer.event, "2026-01-02T03:04:05.000678Z")
    except GatewayError as error:
        return str(error)[:20]
    message = encode(event, stored_with_reply(answer.headers))
    arrival = Arrival(Stored(0, "0000000000000001", 5, message), "0000000000000000")
    if arrival.event is None or _texts(arrival.event) != _texts(event):
        wrong = f"{event!r} is read as {arrival.event!r} {arrival.problem}"
        raise WrongError(wrong)
    trace = trace_headers(event, "1" * 16, "2" * 32)
    lines(
        delivery_headers(
            reply_wanted=True,
            namespace="n",
            passed_on=[_texts_of(each) for each in arrival.passed_on],
            trace=trace,
        )
    )
    for structured in (False, True):
        lines(arrival.request(departs=True, structured=structured).headers)
    return "stored"


def _dead(answer: Answer) -> None:
    original = CloudEvent(dict(_EVENT), b"x")
    failure = Attempt(
        "subscriber",
        "http://u:p@h/",
        1,
        answer.at_ms,
        answer.status,
        answer.reason,
        answer.body,
        retryable=True,
    )
    event = dead_letter(original, failure, subscriber_url="http://u:p@h/", attempts=1)
    try:
        again = decode(encode(event))
    except EventFormatError as error:
        message = f"the dead letter of {answer!r} is not an event: {error}"
        raise WrongError(message) from error
    if again != event:
        message = f"{event!r} is read as {again!r}"
        raise WrongError(message)


def _texts(event: CloudEvent) -> dict[str, str]:
    return {name: text_of(value) for name, value in event.attributes.items()}


def _texts_of(header: tuple[bytes, bytes]) -> tuple[str, str]:
    return header[0].decode("latin-1"), header[1].decode("latin-1")


TARGET: Final = Target("replies", run, seconds_max=0.1, words=_LINES[:-1])
