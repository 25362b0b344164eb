"""The delivery of one event to one subscriber: knative-eventing-test-spec, "Event Delivery"."""

from dataclasses import replace

import pytest

from knative_gateway.delivery.plan import (
    BODY_BYTES_MAX,
    Action,
    Done,
    End,
    Plan,
    Post,
    Store,
    To,
    Unstored,
    Wait,
)
from knative_gateway.delivery.ttl import TTL
from knative_gateway.ports import BackoffPolicy
from tests.knative_gateway.delivery.made import AT_MS, LOG, REPLY, SINK, SUBSCRIBER, answer, event, subscriber

UNSTORED = Unstored("the log is away", AT_MS)


def post(action: Action) -> Post:
    assert isinstance(action, Post), action
    return action


def done(action: Action) -> Done:
    assert isinstance(action, Done), action
    return action


def again(plan: Plan, action: Action, *, after: int = 0) -> Action:
    """The step after the wait."""
    assert isinstance(action, Wait), action
    assert action.until_ms == after
    return plan.resumed()


def test_an_event_that_is_accepted_is_completed() -> None:
    """Step 3: the attempt is successful and no event is returned: the delivery is complete."""
    plan = Plan(subscriber(timeout_ms=500), event())
    assert plan.start() == Post(To.SUBSCRIBER, SUBSCRIBER, event(), 1, True, 500)
    assert plan.answered(answer(202), 0) == Done(End.COMPLETED, 1)
    assert plan.failure is None


def test_a_retryable_failure_is_retried_up_to_retry_times_with_backoff() -> None:
    """Step 2.1: MUST be retried up to `retry` times, following the backoffPolicy and backoffDelay."""
    plan = Plan(subscriber(retry=3, backoff_policy=BackoffPolicy.EXPONENTIAL, backoff_delay_ms=100), event())
    action = plan.start()
    for attempt, wait in ((1, 100), (2, 200), (3, 400)):
        assert post(action).attempt == attempt
        waiting = plan.answered(answer(503), 1000)
        assert waiting == Wait(1000 + wait, attempt)
        assert plan.failure is not None
        assert plan.failure.number == attempt
        action = plan.resumed()
    assert post(action).attempt == 4
    ended = done(plan.answered(answer(503), 1000))
    assert (ended.end, ended.attempts) == (End.DROPPED, 4)
    assert ended.failure == plan.failure


def test_a_retry_that_is_accepted_completes() -> None:
    plan = Plan(subscriber(retry=1), event())
    plan.start()
    again(plan, plan.answered(answer(None, reason="timeout"), 0))
    assert plan.answered(answer(200), 0) == Done(End.COMPLETED, 2)


def test_without_retry_one_attempt_is_made() -> None:
    plan = Plan(subscriber(), event())
    plan.start()
    assert done(plan.answered(answer(503), 0)).end is End.DROPPED


def test_an_outcome_that_is_not_retryable_is_not_retried() -> None:
    plan = Plan(subscriber(retry=5), event())
    plan.start()
    ended = done(plan.answered(answer(400, body=b"bad" * 10_000), 0))
    assert ended.end is End.DROPPED
    assert ended.failure is not None
    assert (ended.failure.code, ended.failure.reason, ended.failure.retryable) == (400, "status 400", False)
    assert len(ended.failure.body) == BODY_BYTES_MAX


def test_the_wait_may_be_spread_and_lengthened_by_retry_after() -> None:
    plan = Plan(subscriber(retry=2, backoff_delay_ms=100), event(), spread=lambda wait: wait // 2)
    plan.start()
    again(plan, plan.answered(answer(500), 0), after=50)
    again(plan, plan.answered(answer(503, headers=((b"retry-after", b"9"),)), 0), after=4500)


def test_an_event_that_cannot_be_delivered_goes_to_the_dead_letter_sink() -> None:
    """Step 5: the event MUST be delivered to the deadLetterSink. It gets the destination and the reason, and
    no Prefer-Reply header.
    """
    plan = Plan(subscriber(retry=1, dead_letter_url=SINK), event(subject="x"))
    plan.start()
    again(plan, plan.answered(answer(503), 0))
    sent = post(plan.answered(answer(500, body=b"broken"), 0))
    assert (sent.to, sent.url, sent.attempt, sent.reply_wanted) == (To.DEAD_LETTER, SINK, 1, False)
    assert sent.event.data == event().data
    assert sent.event.attributes == {
        **event(subject="x").attributes,
        "knativeerrordest": SUBSCRIBER,
        "knativeerrorcode": 500,
        "knativeerrordata": "broken",
        "deadlettersubscriberuri": SUBSCRIBER,
        "deadletterreason": "status 500",
        "deadletterretry": 2,
    }
    ended = done(plan.answered(answer(202), 0))
    assert (ended.end, ended.attempts) == (End.DEAD_LETTERED, 2)
    assert ended.failure is not None
    assert ended.failure.code == 500


def test_an_event_in_the_sink_s_answer_is_not_a_reply() -> None:
    plan = Plan(subscriber(dead_letter_url=SINK, reply_log=LOG), event())
    plan.start()
    plan.answered(answer(500), 0)
    assert done(plan.answered(answer(200, event=event()), 0)).end is End.DEAD_LETTERED


def test_the_sink_has_retries_of_its_own_and_then_the_event_is_dropped_with_a_record() -> None:
    plan = Plan(subscriber(retry=2, dead_letter_url=SINK), event())
    action = plan.start()
    for _ in range(2):
        action = again(plan, plan.answered(answer(500), 0))
    action = plan.answered(answer(500), 0)
    for attempt in (1, 2):
        assert (post(action).to, post(action).attempt) == (To.DEAD_LETTER, attempt)
        action = again(plan, plan.answered(answer(None, reason="refused"), 0))
    ended = done(plan.answered(answer(503), 0))
    assert (ended.end, ended.attempts) == (End.DROPPED, 3)
    assert ended.failure is not None
    assert (ended.failure.destination, ended.failure.number) == (To.DEAD_LETTER, 3)


def test_a_sink_that_refuses_permanently_drops_the_event_at_once() -> None:
    plan = Plan(subscriber(retry=2, dead_letter_url=SINK), event())
    plan.start()
    plan.answered(answer(400), 0)
    assert done(plan.answered(answer(413), 0)).end is End.DROPPED


def test_a_trigger_s_reply_is_added_to_the_broker() -> None:
    """Step 4: an event in the reply MUST be added to the Broker for processing (for Triggers)."""
    plan = Plan(subscriber(reply_log=LOG), event(**{TTL: 7}))
    assert TTL not in post(plan.start()).event.attributes
    reply = event(type="reply")
    assert plan.answered(answer(200, event=reply), 0) == Store(LOG, event(type="reply", **{TTL: 6}), 1)
    assert plan.stored(None, 0) == Done(End.COMPLETED, 1)


def test_a_reply_whose_chain_is_too_long_is_dropped() -> None:
    plan = Plan(subscriber(reply_log=LOG), event(**{TTL: 1}))
    plan.start()
    assert plan.answered(answer(200, event=event()), 0) == Done(End.COMPLETED, 1, reply_expired=True)


def test_a_reply_that_is_not_stored_fails_the_delivery_and_the_subscriber_is_called_again() -> None:
    """Content Based Routing: if the storage of the reply fails, the entire delivery MUST be failed and the
    delivery to the Trigger's subscriber MUST be retried."""
    plan = Plan(subscriber(reply_log=LOG, retry=1, backoff_delay_ms=100), event())
    plan.start()
    plan.answered(answer(200, event=event(id="r")), 0)
    second = again(plan, plan.stored(UNSTORED, 0), after=100)
    assert plan.failure is None
    assert (post(second).to, post(second).attempt) == (To.SUBSCRIBER, 2)
    plan.answered(answer(200, event=event(id="r2")), 0)
    assert plan.stored(None, 0) == Done(End.COMPLETED, 2)


def test_a_reply_that_is_never_stored_makes_the_event_a_dead_letter() -> None:
    plan = Plan(subscriber(reply_log=LOG, retry=1, dead_letter_url=SINK), event(**{TTL: 9}))
    plan.start()
    plan.answered(answer(200, event=event()), 0)
    again(plan, plan.stored(UNSTORED, 0))
    plan.answered(answer(200, event=event()), 0)
    sent = post(plan.stored(replace(UNSTORED, reason="too large", retryable=False), 0))
    assert sent.event.attributes["deadletterreason"] == "too large"
    assert sent.event.attributes["knativeerrordest"] == LOG
    assert TTL not in sent.event.attributes


def test_between_brokers_of_this_gateway_an_event_goes_with_its_count() -> None:
    """Without the count, two Brokers that send to each other, or a Broker whose dead letters return to it,
    would loop without end.
    """
    here = "http://gateway/broker/"
    to_broker = subscriber(url=f"{here}d/b", reply_log=LOG, retry=0, dead_letter_url=SINK)
    plan = Plan(replace(to_broker, brokers=here), event(**{TTL: 9}))
    assert post(plan.start()).event.attributes[TTL] == 9
    assert TTL not in post(plan.answered(answer(400), 0)).event.attributes
    plan = Plan(
        replace(subscriber(reply_log=LOG, dead_letter_url=f"{here}d/dead"), brokers=here), event(**{TTL: 9})
    )
    assert TTL not in post(plan.start()).event.attributes
    assert post(plan.answered(answer(400), 0)).event.attributes[TTL] == 9


def test_a_reply_that_the_log_will_never_take_is_not_retried() -> None:
    plan = Plan(subscriber(reply_log=LOG, retry=5), event())
    plan.start()
    plan.answered(answer(200, event=event()), 0)
    ended = done(plan.stored(Unstored("too large", AT_MS, retryable=False), 0))
    assert (ended.end, ended.attempts) == (End.DROPPED, 1)


def test_a_subscription_s_reply_is_delivered_to_its_destination() -> None:
    """Step 4: the reply event MUST be delivered to the status.replyUri destination; without `Prefer: reply`,
    with the answer's headers.
    """
    plan = Plan(subscriber(reply_url=REPLY, timeout_ms=9), event())
    plan.start()
    headers = ((b"x-request-id", b"1"),)
    assert plan.answered(answer(200, event=event(id="r"), headers=headers), 0) == Post(
        To.REPLY, REPLY, event(id="r"), 1, False, 9, headers
    )
    assert plan.answered(answer(200, event=event(id="rr")), 0) == Done(End.COMPLETED, 1)


def test_a_reply_without_a_destination_is_dropped() -> None:
    """Step 4: if status.replyUri is not present in the Subscription, the reply event MUST be dropped."""
    plan = Plan(subscriber(), event())
    plan.start()
    assert plan.answered(answer(200, event=event()), 0) == Done(End.COMPLETED, 1)


def test_a_reply_that_fails_retryably_retries_the_entire_delivery() -> None:
    """Step 4.1: the entire delivery MUST be retried up to `retry` times, following backoffPolicy and
    backoffDelay.
    """
    plan = Plan(subscriber(reply_url=REPLY, retry=2, backoff_delay_ms=100, dead_letter_url=SINK), event())
    action = plan.start()
    for attempt in (1, 2, 3):
        assert (post(action).to, post(action).attempt) == (To.SUBSCRIBER, attempt)
        action = plan.answered(answer(200, event=event(id="r")), 0)
        assert (post(action).to, post(action).attempt) == (To.REPLY, attempt)
        action = plan.answered(answer(503), 0)
        if attempt < 3:
            action = again(plan, action, after=100 * attempt)
    assert post(action).to is To.DEAD_LETTER
    assert post(action).event.attributes["id"] == "1"
    assert post(action).event.attributes["knativeerrordest"] == REPLY


def test_a_reply_that_fails_permanently_makes_the_event_a_dead_letter() -> None:
    """Step 5: if an event (the initial event or a reply) cannot be delivered, nothing is retried, and the
    initial event goes to the sink.
    """
    plan = Plan(subscriber(reply_url=REPLY, retry=5, dead_letter_url=SINK), event())
    plan.start()
    plan.answered(answer(200, event=event(id="r")), 0)
    sent = post(plan.answered(answer(400), 0))
    assert (sent.to, sent.event.attributes["id"], sent.event.attributes["knativeerrorcode"]) == (
        To.DEAD_LETTER,
        "1",
        400,
    )


@pytest.mark.parametrize("status", [200, 202])
def test_a_reply_only_subscription_gets_the_event_at_its_reply(status: int) -> None:
    """Subscription Lifecycle: equivalent to setting spec.subscriber, except that the Channel SHOULD NOT
    advertise to process replies.
    """
    plan = Plan(subscriber(url=None, reply_url=REPLY), event(**{TTL: 5}))
    assert plan.start() == Post(To.SUBSCRIBER, REPLY, event(**{TTL: 5}), 1, False, None)
    assert plan.answered(answer(status, event=event()), 0) == Done(End.COMPLETED, 1)


def test_a_reply_only_subscription_s_dead_letter_names_where_it_should_have_gone() -> None:
    plan = Plan(subscriber(url=None, reply_url=REPLY, dead_letter_url=SINK), event())
    plan.start()
    sent = post(plan.answered(answer(400), 0))
    assert (
        sent.event.attributes["deadlettersubscriberuri"] == sent.event.attributes["knativeerrordest"] == REPLY
    )


def test_a_result_that_was_not_waited_for_is_our_fault() -> None:
    plan = Plan(subscriber(), event())
    with pytest.raises(AssertionError):
        plan.answered(answer(200), 0)
    plan.start()
    for wrong in (plan.start, plan.resumed, lambda: plan.stored(None, 0)):
        with pytest.raises(AssertionError):
            wrong()
