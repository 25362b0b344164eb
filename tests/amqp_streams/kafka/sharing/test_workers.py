"""Producers by key: the answers of a thread, also when its producer raises what nobody expects."""

import threading

from amqp_streams.errors import StorageError
from amqp_streams.kafka.sharing.producing import Ended, Outcome
from amqp_streams.kafka.sharing.workers import Workers
from amqp_streams.testing import ManualLoop


class Made:
    """A producer that does what its key says."""

    def __init__(self, key: str, slow: threading.Event) -> None:
        self.key = key
        self.slow = slow
        self.closed = False

    def fence(self, *, ends_hanging: bool) -> None:
        self.ended_hanging = ends_hanging
        if self.key == "slow":
            assert self.slow.wait(60)
        if self.key == "refused":
            message = "Kafka refuses it"
            raise StorageError(message)
        if self.key == "broken":
            message = "unexpected"
            raise RuntimeError(message)

    def commit(self, asked: int, /) -> Ended:
        return Ended(Outcome.COMMITTED, asked // (0 if self.key == "fragile" else 1))

    def close(self) -> None:
        self.closed = True


class Asked:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.made: list[Made] = []
        self.answers: list[object] = []
        self.slow = threading.Event()
        self.workers: Workers[str, int] = Workers(
            self._make, named=lambda key: f"key {key}", loop_call=self.loop.call, threads_max=4
        )

    def _make(self, key: str) -> Made:
        self.made.append(Made(key, self.slow))
        return self.made[-1]

    def fence(self, key: str) -> object:
        count = len(self.answers)
        self.workers.fence(key, self.answers.append)
        self.loop.run_until(lambda: len(self.answers) > count, timeout_s=60)
        return self.answers[-1]

    def commit(self, key: str, asked: int) -> Ended:
        count = len(self.answers)
        self.workers.commit(key, asked, self.answers.append)
        self.loop.run_until(lambda: len(self.answers) > count, timeout_s=60)
        ended = self.answers[-1]
        assert isinstance(ended, Ended)
        return ended


def test_each_key_has_a_producer_that_is_closed_when_the_key_is_released() -> None:
    asked = Asked()
    assert asked.fence("a") is None
    assert asked.fence("b") is None
    assert asked.commit("a", 5).began_ms == 5
    asked.workers.release("a")
    assert asked.workers.close(60)
    assert [(each.key, each.closed) for each in asked.made] == [("a", True), ("b", True)]


def test_a_key_that_was_released_is_ending_until_its_thread_has_ended() -> None:
    asked = Asked()
    assert asked.fence("a") is None
    asked.slow.clear()
    asked.workers.fence("slow", asked.answers.append)
    asked.workers.fence("slow", asked.answers.append)  # ends the wait of the first, which goes on
    asked.workers.release("slow")
    assert asked.workers.ending == ["slow", "slow"]
    asked.slow.set()
    asked.loop.run_until(lambda: not asked.workers.ending, timeout_s=60)
    assert asked.workers.threads == 1
    assert asked.workers.close(60)


def test_a_fence_that_fails_says_why_and_closes_its_producer() -> None:
    asked = Asked()
    assert asked.fence("refused") == "Kafka refuses it"
    assert asked.fence("broken") == "key broken cannot be fenced: RuntimeError: unexpected"
    assert all(each.closed for each in asked.made)
    assert asked.workers.close(60)


def test_a_transaction_that_raises_has_an_unknown_outcome_and_its_producer_is_not_used_again() -> None:
    asked = Asked()
    assert asked.fence("fragile") is None
    ended = asked.commit("fragile", 1)
    assert ended.outcome is Outcome.UNKNOWN
    assert "ZeroDivisionError" in ended.reason
    assert asked.made[0].closed
    assert "key fragile is fenced before a commit" in asked.commit("fragile", 1).reason
    assert asked.workers.close(60)
