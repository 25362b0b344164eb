"""Any delivery, whatever is answered, against a plain reading of the rules. knative-eventing-test-spec,
"Event Delivery".
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from knative_gateway.delivery.outcome import Answer
from knative_gateway.delivery.plan import Action, Done, End, Plan, Post, Store, To, Unstored, Wait
from knative_gateway.ports import BackoffPolicy, Subscriber
from tests.knative_gateway.delivery.made import AT_MS, LOG, REPLY, SINK, SUBSCRIBER, answer, event, subscriber
from tests.properties import examples

STATUSES = st.sampled_from((None, 100, 200, 200, 201, 202, 301, 400, 404, 408, 409, 410, 429, 500, 503))
REPLIES = st.sampled_from((None, event(id="r")))
ANSWERS = st.builds(lambda status, reply: answer(status, event=reply), STATUSES, REPLIES)
PROBLEMS = st.sampled_from((None, Unstored("away", AT_MS), Unstored("too large", AT_MS, retryable=False)))
SUBSCRIBERS = st.builds(
    lambda kind, retry, sink, policy, delay: subscriber(
        url=None if kind == "reply only" else SUBSCRIBER,
        reply_log=LOG if kind == "trigger" else None,
        reply_url=REPLY if kind in ("subscription", "reply only") else None,
        retry=retry,
        dead_letter_url=sink,
        backoff_policy=policy,
        backoff_delay_ms=delay,
    ),
    st.sampled_from(("trigger", "subscription", "no reply", "reply only")),
    st.integers(0, 4),
    st.sampled_from((None, SINK)),
    st.sampled_from(BackoffPolicy),
    st.integers(0, 1000),
)


@dataclass
class World:
    """The answers of destinations, in order. After the last one, everything is accepted."""

    answers: Iterator[Answer]
    problems: Iterator[Unstored | None]


@given(SUBSCRIBERS, st.lists(ANSWERS, max_size=20), st.lists(PROBLEMS, max_size=10))
@settings(max_examples=examples(300))
def test_every_event_ends_completed_dead_lettered_or_dropped_with_a_record(
    to: Subscriber, answers: list[Answer], problems: list[Unstored | None]
) -> None:
    trail, ended = run(to, answers, problems)
    posts = Counter(action.to for action in trail if isinstance(action, Post))
    stores = sum(isinstance(action, Store) for action in trail)
    most = to.delivery.retry + 1
    assert all(count <= most for count in posts.values())
    assert stores + posts[To.REPLY] <= posts[To.SUBSCRIBER] == ended.attempts
    assert (ended.end is End.COMPLETED) is (ended.failure is None)
    assert posts[To.DEAD_LETTER] == 0 or to.delivery.dead_letter_url is not None
    assert ended.end is not End.DEAD_LETTERED or posts[To.DEAD_LETTER] > 0
    assert ended.end is not End.COMPLETED or posts[To.DEAD_LETTER] == 0
    # Dropped only without a sink, or if the sink did not take it either.
    assert ended.end is not End.DROPPED or to.delivery.dead_letter_url is None or posts[To.DEAD_LETTER] > 0
    assert (ended.end, [kind(action) for action in trail]) == expected(to, answers, problems)


def run(to: Subscriber, answers: list[Answer], problems: list[Unstored | None]) -> tuple[list[Action], Done]:
    world = World(iter(answers), iter(problems))
    plan = Plan(to, event())
    action, now, trail = plan.start(), 0, list[Action]()
    for _ in range(100):
        trail.append(action)
        match action:
            case Done():
                return trail, action
            case Wait(until, _):
                assert until >= now
                assert plan.failure is not None
                now = until
                action = plan.resumed()
            case Post():
                action = plan.answered(next(world.answers, answer(202)), now)
            case Store():
                action = plan.stored(next(world.problems, None), now)
    raise AssertionError("it does not end")


def kind(action: Action) -> str:
    return action.to.value if isinstance(action, Post) else type(action).__name__


def expected(to: Subscriber, answers: list[Answer], problems: list[Unstored | None]) -> tuple[End, list[str]]:
    """Return the expected result, computed with loops: attempts of the whole delivery, then attempts of the
    dead letter.
    """
    world = World(iter(answers), iter(problems))
    trail: list[str] = []
    delivered = tried(to.delivery.retry, lambda: whole(to, world, trail), trail)
    if delivered:
        return End.COMPLETED, [*trail, "Done"]
    if to.delivery.dead_letter_url is None:
        return End.DROPPED, [*trail, "Done"]
    sunk = tried(to.delivery.retry, lambda: posted(world, trail, To.DEAD_LETTER)[0], trail)
    return End.DEAD_LETTERED if sunk else End.DROPPED, [*trail, "Done"]


def tried(retry: int, attempt: object, trail: list[str]) -> bool:
    assert callable(attempt)
    for number in range(retry + 1):
        result = attempt()
        if result is not None:
            return bool(result)
        if number < retry:
            trail.append("Wait")
    return False


def whole(to: Subscriber, world: World, trail: list[str]) -> bool | None:
    """Carry out one attempt. True: delivered; False: failed permanently; None: may be retried."""
    result, reply = posted(world, trail, To.SUBSCRIBER)
    if not result or not reply or to.subscriber_url is None:
        return result
    if to.reply_log is not None:
        trail.append("Store")
        problem = next(world.problems, None)
        return True if problem is None else None if problem.retryable else False
    return posted(world, trail, To.REPLY)[0] if to.reply_url is not None else True


def posted(world: World, trail: list[str], to: To) -> tuple[bool | None, bool]:
    trail.append(to.value)
    got = next(world.answers, answer(202))
    if got.status is None or got.status in (404, 408, 409, 429) or got.status >= 500:
        return None, False
    return 200 <= got.status < 300, got.status == 200 and got.event is not None
