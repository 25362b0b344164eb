"""How often a login may fail, with a clock of the test."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.server.limits.logins import TABLE_MAX, Failures, Logins, peer_network

HERE, THERE = "10.0.0.1:4000", "10.0.0.2:4000"


def logins() -> Logins:
    return Logins(address_burst=6, user_burst=3, interval_ms=1000)


def test_so_many_may_fail_in_a_row_and_then_one_every_interval() -> None:
    failures: Failures[str] = Failures(3, 1000)
    for _ in range(3):
        assert not failures.exhausted("a", 0)
        failures.add("a", 0)
    assert failures.exhausted("a", 999)
    assert not failures.exhausted("a", 1000)
    failures.add("a", 1000)
    assert failures.exhausted("a", 1999)
    assert not failures.exhausted("a", 2000)
    assert not failures.exhausted("b", 0)
    assert not failures.exhausted("a", 60_000)


@given(st.lists(st.tuples(st.integers(0, 500), st.booleans()), max_size=200))
def test_over_any_stretch_no_more_fail_than_the_burst_and_what_flows_in(
    steps: list[tuple[int, bool]],
) -> None:
    failures: Failures[str] = Failures(3, 1000)
    now_ms, failed = 0, []
    for passed_ms, _ in steps:
        now_ms += passed_ms
        if not failures.exhausted("a", now_ms):
            failures.add("a", now_ms)
            failed.append(now_ms)
    for index, start in enumerate(failed):
        for count, end in enumerate(failed[index:], 1):
            assert count <= 3 + (end - start) / 1000 + 1e-6


def test_the_table_is_bounded_and_forgets_what_was_used_longest_ago() -> None:
    failures: Failures[int] = Failures(1, 1000)
    for key in range(TABLE_MAX + 10):
        failures.add(key, 0)
    assert len(failures) == TABLE_MAX
    assert not failures.exhausted(9, 0)
    assert failures.exhausted(10, 0)


def test_an_address_is_limited_whomever_it_tries() -> None:
    memory = logins()
    for number in range(6):
        assert not memory.limited(HERE, f"user-{number}", 0)
        memory.failed(HERE, f"user-{number}", 0)
    assert memory.limited(HERE, "another", 0)
    assert memory.limited(HERE, None, 0)
    assert memory.limited("10.0.0.1:9999", None, 0), "the port does not matter"
    assert not memory.limited(THERE, "another", 0)


def test_a_user_is_limited_from_wherever_it_is_tried() -> None:
    memory = logins()
    for number in range(3):
        memory.failed(f"10.0.1.{number}:1", "alice", 0)
    assert memory.limited(HERE, "alice", 0)
    assert not memory.limited(HERE, "bob", 0)
    assert not memory.limited(HERE, "alice", 1000)


def test_a_success_gives_no_guesses_back() -> None:
    memory = logins()
    for number in range(6):
        memory.failed(HERE, f"user-{number}", 0)
        memory.succeeded(HERE, "mallory")
    assert memory.limited(HERE, "alice", 0)


def test_unauthenticated_clients_cannot_keep_a_user_out_of_an_address_it_used_before() -> None:
    memory = logins()
    memory.succeeded(HERE, "alice")
    for number in range(20):
        memory.failed(THERE, "alice", 0)
        memory.failed(HERE, f"user-{number}", 0)
    assert not memory.limited(HERE, "alice", 0)
    for _ in range(3):
        memory.failed(HERE, "alice", 0)
    assert memory.limited(HERE, "alice", 0), "but it may not guess there either"


def test_the_places_where_users_have_been_are_bounded() -> None:
    memory = logins()
    for number in range(TABLE_MAX + 1):
        memory.succeeded(HERE, f"user-{number}")
    for _ in range(10):
        memory.failed(HERE, None, 0)
    assert memory.limited(HERE, "user-0", 0)
    assert not memory.limited(HERE, "user-1", 0)


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("127.0.0.1:40112", "127.0.0.1"),
        ("[::1]:5", "::/64"),
        ("[2001:db8:1:2:3:4:5:6]:5", "2001:db8:1:2::/64"),
        ("[fe80::1%eth0]:5", "fe80::/64"),
        ("?:0", "?"),
        ("name:1", "name"),
    ],
)
def test_the_network_of_a_peer_is_that_of_its_host(peer: str, network: str) -> None:
    assert peer_network(peer) == network
