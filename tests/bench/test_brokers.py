"""The judge of accepted events, the proxies, and a short run of chaos on real brokers."""

import asyncio
from pathlib import Path

import pytest

from bench.brokers.failures import lost_offsets
from bench.brokers.proxy import Proxy
from bench.brokers.verdict import Place, judge
from bench.brokers.watchers import cause
from bench.brokers.world import event, place
from bench.server import free_port


def log(*events: str) -> list[Place]:
    """A partition: `a1` is event 1 of producer a."""
    return [Place(offset, each[0], int(each[1:])) for offset, each in enumerate(events)]


def test_a_log_with_every_accepted_event_in_order_keeps_all_promises() -> None:
    stored = {0: log("a1", "b1", "a3"), 1: log("a2")}
    verdict = judge(stored, {0: {"a": [1, 3], "b": [1]}, 1: {"a": [2]}}, {"r": stored})
    assert verdict.violations == ()
    assert (verdict.accepted, verdict.stored, verdict.lost, verdict.reordered) == (4, 4, 0, 0)


def test_an_accepted_event_that_is_not_in_the_log_is_lost() -> None:
    verdict = judge({0: log("a1")}, {0: {"a": [1, 2]}, 1: {"a": [4]}}, {})
    assert verdict.lost == 2
    assert verdict.violations == (
        "partition 0 lost 1 events (2) of a",
        "partition 1 lost 1 events (4) of a",
    )


def test_an_accepted_event_after_a_later_one_is_reordered() -> None:
    verdict = judge({0: log("a1", "a3", "b1", "a2")}, {0: {"a": [1, 2, 3], "b": [1]}}, {})
    assert (verdict.lost, verdict.reordered) == (0, 1)
    assert verdict.violations == ("partition 0 has 1 events (2) of a out of order",)


def test_events_may_overtake_one_that_kafka_did_not_take_in_time() -> None:
    stored = {0: log("a1", "a3", "a2", "a4")}
    verdict = judge(stored, {0: {"a": [1, 2, 3, 4]}}, {}, {0: {"a": [2]}})
    assert (verdict.violations, verdict.reordered, verdict.refused) == ((), 0, 1)
    assert judge(stored, {0: {"a": [1, 2, 3, 4]}}, {}, {0: {"a": [4]}}).reordered == 1


def test_a_copy_counts_once_and_an_unknown_event_may_be_anywhere() -> None:
    verdict = judge({0: log("a1", "a2", "a1", "a9", "a3")}, {0: {"a": [1, 2, 3]}}, {})
    assert verdict.violations == ()
    assert verdict.doubled == 1


def test_an_event_of_an_idempotent_producer_is_there_once() -> None:
    stored = {0: log("a1", "b1", "a1", "b1")}
    assert judge(stored, {0: {"a": [1], "b": [1]}}, {}).violations == ()
    assert judge(stored, {0: {"a": [1]}}, {}, once=["a"]).violations == (
        "partition 0 has 1 events (1) of idempotent producers twice",
    )


@pytest.mark.parametrize(
    ("got", "fault"),
    [
        (log("a1"), "missed 1 events (1), got 0 twice"),
        ([*log("a1", "a2"), Place(1, "a", 2)], "missed 0 events, got 1 twice"),
        (log("a1", "a3"), "got Place(offset=1, producer='a', number=3) for"),
        (log("a1", "a2", "a3"), "got 1 events that are not in the log"),
    ],
)
def test_a_reader_that_did_not_get_the_partition_as_it_is_breaks_a_promise(
    got: list[Place], fault: str
) -> None:
    verdict = judge({0: log("a1", "a2")}, {}, {"r": {0: got}})
    assert len(verdict.violations) == 1
    assert verdict.violations[0].startswith(f"r, partition 0: {fault}")


def test_an_event_is_found_in_its_record() -> None:
    assert place(7, b"\x00Su" + event("w-1", 42)) == Place(7, "w-1", 42)
    with pytest.raises(ValueError, match="not an event of this run"):
        place(7, event("a", 1) + event("a", 2))


async def test_nothing_passes_a_proxy_that_is_cut_and_nothing_is_lost() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, Proxy(server.sockets[0].getsockname()[1], port=free_port()) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"before")
        assert await reader.readexactly(6) == b"before"
        proxy.cut()
        writer.write(b"meanwhile")
        answer = asyncio.ensure_future(reader.readexactly(9))
        fresh_reader, fresh = await asyncio.open_connection("127.0.0.1", proxy.port)
        fresh.write(b"new")
        done, _ = await asyncio.wait([answer], timeout=0.2)
        assert not done
        proxy.join()
        assert await answer == b"meanwhile"
        assert await fresh_reader.readexactly(3) == b"new"
        writer.close()
        assert await reader.read() == b""
        fresh.close()


def test_a_run_without_kafka_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bench.brokers import chaos  # noqa: PLC0415 - it needs confluent-kafka
    from bench.products import places  # noqa: PLC0415

    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "peers"))
    with pytest.raises(RuntimeError, match="make kafka"):
        asyncio.run(chaos.run(chaos.Plan(seconds=1.0), tmp_path))


def test_the_offsets_that_a_node_names_as_lost_are_counted_by_log() -> None:
    words = (
        "2026 [error    ] events_lost                    first=4 last=9 log=a partition=0\n"
        "2026 [error    ] events_lost                    first=7 last=7 log=a partition=1\n"
        "2026 [error    ] events_lost                    first=0 last=99 log=ab partition=0\n"
        "2026 [info     ] ready                          logs=2\n"
    )
    assert (lost_offsets(words, "a"), lost_offsets(words, "ab"), lost_offsets(words, "b")) == (7, 100, 0)


def test_what_spark_says_is_the_error_of_the_connector() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n'
        "spark_connector.errors.DataLossError: events were removed\n\n\tat org.apache.spark.X\n"
    )
    assert cause(text) == "DataLossError: events were removed"
    assert cause("[A]  b\nc") == "[A] b c"
