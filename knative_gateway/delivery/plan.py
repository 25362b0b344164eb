"""The delivery of one event to one subscriber as a state machine. Pure: no I/O, no clock.

The caller carries out each action and reports the result: `start()`, then `answered()` after a Post,
`stored()` after a Store, `resumed()` after a Wait, until Done.

A delivery ends completed, dead-lettered or dropped; the last two name the attempt that caused them. A
destination gets at most retry + 1 attempts. A reply that cannot be delivered or stored fails the whole
attempt, and the retry begins with the subscriber. A plan exists only in memory: after a crash, the event is
read again and gets a new plan.

Spec: knative-eventing-test-spec, "Event Delivery", steps 1 to 5.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from event_formats.event import CloudEvent
from knative_gateway.delivery.backoff import wait_ms
from knative_gateway.delivery.dead_letter import Attempt, dead_letter
from knative_gateway.delivery.outcome import Answer, Verdict, verdict
from knative_gateway.delivery.ttl import departing, reply_to
from knative_gateway.ports import Subscriber

BODY_BYTES_MAX: Final = 8192
"""Bytes of an answer's body that are kept for the history and the dead letter."""


class To(StrEnum):
    """The kinds of destination."""

    SUBSCRIBER = "subscriber"
    REPLY = "reply"
    DEAD_LETTER = "dead letter sink"


_NO_ATTEMPTS: Final = dict.fromkeys(To, 0)


class End(StrEnum):
    """How a delivery ends. DROPPED: the event was not accepted, and did not reach a dead letter sink."""

    COMPLETED = "completed"
    DEAD_LETTERED = "dead-lettered"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Post:
    """POST the event. `attempt`: counts the attempts at this destination, from 1.

    `reply_wanted`: send `Prefer: reply`, and use the event in the answer. `passed_on`: headers of the answer
    with the reply, for `headers.forwarded`. `structured`: use the structured content mode.
    """

    to: To
    url: str
    event: CloudEvent
    attempt: int
    reply_wanted: bool
    timeout_ms: int | None
    passed_on: tuple[tuple[bytes, bytes], ...] = ()
    structured: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """Append the reply to the Broker's log, and wait until it is durable.

    `passed_on`: headers of the answer with the reply.
    """

    log: str
    event: CloudEvent
    attempt: int
    passed_on: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Call `resumed()` at `until_ms` or later, by the clock of `now_ms`. `retry`: the number of the next
    retry, from 1.
    """

    until_ms: int
    retry: int


@dataclass(frozen=True, slots=True)
class Done:
    """The delivery has ended, and the event is completed.

    `attempts`: requests to the subscriber. `failure`: the attempt that ended the delivery; None if the
    subscriber accepted the event. `reply_expired`: a reply was dropped because its chain of replies was too
    long.
    """

    end: End
    attempts: int
    failure: Attempt | None = None
    reply_expired: bool = False


Action: TypeAlias = Post | Store | Wait | Done


@dataclass(frozen=True, slots=True)
class Unstored:
    """A reply was not stored. `retryable` False: the log can never store this event."""

    reason: str
    at_ms: int
    retryable: bool = True


# The core knows no randomness: the caller gives it, and tests leave it out.
def _no_spread(wait: int) -> int:
    return wait


@dataclass(slots=True, eq=False)
class Plan:
    """The delivery of one event to one subscriber.

    `spread`: changes a wait (jitter). `failure`: the failure in the last result, for history and metrics.
    """

    subscriber: Subscriber
    event: CloudEvent
    spread: Callable[[int], int] = _no_spread
    failure: Attempt | None = field(default=None, init=False)
    _attempts: dict[To, int] = field(default_factory=_NO_ATTEMPTS.copy, init=False)
    _next: Action | None = field(default=None, init=False)
    _cause: Attempt | None = field(default=None, init=False)
    _reply_expired: bool = field(default=False, init=False)

    def start(self) -> Action:
        """Return the first action."""
        assert self._next is None, "a plan starts once"
        return self._to_subscriber()

    def answered(self, answer: Answer, now_ms: int) -> Action:
        """Return the next action after the answer to a Post."""
        post = self._next
        assert isinstance(post, Post), post
        self.failure = None
        judged = verdict(answer, reply_wanted=post.reply_wanted)
        if judged is Verdict.ACCEPTED:
            return self._done(End.DEAD_LETTERED if post.to is To.DEAD_LETTER else End.COMPLETED)
        if judged is Verdict.REPLIED:
            assert answer.event is not None
            return self._reply(answer.event, answer)
        reason = answer.reason or f"status {answer.status}"
        body = answer.body[:BODY_BYTES_MAX]
        retryable = judged is Verdict.RETRY
        self.failure = Attempt(
            post.to,
            post.url,
            post.attempt,
            answer.at_ms,
            answer.status,
            reason,
            body,
            retryable,
        )
        return self._failed(self.failure, answer, now_ms)

    # A reply that cannot be stored fails the attempt, as the test specification requires. Knative itself
    # retries only the reply (docs/decisions/0009-deliveries.md).
    def stored(self, problem: Unstored | None, now_ms: int) -> Action:
        """Return the next action after a Store. `problem`: None if the reply is durable."""
        store = self._next
        assert isinstance(store, Store), store
        self.failure = None
        if problem is None:
            return self._done(End.COMPLETED)
        self.failure = Attempt(
            To.REPLY,
            store.log,
            store.attempt,
            problem.at_ms,
            None,
            problem.reason,
            b"",
            problem.retryable,
        )
        return self._failed(self.failure, Answer(None, problem.at_ms), now_ms)

    def resumed(self) -> Action:
        """Return the next action after a Wait."""
        assert isinstance(self._next, Wait), self._next
        self.failure = None
        return self._to_dead_letter() if self._cause is not None else self._to_subscriber()

    # -- actions

    def _to_subscriber(self) -> Action:
        """A Subscription may have a reply URL only: then the event itself goes there, without `Prefer:
        reply`.
        """
        url = self.subscriber.subscriber_url
        replies = url is not None
        target = url if url is not None else self.subscriber.reply_url
        assert target is not None, "a subscriber has a URL or a reply URL"
        return self._post(To.SUBSCRIBER, target, self._shown(target), reply_wanted=replies)

    def _shown(self, url: str) -> CloudEvent:
        """Return the event for a URL. Outside of Brokers, it does not have the attributes that a Broker
        added.
        """
        return departing(self.event) if self.subscriber.departs(url) else self.event

    def _post(
        self,
        to: To,
        url: str,
        event: CloudEvent,
        *,
        reply_wanted: bool = False,
        passed_on: tuple[tuple[bytes, bytes], ...] = (),
    ) -> Action:
        delivery = self.subscriber.delivery
        return self._then(
            Post(
                to,
                url,
                event,
                self._count(to),
                reply_wanted,
                delivery.timeout_ms,
                passed_on,
                delivery.structured,
            )
        )

    def _count(self, to: To) -> int:
        self._attempts[to] += 1
        assert self._attempts[to] <= self.subscriber.delivery.retry + 1, to
        return self._attempts[to]

    def _reply(self, reply: CloudEvent, answer: Answer) -> Action:
        """Deliver or store the reply (step 4). Without a reply URL and a Broker, the reply is dropped."""
        # A Broker takes replies into its own log (the events go to all its Triggers); a Subscription posts
        # them to its reply URL.
        if self.subscriber.reply_log is not None:
            stored = reply_to(self.event, reply)
            if stored is None:
                # The delivery is complete: the subscriber accepted the event. Only the chain of replies ends.
                self._reply_expired = True
                return self._done(End.COMPLETED)
            return self._then(
                Store(self.subscriber.reply_log, stored, self._count(To.REPLY), tuple(answer.headers)),
            )
        if self.subscriber.reply_url is not None:
            return self._post(To.REPLY, self.subscriber.reply_url, reply, passed_on=tuple(answer.headers))
        return self._done(End.COMPLETED)

    def _failed(self, failure: Attempt, answer: Answer, now_ms: int) -> Action:
        """Retry, or send to the dead letter sink (steps 2.1 and 5).

        The dead letter sink has its own retries. A failure at any other destination uses a retry of the
        subscriber.
        """
        # A failed reply counts as a failed attempt of the subscriber. With a count of its own, a reply that
        # fails would multiply the retries of the subscriber.
        attempts = self._attempts[To.DEAD_LETTER if failure.destination == To.DEAD_LETTER else To.SUBSCRIBER]
        if failure.retryable and attempts <= self.subscriber.delivery.retry:
            wait = self.spread(wait_ms(self.subscriber.delivery, attempts, answer))
            return self._then(Wait(now_ms + wait, attempts))
        if failure.destination == To.DEAD_LETTER or self.subscriber.delivery.dead_letter_url is None:
            return self._done(End.DROPPED, failure)
        # Kept over the retries of the sink: the dead letter names the failure of the subscriber and not that
        # of the sink.
        self._cause = failure
        return self._to_dead_letter()

    def _to_dead_letter(self) -> Action:
        url = self.subscriber.delivery.dead_letter_url
        assert url is not None
        assert self._cause is not None
        subscriber_url = self.subscriber.subscriber_url or self.subscriber.reply_url or ""
        attempts = self._attempts[To.SUBSCRIBER]
        event = dead_letter(self._shown(url), self._cause, subscriber_url=subscriber_url, attempts=attempts)
        return self._post(To.DEAD_LETTER, url, event)

    def _done(self, end: End, failure: Attempt | None = None) -> Action:
        cause = failure if end is End.DROPPED else self._cause
        return self._then(Done(end, self._attempts[To.SUBSCRIBER], cause, self._reply_expired))

    def _then(self, action: Action) -> Action:
        self._next = action
        return action
