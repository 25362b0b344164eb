"""The queue of password checks is bounded and fair, and clients that have left are not checked."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from amqp_streams.server.identity.password_checks import (
    NICENESS,
    RUNNING_MAX,
    PasswordChecks,
    checking_threads,
)
from amqp_streams.wire.security.mechanisms import VerifyPlain


class Held(Executor):
    """Carries out a check when the test allows it."""

    def __init__(self) -> None:
        self.held: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.held.append((future, fn, args))
        return future

    def finish(self) -> None:
        future, fn, args = self.held.pop(0)
        try:
            result = fn(*args)
        except ValueError as error:
            future.set_exception(error)
        else:
            future.set_result(result)


def verify(user: str, password: str) -> bool:
    if user == "broken":
        raise ValueError
    return password == "good"


class Desk:
    """A queue with an executor of the test's."""

    def __init__(self, waiting_max: int = 100) -> None:
        self.executor = Held()
        self.checks = PasswordChecks(
            verify, self.executor, waiting_max=waiting_max, on_loop=lambda call: call()
        )
        self.told: list[tuple[str, bool]] = []

    def ask(self, address: str, user: str, password: str = "good", *, wanted: bool = True) -> bool:
        return self.checks.ask(
            address,
            VerifyPlain(user, password),
            wanted=lambda: wanted,
            on_result=lambda good: self.told.append((user, good)),
        )

    def finish_all(self) -> None:
        while self.executor.held:
            self.executor.finish()


def test_few_run_and_the_others_wait() -> None:
    desk = Desk()
    for number in range(6):
        assert desk.ask("a", f"user-{number}")
    assert (len(desk.executor.held), desk.checks.waiting) == (RUNNING_MAX, 6 - RUNNING_MAX)
    desk.finish_all()
    assert desk.told == [(f"user-{number}", True) for number in range(6)]
    assert desk.checks.waiting == 0


def test_a_wrong_password_and_a_check_that_fails_are_reported_alike() -> None:
    desk = Desk()
    desk.ask("a", "alice", "bad")
    desk.ask("a", "broken")
    desk.finish_all()
    assert desk.told == [("alice", False), ("broken", False)]


def test_addresses_take_turns() -> None:
    desk = Desk()
    for number in range(10):
        desk.ask("flood", f"flood-{number}")
    desk.ask("quiet", "alice")
    desk.finish_all()
    assert desk.told.index(("alice", True)) <= RUNNING_MAX + 1


def test_waiting_checks_are_bounded_and_one_address_has_half_of_them() -> None:
    desk = Desk(waiting_max=8)
    taken = [desk.ask("flood", f"flood-{number}") for number in range(20)]
    assert sum(taken) == RUNNING_MAX + 4
    assert [desk.ask(f"other-{number}", "x") for number in range(6)] == [True] * 4 + [False] * 2
    desk.finish_all()
    assert len(desk.told) == RUNNING_MAX + 8
    assert desk.ask("flood", "again")


def test_one_place_is_enough_for_one_check_at_a_time() -> None:
    desk = Desk(waiting_max=1)
    assert [desk.ask("a", str(number)) for number in range(4)] == [True] * (RUNNING_MAX + 1) + [False]


def test_a_client_that_has_left_is_not_checked_and_not_notified() -> None:
    desk = Desk()
    for number in range(4):
        desk.ask("a", str(number), wanted=number % 2 == 0)
    desk.finish_all()
    assert desk.told == [("0", True), ("2", True)]


def test_a_cancelled_check_is_reported_as_a_wrong_password() -> None:
    desk = Desk()
    desk.ask("a", "alice")
    desk.executor.held.pop()[0].cancel()
    assert desk.told == [("alice", False)]


def test_the_threads_leave_the_processor_to_the_event_loop() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def of_a_started_thread() -> int:
        found = list[int]()
        thread = threading.Thread(target=lambda: found.append(niceness()))
        thread.start()
        thread.join()
        return found[0]

    own = niceness()
    with checking_threads() as threads:
        # argon2 computes in threads that it starts.
        assert threads.submit(of_a_started_thread).result() == max(NICENESS, own)
    assert niceness() == own
