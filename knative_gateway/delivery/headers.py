"""Headers of deliveries in addition to those of the event: headers that are passed on, `Prefer`, and the
trace.

Spec: knative-eventing-test-spec, "Derived (Reply) Events"; knative-data-plane-contract, "Observability"; W3C
Trace Context. Laws: only headers on the list are passed on, never Authorization or cookies; the event's own
attributes stay as they are.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from event_formats.event import CloudEvent

Received = Iterable[tuple[bytes, bytes]]
"""Header fields as they were received, names in any case."""
Header = tuple[str, str]

PREFER_REPLY: Final[Header] = ("Prefer", "reply")
NAMESPACE: Final = "Kn-Namespace"
FORWARDED: Final = frozenset((b"x-request-id",))
FORWARDED_OF_REPLY: Final = FORWARDED | {b"retry-after"}
"""`Retry-After` belongs to answers; it has no meaning in a request."""
HOPS: Final = "knative-hops"
"""How many times an event was sent to a URL that looks like a Broker or Channel. It is sent to such URLs
only.
"""
FORWARDED_PREFIXES: Final = (b"knative-", b"x-b3-")
FORWARDED_MAX: Final = 32
"""How many headers are passed on from one request or answer."""
FORWARDED_BYTES_MAX: Final = 1200
"""Bytes of a header, name and value, above which it is not passed on."""
FORWARDED_TOTAL_BYTES_MAX: Final = 4096
"""Bytes of all headers of one request that are stored with its events: each event of a batch, up to 1,000,
has them.
"""
TRACE_STATE_MAX: Final = 512
"""Characters of a `tracestate` above which it is not passed on (W3C Trace Context)."""

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
    """The headers that are passed on from a request, or from an answer with a reply: names in lower case, all
    values.

    The sender chose these headers: one that is not a valid header field, or is too long, is dropped.
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
    """How many hops the event with these headers has made; 0 without the header."""
    value = next((value for name, value in headers if name.lower() == _HOPS), b"0")
    return int(value) if value.isdigit() and len(value) <= _HOPS_DIGITS else 0


def stored_with_reply(headers: Received) -> dict[str, str]:
    """The headers of an answer that are stored with its event, and passed on to the event's subscribers.

    Several fields of one name become one field with commas. Spec: RFC 9110, 5.3.
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
    """The headers of one POST, without those of the event.

    `passed_on`: from `forwarded`. `namespace`: of the Trigger or Subscription; None: the header is not sent.
    `reply_wanted`: Brokers and Channels MUST send `Prefer: reply` to subscribers, and never to reply and dead
    letter destinations.
    """
    headers = [*passed_on, *trace]
    if reply_wanted:
        headers.append(PREFER_REPLY)
    if namespace is not None:
        headers.append((NAMESPACE, namespace))
    return headers


def trace_headers(event: CloudEvent, span_id: str, trace_id: str | None = None) -> list[Header]:
    """The trace headers of an attempt, as a child in the event's trace.

    `span_id`: 16 hexadecimal digits, new for each attempt. `trace_id` (32 digits): of a new trace for an
    event without a valid one; None: such an event is sent without a trace.
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
    """The trace id and flags of a valid traceparent. Of a later version only the parts that version 00 has
    are used.
    """
    found = _TRACE_PARENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not trace.strip("0") or not span.strip("0"):
        return None
    return trace, f"{int(flags, 16) & 1:02x}"
