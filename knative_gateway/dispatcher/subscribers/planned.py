"""[io] A delivery with a plan: retries, replies, dead letters, and all events that the first attempt does not
support.

An event is completed only when its plan is done.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog

from event_formats.attributes import text_of
from event_formats.event import CloudEvent
from knative_gateway.delivery import Action, Answer, Done, End, Plan, Post, Store, To, succeeded
from knative_gateway.delivery.backoff import spread_ms
from knative_gateway.delivery.recent import Reply
from knative_gateway.dispatcher.arrival import LARGE_BYTES, Arrival
from knative_gateway.dispatcher.subscribers.scheduling import Scheduler
from knative_gateway.dispatcher.subscribers.state import SubscriberState
from knative_gateway.dispatcher.subscribers.steps import internal_error, next_action, request, store_reply
from knative_gateway.ports import Subscriber

log = structlog.get_logger(__name__)

Pause = Callable[[int], Awaitable[None]]
"""Gives up the slot of the delivery until a time in milliseconds of `Scheduler.clock_ms`, then gets a slot
again.
"""


class PlannedDelivery:
    """Delivers one event to one subscriber, step by step. It occupies one slot of the requests in flight."""

    def __init__(self, state: SubscriberState, scheduler: Scheduler, arrival: Arrival, pause: Pause) -> None:
        self._state: Final = state
        self._scheduler: Final = scheduler
        self._arrival: Final = arrival
        self._pause: Final = pause

    async def run(self, spec: Subscriber, answer: Answer | None) -> Done:
        """Carry out the plan until it is done. `answer`: the answer to the first request, if that was already
        sent.
        """
        assert self._arrival.event is not None
        plan = self._planned(spec)
        action = plan.start()
        if answer is not None:
            self._scheduler.answered(answer)
            action = self._noted(next_action(plan, answer, self._scheduler.clock_ms()), plan)
        while not isinstance(action, Done):
            if isinstance(action, Post):
                post = action
                action = next_action(plan, await self._posted(post), self._scheduler.clock_ms())
                if post.to is To.REPLY and isinstance(action, Done) and action.end is End.COMPLETED:
                    self._note_reply(post.event)
            elif isinstance(action, Store):
                problem = await store_reply(action, self._state.context.log, self._state.context.now_ms)
                # A reply that is stored counts when it is durable, not when it arrives.
                if problem is None:
                    self._state.figures.replied += 1
                    self._note_reply(action.event)
                action = plan.stored(problem, self._scheduler.clock_ms())
            else:
                await self._pause(action.until_ms)
                if delivery_options(self._state.spec) != delivery_options(plan.subscriber):
                    # The destination or its options changed, so former failures do not count.
                    plan = self._planned(self._state.spec)
                    action = plan.start()
                else:
                    action = plan.resumed()
            action = self._noted(action, plan)
        return action

    def _note_reply(self, event: CloudEvent) -> None:
        arrival, names = self._arrival, event.attributes
        reply_id, source = (text_of(names.get(name, "")) for name in ("id", "source"))
        now_ms = self._state.context.now_ms()
        self._state.history.recent.replied(Reply(arrival.partition, arrival.offset, now_ms, reply_id, source))

    def _planned(self, spec: Subscriber) -> Plan:
        assert self._arrival.event is not None
        return Plan(spec, self._arrival.event, self._spread)

    async def _posted(self, post: Post) -> Answer:
        """Send a request. An internal error is a failed attempt, so that retries and the dead letter sink
        follow.
        """
        try:
            return await self._post(post)
        except Exception as error:
            log.exception("delivery_fault", subscriber=self._state.spec.uid, **self._arrival.where)
            return internal_error(error, self._state.context.now_ms())

    async def _post(self, post: Post) -> Answer:
        spec, context, arrival = self._state.spec, self._state.context, self._arrival
        tracer = context.settings.tracer
        with tracer.delivering(spec, post, partition=arrival.partition, offset=arrival.offset) as (
            trace,
            span,
        ):
            make = partial(request, post, arrival, spec, trace)
            headers, body = make() if arrival.size <= LARGE_BYTES else await asyncio.to_thread(make)
            answer = await context.sender.post(
                post.url,
                headers,
                body,
                timeout_ms=post.timeout_ms,
                reply_wanted=post.reply_wanted,
                owner=spec.uid,
                namespace=spec.namespace,
            )
            span.record(answer.status, answer.reason, failed=not succeeded(answer.status))
        # Only the subscriber adapts the limit: a slow dead letter sink says nothing about how much the
        # subscriber can take.
        if post.to is To.SUBSCRIBER:
            self._scheduler.answered(answer)
            self._state.figures.retried += post.attempt > 1
        return answer

    def _noted(self, action: Action, plan: Plan) -> Action:
        """Record the failure of the last step, if it failed, and return the action."""
        if plan.failure is not None:
            self._state.figures.failed_attempts += 1
            self._state.history.note(self._state.context.now_ms(), self._arrival, plan.failure)
        return action

    def _spread(self, wait_ms: int) -> int:
        jitter = self._state.context.settings.jitter
        return spread_ms(wait_ms, jitter, self._state.context.chance()) if jitter else wait_ms


def delivery_options(spec: Subscriber) -> tuple[object, ...]:
    """Return the values that a plan depends on. If one of them changes, the delivery begins again."""
    return (spec.subscriber_url, spec.reply_log, spec.reply_url, spec.delivery)
