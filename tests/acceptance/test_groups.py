"""Consumers in processes: a group whose members are killed, and a durable subscriber that is killed and
restarted.
"""

import subprocess
import sys
import time
from pathlib import Path

from amqp_streams.client import Event
from amqp_streams.client.blocking import connect
from bench.groups import Plan, run
from tests.acceptance.conftest import StartNode
from tests.preloaded.launching import IN_A_FORK

KILLS = 20
EVENTS = 2000
_SUBSCRIBER = (
    IN_A_FORK
    + """
import os, sys
from amqp_streams.client import EARLIEST
from amqp_streams.client.blocking import connect

def tell(kind, events):
    for event in events:
        os.write(1, f"{kind} {event.partition} {event.body}\\n".encode())

with connect(sys.argv[1], container_id="accounting") as client:
    with client.consumer("bills", durable="all", start=EARLIEST, settle="manual", credit=50) as consumer:
        while events := consumer.receive(20):
            tell("got", events)
            consumer.settle(events[:15])
            client.info("bills")  # answered after what was said before it
            tell("settled", events[:15])
            consumer.settle(events[15:])
"""
)


async def test_members_of_a_group_are_killed_and_every_event_is_done_in_order_by_one_owner_at_a_time(
    tmp_path: Path,
) -> None:
    """The short form of `make groups`."""
    plan = Plan(
        seconds=5.0, members=4, partitions=3, rate=300.0, kill_s=(0.5, 1.0), kills_min=2, pause_ms=100
    )
    verdict, kills = await run(plan, tmp_path)
    assert verdict.complaints == []
    assert kills >= plan.kills_min
    assert verdict.done >= plan.seconds * plan.rate


def test_a_durable_subscriber_killed_20_times_misses_nothing_and_repeats_only_unsettled_events(
    start_node: StartNode, tmp_path: Path
) -> None:
    """The subscriber records the events that it receives, and the events whose settlement the node has
    certainly read. It is killed at random moments.
    """
    node = start_node(log="bills:2")
    with connect(node.url) as client, client.producer("bills") as producer:
        for partition in (0, 1):
            producer.post_batch([Event(number) for number in range(EVENTS)], partition)
    lives: list[list[Word]] = []
    for life in range(KILLS + 1):
        told, errors = tmp_path / f"life-{life}", tmp_path / "errors"
        with told.open("wb") as out, errors.open("ab") as err:
            process = subprocess.Popen([sys.executable, "-c", _SUBSCRIBER, node.url], stdout=out, stderr=err)
        try:
            _live(process, told, lives, 40 + 7 * life if life < KILLS else None)
        finally:
            process.kill()
            process.wait()
        assert errors.read_text() == ""
        lives.append(_words(told))
    _check(lives)


Word = tuple[str, str, int]
"""got or settled, the partition, the event's number."""


def _words(told: Path) -> list[Word]:
    lines = told.read_text().splitlines(keepends=True)
    split = [line.split() for line in lines if line.endswith("\n")]
    return [(kind, partition, int(number)) for kind, partition, number in split]


def _live(process: "subprocess.Popen[bytes]", told: Path, lives: list[list[Word]], count: int | None) -> None:
    """Reads until the process has written this much; the last process reads until all events have arrived."""
    before = {(partition, number) for life in lives for kind, partition, number in life if kind == "got"}
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, "the subscriber ended by itself"
        if count is None:
            if len(before | {(partition, number) for _, partition, number in _words(told)}) == 2 * EVENTS:
                return
            time.sleep(0.05)  # to read all that it has written takes longer and longer
        else:
            if told.read_bytes().count(b"\n") >= count:
                return
            time.sleep(0.005)
    message = f"only {len(_words(told))} lines came"
    raise AssertionError(message)


def _check(lives: list[list[Word]]) -> None:
    """Check that the events of each partition arrive in order and without a gap, and that no event arrives
    again after the node has certainly read its settlement.
    """
    settled: set[tuple[str, int]] = set()
    next_number, repeated = {"0": 0, "1": 0}, 0
    for life in lives:
        for partition in ("0", "1"):
            numbers = [number for kind, where, number in life if kind == "got" and where == partition]
            if numbers:
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "a gap, or out of order"
                assert numbers[0] <= next_number[partition], (
                    f"partition {partition}: {next_number[partition]} and more were missed"
                )
                repeated += next_number[partition] - numbers[0]
                next_number[partition] = numbers[-1] + 1
        again = settled & {(partition, number) for kind, partition, number in life if kind == "got"}
        assert not again, f"{len(again)} settled events came again"
        settled |= {(partition, number) for kind, partition, number in life if kind == "settled"}
    assert next_number == {"0": EVENTS, "1": EVENTS}
    assert 0 < repeated <= KILLS * 2 * 50, f"{repeated} events came again"
