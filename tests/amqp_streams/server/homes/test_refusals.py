"""Refused nodes: said once, whatever a flooder does."""

from amqp_streams.server.homes.refusals import (
    KEPT_MAX,
    LATELY_S,
    LINES_MAX,
    LINES_S,
    SHOWN_MAX,
    Refusals,
)


def test_a_reason_is_logged_once_until_a_node_of_the_network_was_accepted() -> None:
    refusals = Refusals()
    assert refusals.add("a", "secret", "words", 0)
    assert not refusals.add("a", "secret", "words", 1)
    assert refusals.add("a", "cluster", "words", 1)
    assert refusals.add("b", "secret", "words", 1)
    refusals.accepted("a")
    assert refusals.add("a", "secret", "words", 2)
    assert not refusals.add("b", "secret", "words", 2)


def test_many_networks_cause_few_lines_and_bounded_memory() -> None:
    refusals = Refusals()
    logged = [refusals.add(f"n{each}", "frame", "words", 0) for each in range(10 * KEPT_MAX)]
    assert sum(logged) == LINES_MAX
    assert len(refusals._kept) == KEPT_MAX
    assert len(refusals.lately(0)) == SHOWN_MAX


def test_a_reason_that_was_left_out_is_logged_later() -> None:
    refusals = Refusals()
    for each in range(LINES_MAX + 1):
        refusals.add(f"n{each}", "frame", "words", 0)
    assert refusals.add(f"n{LINES_MAX}", "frame", "words", LINES_S)
    assert not refusals.add("n0", "frame", "words", LINES_S)


def test_a_refusal_is_a_problem_for_a_while() -> None:
    refusals = Refusals()
    refusals.add("a", "secret", "the secrets differ", 0)
    assert refusals.lately(LATELY_S - 1) == ("a node at a was refused: the secrets differ",)
    assert refusals.lately(LATELY_S) == ()
