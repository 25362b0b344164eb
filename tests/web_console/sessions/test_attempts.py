"""How often an address may fail to log in."""

from web_console.sessions.attempts import FAILURES_MAX, Attempts


def fail(attempts: Attempts, address: str, now_s: float) -> float:
    """Try once with a wrong password. Returns how long the address must wait instead."""
    wait_s = attempts.begin(address, now_s)
    if wait_s == 0:
        attempts.end(address, now_s, failed=True)
    return wait_s


def test_the_first_failures_cost_no_wait_and_the_next_ones_do() -> None:
    attempts = Attempts()
    assert [fail(attempts, "a", 0.0) for _ in range(FAILURES_MAX + 2)] == [0] * FAILURES_MAX + [10, 10]
    assert fail(attempts, "a", 10.0) == 0
    assert fail(attempts, "a", 10.0) == 10
    assert fail(attempts, "b", 0.0) == 0


def test_failures_are_forgotten() -> None:
    attempts = Attempts()
    for _ in range(FAILURES_MAX):
        fail(attempts, "a", 0.0)
    assert fail(attempts, "a", 1.0) == 9
    assert [fail(attempts, "a", 50.0) for _ in range(FAILURES_MAX)] == [0] * FAILURES_MAX


def test_logins_at_the_same_time_count_until_they_are_answered() -> None:
    """Otherwise 500 passwords are tried at once."""
    attempts = Attempts()
    assert [attempts.begin("a", 0.0) for _ in range(FAILURES_MAX)] == [0] * FAILURES_MAX
    assert attempts.begin("a", 0.0) > 0
    assert attempts.begin("b", 0.0) == 0
    attempts.end("a", 0.0, failed=False)
    assert attempts.begin("a", 0.0) == 0
    for _ in range(FAILURES_MAX):
        attempts.end("a", 0.0, failed=True)
    assert attempts.begin("a", 0.0) == 10


def test_logins_that_succeed_leave_nothing() -> None:
    attempts = Attempts()
    for _ in range(100):
        assert attempts.begin("a", 0.0) == 0
        attempts.end("a", 0.0, failed=False)
    assert len(attempts) == 0


def test_many_addresses_do_not_take_more_memory() -> None:
    attempts = Attempts()
    for number in range(30_000):
        fail(attempts, str(number), 0.0)
    assert len(attempts) == 10_000
