"""The threads of buckets: answers on the loop, one question at a time, threads that are given back."""

import socket
from collections.abc import Iterator

import pytest

from amqp_streams.kafka.sharing.parts import RECORDS_MAX
from amqp_streams.kafka.sharing.producing import RECORD_BYTES_MAX, Ended, Outcome
from amqp_streams.kafka.sharing.transactions import Transactions
from amqp_streams.testing import ManualLoop
from tests.amqp_streams.kafka.sharing.conftest import boot_ms, connection


class Asked:
    """Transactions whose loop is the test, and the answers."""

    def __init__(self, servers: str, *, threads_max: int = 32) -> None:
        self.loop = ManualLoop()
        self.fences: list[str | None] = []
        self.ends: list[Ended] = []
        self.transactions = Transactions(
            connection(servers),
            "t.state",
            prefix="t",
            loop_call=self.loop.call,
            boot_ms=boot_ms,
            threads_max=threads_max,
        )

    def fence(self, bucket: int) -> str | None:
        count = len(self.fences)
        self.transactions.fence(bucket, self.fences.append)
        self.loop.run_until(lambda: len(self.fences) > count, timeout_s=60)
        return self.fences[-1]

    def commit(self, bucket: int, changes: dict[str, bytes | None]) -> Ended:
        count = len(self.ends)
        self.transactions.commit(bucket, changes, self.ends.append)
        self.loop.run_until(lambda: len(self.ends) > count, timeout_s=60)
        return self.ends[-1]


@pytest.fixture
def asked(mock_kafka: str) -> Iterator[Asked]:
    made = Asked(mock_kafka)
    yield made
    assert made.transactions.close(60)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a broker that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_each_bucket_has_a_thread_until_it_is_released(asked: Asked) -> None:
    for bucket in range(3):
        assert asked.fence(bucket) is None
        assert asked.commit(bucket, {"home": b"1"}).outcome is Outcome.COMMITTED
    assert asked.transactions.threads == 3
    asked.transactions.release(1)
    asked.transactions.release(1)
    assert asked.commit(0, {"home": b"2"}).outcome is Outcome.COMMITTED
    assert asked.transactions.close(60)
    assert asked.transactions.threads == 0


def test_a_bucket_that_is_fenced_again_keeps_its_thread(asked: Asked) -> None:
    assert asked.fence(3) is None
    assert asked.fence(3) is None
    assert asked.transactions.threads == 1
    assert asked.commit(3, {"home": b"1"}).outcome is Outcome.COMMITTED


def test_a_producer_in_doubt_is_not_used_again(asked: Asked) -> None:
    assert asked.fence(0) is None
    # One part is committed, and the next one is not.
    changes: dict[str, bytes | None] = {f"{number}": b"" for number in range(RECORDS_MAX)}
    in_doubt = asked.commit(0, changes | {"last": b"x" * (RECORD_BYTES_MAX + 1)})
    assert in_doubt.outcome is Outcome.UNKNOWN
    again = asked.commit(0, {"home": b"1"})
    assert again.outcome is Outcome.UNKNOWN
    assert "is fenced before a commit" in again.reason
    assert asked.fence(0) is None
    assert asked.commit(0, {"home": b"1"}).outcome is Outcome.COMMITTED


def test_a_bucket_has_one_question_at_a_time(asked: Asked) -> None:
    assert asked.fence(0) is None
    asked.transactions.commit(0, {"home": b"1"}, asked.ends.append)
    with pytest.raises(AssertionError, match="bucket 0 has a question in work"):
        asked.transactions.commit(0, {"home": b"2"}, asked.ends.append)
    asked.loop.run_until(lambda: bool(asked.ends))
    assert len(asked.ends) == 1


def test_a_bucket_that_comes_back_does_not_wait_for_its_old_thread_and_threads_have_a_bound(
    silent: str,
) -> None:
    asked = Asked(silent, threads_max=2)
    asked.transactions.fence(0, asked.fences.append)
    # It was lost, and comes back while the first question still waits for Kafka.
    asked.transactions.fence(0, asked.fences.append)
    assert asked.transactions.threads == 2
    refused = asked.fence(1)
    assert refused == "bucket 1 cannot be fenced: 2 threads wait for Kafka (at most 2)"
    # The old question has no answer: its bucket was fenced again.
    asked.loop.run_until(lambda: len(asked.fences) > 1, timeout_s=60)
    assert asked.fences[1] is not None
    assert asked.fences[1].startswith("bucket 0 of topic 't.state' cannot be fenced: ")
    assert asked.transactions.close(60)
    assert asked.transactions.threads == 0
    asked.loop.run_ready()
    assert len(asked.fences) == 2
