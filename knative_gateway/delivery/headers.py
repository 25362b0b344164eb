"""Headers of deliveries beside those of the event: which of others' are passed on, `Prefer`, and the trace.

Spec: knative-eventing-test-spec, "Derived (Reply) Events"; knative-data-plane-contract, "Observability"; W3C Trace Context. Laws: nothing
is passed on that is not on the list, Authorization and cookies least of all; the event's own attributes stay as they are.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from knative_gateway.cloudevents.event import CloudEvent

Received = Iterable[tuple[bytes, bytes]]
"""Header fields as they came, names in any case."""
Header = tuple[str, str]

PREFER_REPLY: Final[Header] = ("Prefer", "reply")
NAMESPACE: Final = "Kn-Namespace"
FORWARDED: Final = frozenset((b"x-request-id", b"retry-after"))
FORWARDED_PREFIXES: Final = (b"knative-", b"x-b3-")
FORWARDED_MAX: Final = 32
"""Headers that are passed on from one answer, at most."""
TRACE_STATE_MAX: Final = 512
"""Characters of a `tracestate` that is passed on, as W3C Trace Context has it."""

_TRACE_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_VISIBLE: Final = re.compile(r"[ -~]*", re.ASCII)


def forwarded(headers: Received) -> list[Header]:
    """Those that are passed on from a request or an answer, names in lower case, all values kept."""
    lowered = ((name.lower(), value) for name, value in headers)
    kept = [(name, value) for name, value in lowered if name in FORWARDED or name.startswith(FORWARDED_PREFIXES)]
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in kept[:FORWARDED_MAX]]


def delivery_headers(*, reply_wanted: bool, namespace: str, passed_on: Received = (), trace: Sequence[Header] = ()) -> list[Header]:
    """The headers of one POST less the event's. `passed_on`: all of the headers of what caused it; only those on the list are taken.

    `reply_wanted`: Brokers and Channels MUST say so to subscribers; never to reply and dead letter destinations.
    """
    headers = [*forwarded(passed_on), *trace]
    if reply_wanted:
        headers.append(PREFER_REPLY)
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
