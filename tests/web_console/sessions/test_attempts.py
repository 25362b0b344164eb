"""How often an address may fail to log in."""

from web_console.sessions.attempts import FAILURES_MAX, Attempts


def test_the_first_failures_cost_no_wait_and_the_next_ones_do() -> None:
    attempts = Attempts()
    for _ in range(FAILURES_MAX):
        assert attempts.wait_s("a", 0.0) == 0
        attempts.failed("a", 0.0)
    assert attempts.wait_s("a", 0.0) == 10
    assert attempts.wait_s("a", 10.0) == 0
    assert attempts.wait_s("b", 0.0) == 0


def test_failures_are_forgotten() -> None:
    attempts = Attempts()
    for _ in range(20):
        attempts.failed("a", 0.0)
    assert attempts.wait_s("a", 0.0) == 160
    assert attempts.wait_s("a", 200.0) == 0
    attempts.failed("a", 200.0)
    assert attempts.wait_s("a", 200.0) == 0


def test_many_addresses_do_not_take_more_memory() -> None:
    attempts = Attempts()
    for number in range(30_000):
        attempts.failed(str(number), 0.0)
    assert len(attempts) == 10_000
