"""How many attaches of a member wait, and when the member attaches again."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.client.consuming.candidates import ASK_AGAIN_S_MAX, Candidates, Ending
from amqp_streams.client.errors import ClosedError, ConnectionLostError, LinkError, LinkRefusedError
from amqp_streams.client.options import RetryPolicy

STEADY = RetryPolicy(first_ms=100, factor=2, wait_max_ms=60_000, attempts_max=3, jitter=lambda: 1.0)
NONE_LEFT = LinkRefusedError(names.LINK_DETACH_FORCED, "no partition is left")
SHORT = LinkRefusedError(names.RESOURCE_LIMIT_EXCEEDED, "too many attaches wait")


def candidates(partitions: int | None, most: int = 4) -> Candidates:
    made = Candidates(most, STEADY, "member")
    made.partitions = partitions
    return made


def refuse(asked: Candidates, error: LinkRefusedError, now_s: float, lasted_s: float = 0.0) -> Ending:
    return asked.ended(asked.start(), error, held=False, lasted_s=lasted_s, now_s=now_s)


def test_as_many_wait_as_the_limit_and_the_free_partitions_allow() -> None:
    assert candidates(8).due(0, 0.0) == 4
    assert candidates(8).due(6, 0.0) == 2
    assert candidates(8).due(8, 0.0) == 0
    assert candidates(2).due(0, 0.0) == 2
    assert candidates(None).due(5, 0.0) == 4
    asked = candidates(8)
    asked.start()
    assert asked.due(0, 0.0) == 3


def test_a_refusal_at_once_is_followed_by_one_attach_at_a_time_after_growing_waits() -> None:
    asked, now_s, waits = candidates(8), 10.0, []
    for _ in range(8):
        assert refuse(asked, NONE_LEFT, now_s) is Ending.AGAIN
        assert asked.due(0, now_s) == 0
        assert asked.due_at is not None
        waits.append(asked.due_at - now_s)
        now_s = asked.due_at
        assert asked.due(0, now_s) == 1
        assert asked.due_at is None
    assert [round(wait, 3) for wait in waits[:4]] == [0.1, 0.2, 0.4, 0.5]
    assert max(waits) <= ASK_AGAIN_S_MAX + 1e-9


def test_a_partition_ends_the_waits_that_grew() -> None:
    asked = candidates(8)
    refuse(asked, NONE_LEFT, 0.0)
    asked.start()
    asked.granted()
    assert asked.due(1, 0.1) == 4


def test_a_refusal_after_a_long_wait_is_asked_again_at_once() -> None:
    asked = candidates(8)
    assert refuse(asked, NONE_LEFT, 30.0, lasted_s=30.0) is Ending.AGAIN
    assert asked.due(0, 30.0) == 4


def test_a_partition_that_moved_away_is_not_a_failure() -> None:
    for condition in (names.LINK_DETACH_FORCED, names.LINK_STOLEN):
        asked = candidates(8)
        name = asked.start()
        asked.granted()
        assert asked.ended(name, LinkError(condition), held=True, lasted_s=5.0, now_s=5.0) is Ending.AGAIN
        assert asked.due(0, 5.0) == 4


def test_temporary_failures_are_retried_up_to_the_policy_s_limit_and_permanent_ones_are_not() -> None:
    asked = candidates(8)
    endings = [refuse(asked, SHORT, float(second)) for second in range(4)]
    assert endings == [Ending.AGAIN] * 3 + [Ending.FINAL]
    for error in (LinkRefusedError(names.NOT_FOUND), LinkRefusedError(names.UNAUTHORIZED_ACCESS)):
        assert refuse(candidates(8), error, 0.0) is Ending.FINAL
    assert (
        candidates(8).ended("member-1", ClosedError("closed"), held=True, lasted_s=0.0, now_s=0.0)
        is Ending.FINAL
    )


def test_a_lost_connection_costs_nothing_but_the_links() -> None:
    asked = candidates(4)
    names_used = [asked.start() for _ in range(4)]
    for name in names_used:
        asked.ended(name, ConnectionLostError("connection lost"), held=False, lasted_s=0.0, now_s=0.0)
    assert asked.due(0, 0.0) == 4
    assert [asked.start() for _ in range(4)] == names_used


@given(
    st.lists(st.sampled_from(["ask", "grant", "refuse", "lose"]), max_size=60),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_links_are_never_more_than_partitions_and_no_two_have_the_same_name(
    steps: list[str], partitions: int, most: int
) -> None:
    asked = candidates(partitions, most)
    waiting: list[str] = []
    held: list[str] = []
    now_s = 0.0
    for step in steps:
        now_s += 1.0
        if step == "ask":
            waiting += [asked.start() for _ in range(asked.due(len(held), now_s))]
        elif step == "grant" and waiting:
            asked.granted()
            held.append(waiting.pop(0))
        elif step == "refuse" and waiting:
            asked.ended(waiting.pop(0), NONE_LEFT, held=False, lasted_s=0.0, now_s=now_s)
        elif step == "lose" and held:
            asked.ended(
                held.pop(0), LinkError(names.LINK_DETACH_FORCED), held=True, lasted_s=9.0, now_s=now_s
            )
        assert asked.waiting == len(waiting) <= most
        assert len(waiting) + len(held) <= partitions
        assert len({*waiting, *held}) == len(waiting) + len(held)
