"""The fast way of a request into a log: `event_formats.http_to_amqp`, with what a Broker adds to an event.
Pure.

Law: a message that comes out is byte for byte the message that reading the event, `received` and
`amqp_binding.encode` make.
"""

from collections.abc import Sequence
from typing import Final

from event_formats.amqp_binding.writing import attribute, attribute_key
from event_formats.http_to_amqp import Head, RequestTranscoder
from knative_gateway.delivery.ttl import TTL, TTL_DEFAULT
from knative_gateway.ingress.receiving import ARRIVAL
from knative_gateway.ingress.requests import is_passed_over

_ARRIVAL_LENGTH: Final = 27
_TTL_PIECE: Final = attribute(TTL, TTL_DEFAULT)
_ARRIVAL_PIECE: Final = attribute_key(ARRIVAL) + b"\xa1" + bytes((_ARRIVAL_LENGTH,))
# A Broker changes the first two. The trace of a request has a rule of its own.
_transcoder: Final = RequestTranscoder(
    left_alone=(TTL, ARRIVAL, "traceparent", "tracestate"), passed_over=is_passed_over
)


def head(headers: Sequence[tuple[bytes, bytes]], arrival: str | None) -> Head | None:
    """The beginning of the message of a request; names are in lower case. `arrival`: as `received` takes it.

    None: the request is not for here.
    """
    if arrival is None:
        return _transcoder.head(headers)
    assert len(arrival) == _ARRIVAL_LENGTH
    return _transcoder.head(headers, (_TTL_PIECE, _ARRIVAL_PIECE + arrival.encode()))
