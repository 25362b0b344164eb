"""The fast path from a request to a stored message, which does not decode the event. Pure.

It is `event_formats.http_to_amqp` with the attributes that a Broker adds. The slow path decodes the event,
and calls `received` and `amqp_binding.encode`. Both paths give the same bytes.
"""

from collections.abc import Sequence
from typing import Final

from event_formats.amqp_binding.writing import attribute, attribute_key
from event_formats.http_to_amqp import Head, RequestTranscoder
from knative_gateway.delivery.ttl import ARRIVAL, TTL, TTL_DEFAULT
from knative_gateway.http.whole import Frame
from knative_gateway.ingress.requests import is_ignored

_ARRIVAL_LENGTH: Final = 27
_TTL_PIECE: Final = attribute(TTL, TTL_DEFAULT)
_ARRIVAL_PIECE: Final = attribute_key(ARRIVAL) + b"\xa1" + bytes((_ARRIVAL_LENGTH,))
# A Broker changes the first two attributes. `received` has a rule for the trace of a request.
_transcoder: Final = RequestTranscoder(
    left_alone=(TTL, ARRIVAL, "traceparent", "tracestate"), is_ignored=is_ignored
)


def head(
    headers: Sequence[tuple[bytes, bytes]], arrival: str | None, frame: Frame | None = None
) -> Head | None:
    """Return the beginning of the message for a request; None if only the slow path supports the request.

    Header names must be in lower case. `arrival`: as for `received`.
    `frame`: of the request, if it is known.
    """
    if arrival is None:
        added: tuple[bytes, ...] = ()
    else:
        assert len(arrival) == _ARRIVAL_LENGTH
        added = (_TTL_PIECE, _ARRIVAL_PIECE + arrival.encode())
    return (
        _transcoder.head(headers, added)
        if frame is None
        else _transcoder.head_in_frame(frame, headers, frame.place, added)
    )
