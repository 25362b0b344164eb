"""The headers of a delivery that are not part of the event: passed-on headers, `Prefer`, and the trace. Pure.

Only headers on the list are passed on; Authorization and cookies never are. The attributes of the event do
not change.

Spec: knative-eventing-test-spec, "Derived (Reply) Events"; knative-data-plane-contract, "Observability"; W3C
Trace Context.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from event_formats.event import CloudEvent

Received = Iterable[tuple[bytes, bytes]]
"""Header fields as they were received. Names may be in any case."""
Header = tuple[str, str]

PREFER_REPLY: Final[Header] = ("Prefer", "reply")
NAMESPACE: Final = "Kn-Namespace"
FORWARDED: Final = frozenset((b"x-request-id",))
FORWARDED_OF_REPLY: Final = FORWARDED | {b"retry-after"}
"""`Retry-After` is passed on only from answers. It has no meaning in a request."""
HOPS: Final = "knative-hops"
"""How many times an event was sent to a URL with the path of a Broker or Channel. Only such URLs get it."""
FORWARDED_PREFIXES: Final = (b"knative-", b"x-b3-")
FORWARDED_MAX: Final = 32
"""Headers that are passed on from one request or answer."""
FORWARDED_BYTES_MAX: Final = 1200
"""Bytes of a header's name and value. A longer header is not passed on."""
FORWARDED_TOTAL_BYTES_MAX: Final = 4096
"""Bytes of all headers of one request that are stored with its events. Each event of a batch stores them, so
a batch of 1,000 events multiplies them.
"""
TRACE_STATE_MAX: Final = 512
"""Characters of a `tracestate`. A longer one is not passed on (W3C Trace Context)."""

_HOPS: Final = HOPS.encode()
_HOPS_DIGITS: Final = 9
_TRACE_PARENT: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?",
    re.ASCII,
)
_VISIBLE: Final = re.compile(r"[ -~]*", re.ASCII)
_FIELD_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
# Spec: RFC 9110, 5.5: visible characters, spaces and tabs.
_FIELD_VALUE: Final = re.compile(rb"[\t -~\x80-\xff]*")


def forwarded(headers: Received, *, of_reply: bool = False) -> list[Header]:
    """Return the headers that are passed on from a request, or from an answer with a reply. Names are in
    lower case.

    The sender chooses these headers: a header that is not valid, or too long, is dropped.
    """
    wanted = FORWARDED_OF_REPLY if of_reply else FORWARDED
    lowered = ((name.lower(), value) for name, value in headers)
    kept = [
        (name, value)
        for name, value in lowered
        if (name in wanted or (name.startswith(FORWARDED_PREFIXES) and name != _HOPS))
        and len(name) + len(value) <= FORWARDED_BYTES_MAX
    ]
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in kept[:FORWARDED_MAX]
        if _FIELD_NAME.fullmatch(name) and _FIELD_VALUE.fullmatch(value)
    ]


def hops_of(headers: Received) -> int:
    """Return how many hops an event with these headers has made; 0 without the header."""
    value = next((value for name, value in headers if name.lower() == _HOPS), b"0")
    return int(value) if value.isdigit() and len(value) <= _HOPS_DIGITS else 0


def stored_with_reply(headers: Received) -> dict[str, str]:
    """Return the headers of an answer that are stored with its event and passed on to the event's
    subscribers.

    Several headers with one name become one value with commas (RFC 9110, 5.3).
    """
    found: dict[str, str] = {}
    for name, value in forwarded(headers):
        if value.isascii():
            found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def delivery_headers(
    *,
    reply_wanted: bool = False,
    namespace: str | None = None,
    passed_on: Sequence[Header] = (),
    trace: Sequence[Header] = (),
) -> list[Header]:
    """Return the headers of one POST, without the headers of the event.

    `passed_on`: the result of `forwarded`. `namespace`: of the Trigger or Subscription; None: the header is
    not sent. `reply_wanted`: Brokers and Channels MUST send `Prefer: reply` to subscribers, and MUST NOT send
    it to reply and dead letter destinations.
    """
    headers = [*passed_on, *trace]
    if reply_wanted:
        headers.append(PREFER_REPLY)
    if namespace is not None:
        headers.append((NAMESPACE, namespace))
    return headers


def trace_headers(event: CloudEvent, span_id: str, trace_id: str | None = None) -> list[Header]:
    """Return the trace headers of an attempt, as a child in the event's trace.

    `span_id`: 16 hexadecimal digits, new for each attempt. `trace_id`: 32 digits of a new trace, for an event
    without a valid one; None: such an event is sent without trace headers.
    """
    parent = _parent(event.attributes.get("traceparent"))
    if parent is None:
        return [] if trace_id is None else [("traceparent", f"00-{trace_id}-{span_id}-01")]
    trace, flags = parent
    headers = [("traceparent", f"00-{trace}-{span_id}-{flags}")]
    state = event.attributes.get("tracestate")
    if isinstance(state, str) and state and len(state) <= TRACE_STATE_MAX and _VISIBLE.fullmatch(state):
        headers.append(("tracestate", state))
    return headers


def _parent(value: object) -> tuple[str, str] | None:
    """Return trace id and flags of a valid traceparent; of later versions, only the parts of version 00."""
    found = _TRACE_PARENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not trace.strip("0") or not span.strip("0"):
        return None
    return trace, f"{int(flags, 16) & 1:02x}"
