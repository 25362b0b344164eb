"""Headers of deliveries beside those of the event: which of others' are passed on, `Prefer`, and the trace.

Spec: knative-eventing-test-spec, "Derived (Reply) Events"; knative-data-plane-contract, "Observability"; W3C Trace Context. Laws: nothing
is passed on that is not on the list, Authorization and cookies least of all; the event's own attributes stay as they are.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from event_formats.event import CloudEvent

Received = Iterable[tuple[bytes, bytes]]
"""Header fields as they came, names in any case."""
Header = tuple[str, str]

PREFER_REPLY: Final[Header] = ("Prefer", "reply")
NAMESPACE: Final = "Kn-Namespace"
FORWARDED: Final = frozenset((b"x-request-id",))
FORWARDED_OF_REPLY: Final = FORWARDED | {b"retry-after"}
"""It belongs to answers and means nothing in a request."""
HOPS: Final = "knative-hops"
"""How often an event went to what looks like a Broker or Channel; unlike the others it goes nowhere else."""
FORWARDED_PREFIXES: Final = (b"knative-", b"x-b3-")
FORWARDED_MAX: Final = 32
"""Headers that are passed on from one request or answer, at most."""
FORWARDED_BYTES_MAX: Final = 1200
"""Bytes of a header that is passed on, name and value; a longer one is not."""
FORWARDED_TOTAL_BYTES_MAX: Final = 4096
"""Bytes of all headers of one request that are stored with its events: each of the thousand events of a batch has them."""
TRACE_STATE_MAX: Final = 512
"""Characters of a `tracestate` that is passed on, as W3C Trace Context has it."""

_HOPS: Final = HOPS.encode()
_HOPS_DIGITS: Final = 9
_TRACE_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_VISIBLE: Final = re.compile(r"[ -~]*", re.ASCII)
_FIELD_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
# Spec: RFC 9110, 5.5: visible characters, spaces and tabs.
_FIELD_VALUE: Final = re.compile(rb"[\t -~\x80-\xff]*")


def forwarded(headers: Received, *, of_reply: bool = False) -> list[Header]:
    """Those that are passed on from a request, or from the answer that is a reply; names in lower case, all values kept.

    The writer of the message chose these headers: one that is not a valid header field, or is too long, is dropped.
    """
    wanted = FORWARDED_OF_REPLY if of_reply else FORWARDED
    lowered = ((name.lower(), value) for name, value in headers)
    kept = [
        (name, value)
        for name, value in lowered
        if (name in wanted or (name.startswith(FORWARDED_PREFIXES) and name != _HOPS)) and len(name) + len(value) <= FORWARDED_BYTES_MAX
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
    """The headers of an answer that go with its event into the log, and with the event to its subscribers.

    Several fields of one name are one with commas. Spec: RFC 9110, 5.3.
    """
    found: dict[str, str] = {}
    for name, value in forwarded(headers):
        if value.isascii():
            found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def delivery_headers(
    *, reply_wanted: bool = False, namespace: str | None = None, passed_on: Sequence[Header] = (), trace: Sequence[Header] = ()
) -> list[Header]:
    """The headers of one POST, without those of the event.

    `passed_on`: as `forwarded` gives them; `namespace`: of the Trigger or Subscription, for those who are to know it.
    `reply_wanted`: Brokers and Channels MUST say so to subscribers; never to reply and dead letter destinations.
    """
    headers = [*passed_on, *trace]
    if reply_wanted:
        headers.append(PREFER_REPLY)
    if namespace is not None:
        headers.append((NAMESPACE, namespace))
    return headers


def trace_headers(event: CloudEvent, span_id: str, trace_id: str | None = None) -> list[Header]:
    """The trace of an event passed on as a child. `span_id`: 16 hexadecimal digits, new for each attempt, as the shell chose.

    An event without a valid trace begins one with `trace_id` (32 digits); None: it goes without.
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
    """Trace id and flags of a valid traceparent; of a later version only what this one knows."""
    found = _TRACE_PARENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not trace.strip("0") or not span.strip("0"):
        return None
    return trace, f"{int(flags, 16) & 1:02x}"
