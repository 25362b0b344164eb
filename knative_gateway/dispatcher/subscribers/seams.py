"""[io] Where one event or one answer meets code of ours that may fail: rendering a request, judging an answer, storing a reply.

Law: any exception there is a failed attempt of that event, in its history and the log; its retries and dead letter sink follow.
"""

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from event_formats import amqp_binding
from event_formats.http_binding import HttpMessage, to_http
from knative_gateway.delivery import Action, Answer, Plan, Post, Store, To, Unstored
from knative_gateway.delivery.headers import HOPS, delivery_headers, forwarded, hops_of, stored_with_reply
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.subscribers.flight import trace_of
from knative_gateway.errors import BadRequestError, GatewayError, TooLargeError
from knative_gateway.ports import EventLog, Subscriber
from knative_gateway.security.inward import looks_inward

log = structlog.get_logger(__name__)

REASON_MAX: Final = 500
"""Characters of a reason that is kept."""


def fault(error: Exception, now_ms: int) -> Answer:
    """A fault of ours as the answer to an attempt: none came, and trying again may help."""
    return Answer(None, now_ms, f"internal error: {error!r}"[:REASON_MAX])


def rendered(post: Post, arrival: Arrival, spec: Subscriber, trace: Sequence[tuple[str, str]] | None) -> HttpMessage:
    """The request of an attempt. `trace`: headers that carry it on; None: those of the event's own trace."""
    departs, structured = spec.departs(post.url), post.structured
    first, replies = post.to is To.SUBSCRIBER, post.to is To.REPLY
    message = arrival.request(departs=departs, structured=structured) if first else to_http(post.event, structured=structured)
    extra = delivery_headers(
        reply_wanted=post.reply_wanted,
        namespace=spec.namespace if post.reply_wanted or post.to is To.DEAD_LETTER else None,
        passed_on=forwarded(post.passed_on, of_reply=True) if replies else forwarded(arrival.passed_on),
        trace=trace_of(post.event) if trace is None else trace,
    )
    # First, so that a bound on such headers does not take it away.
    hops = [(HOPS, str(hops_of(arrival.passed_on) + 1))] if looks_inward(post.url) else []
    return HttpMessage([*message.headers, *hops, *extra], message.body)


def judged(plan: Plan, answer: Answer, now_ms: int) -> Action:
    """What follows from an answer; one that cannot be judged is a failure."""
    try:
        return plan.answered(answer, now_ms)
    except Exception as error:
        log.exception("answer_not_judged", subscriber=plan.subscriber.uid, status=answer.status)
        return plan.answered(fault(error, answer.at_ms), now_ms)


async def stored(store: Store, events: EventLog, now_ms: Callable[[], int]) -> Unstored | None:
    """Append a reply; why it was not, or None."""
    try:
        await events.append(store.log, amqp_binding.encode(store.event, stored_with_reply(store.passed_on)))
    except GatewayError as error:
        return Unstored(f"the reply was not stored: {error}", now_ms(), retryable=not isinstance(error, TooLargeError | BadRequestError))
    except Exception as error:
        log.exception("reply_not_stored", log=store.log)
        return Unstored(f"the reply was not stored: internal error: {error!r}"[:REASON_MAX], now_ms())
    return None
