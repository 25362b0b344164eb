"""[io] The steps of a delivery in which our code may fail on one event or one answer.

An exception in a step is a failed attempt of the event. It is recorded in the history and in the log; retries
and the dead letter sink follow.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from event_formats import amqp_binding
from event_formats.event import CloudEvent
from event_formats.http_binding import HttpMessage, to_http
from knative_gateway.delivery import Action, Answer, Plan, Post, Store, To, Unstored
from knative_gateway.delivery.headers import (
    HOPS,
    delivery_headers,
    forwarded,
    hops_of,
    stored_with_reply,
    trace_headers,
)
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.errors import BadRequestError, GatewayError, TooLargeError
from knative_gateway.ports import EventLog, Subscriber
from knative_gateway.security.inward import looks_inward

log = structlog.get_logger(__name__)

REASON_MAX: Final = 500
"""Characters of a stored reason."""


def internal_error(error: Exception, now_ms: int) -> Answer:
    """Return an exception in our code as the answer to an attempt: no answer came, and a retry may help."""
    return Answer(None, now_ms, f"internal error: {error!r}"[:REASON_MAX])


def trace_of(event: CloudEvent) -> Sequence[tuple[str, str]]:
    """Return the headers that make an attempt a child in the event's trace; empty for an event without a
    trace.
    """
    return trace_headers(event, secrets.token_hex(8)) if "traceparent" in event.attributes else ()


def request(
    post: Post,
    arrival: Arrival,
    spec: Subscriber,
    trace: Sequence[tuple[str, str]] | None,
) -> HttpMessage:
    """Return the request of an attempt. `trace`: the headers of its span; None: those of the event's own
    trace.
    """
    departs, structured = spec.departs(post.url), post.structured
    if post.to is To.SUBSCRIBER:
        message = arrival.request(departs=departs, structured=structured)
    else:
        message = to_http(post.event, structured=structured)
    is_reply = post.to is To.REPLY
    extra = delivery_headers(
        reply_wanted=post.reply_wanted,
        namespace=spec.namespace if post.reply_wanted or post.to is To.DEAD_LETTER else None,
        passed_on=forwarded(post.passed_on, of_reply=True) if is_reply else forwarded(arrival.passed_on),
        trace=trace_of(post.event) if trace is None else trace,
    )
    # The hop count goes before the other headers, so that a receiver that limits the number of headers keeps
    # it.
    hops = [(HOPS, str(hops_of(arrival.passed_on) + 1))] if looks_inward(post.url) else []
    return HttpMessage([*message.headers, *hops, *extra], message.body)


def next_action(plan: Plan, answer: Answer, now_ms: int) -> Action:
    """Return the plan's next action after an answer. An internal error counts as a failed attempt."""
    try:
        return plan.answered(answer, now_ms)
    except Exception as error:
        log.exception("answer_not_judged", subscriber=plan.subscriber.uid, status=answer.status)
        return plan.answered(internal_error(error, answer.at_ms), now_ms)


async def store_reply(store: Store, events: EventLog, now_ms: Callable[[], int]) -> Unstored | None:
    """Append a reply to its log. None: the reply is stored."""
    try:
        await events.append(store.log, amqp_binding.encode(store.event, stored_with_reply(store.passed_on)))
    except GatewayError as error:
        retryable = not isinstance(error, TooLargeError | BadRequestError)
        return Unstored(f"the reply was not stored: {error}", now_ms(), retryable=retryable)
    except Exception as error:
        log.exception("reply_not_stored", log=store.log)
        return Unstored(f"the reply was not stored: internal error: {error!r}"[:REASON_MAX], now_ms())
    return None
