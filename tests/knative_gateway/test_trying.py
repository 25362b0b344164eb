"""Filters are tried with stored events: many events, hostile events, and many trials at once."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from amqp_streams.client import Event
from event_formats.amqp_binding import encode
from event_formats.event import CloudEvent
from knative_gateway import trying
from knative_gateway.errors import UnavailableError
from knative_gateway.ports import Stored
from knative_gateway.resources.refusals import StatusError
from knative_gateway.trying import (
    EVENTS_MAX,
    FILTERS_BYTES_MAX,
    PARTITIONS_MAX,
    WAITING_MAX,
    Trials,
    wanted_of,
)
from tests.knative_gateway.memory_log import MemoryEventLog

LOG = "broker.default.b"
TRIGGER: Mapping[str, Any] = {"spec": {"filter": {"attributes": {"type": "measured"}}}}


def message(number: int, **more: str) -> bytes:
    attributes = {"specversion": "1.0", "id": str(number), "source": "/s", "type": "measured", **more}
    return encode(CloudEvent(attributes, b"x"))


async def log_with(*messages: bytes, partitions: int = 1) -> MemoryEventLog:
    log = MemoryEventLog()
    await log.ensure(LOG, partitions=partitions, retention_ms=None)
    for each in messages:
        await log.append(LOG, each)
    return log


async def rows(log: MemoryEventLog, options: Mapping[str, object]) -> list[Any]:
    answer: Any = await Trials(log).match(LOG, TRIGGER, options)
    return list(answer["events"])


async def test_the_latest_events_are_tried_the_oldest_first() -> None:
    log = await log_with(*(message(number, celsius=str(number)) for number in range(30)))
    found = await rows(log, {"filters": [{"cesql": "celsius > 27"}], "events": 3})
    assert [(row["offset"], row["matches"]) for row in found] == [(27, False), (28, True), (29, True)]
    assert found[0]["reason"] == "filters[0].cesql is false"
    assert found[1]["attributes"]["celsius"] == "28"


async def test_without_filters_those_of_the_trigger_are_tried() -> None:
    log = await log_with(message(1), message(2, type="odd"))
    found = await rows(log, {})
    assert [row["matches"] for row in found] == [True, False]
    assert found[1]["reason"] == "filter.attributes does not match"


async def test_an_event_that_is_given_is_tried_instead() -> None:
    found = await rows(await log_with(), {"event": {"type": "measured", "a": "b" * 1000}})
    assert [row["matches"] for row in found] == [True]
    assert len(found[0]["attributes"]["a"]) == 200


async def test_many_partitions_are_read_in_part() -> None:
    log = await log_with(*(message(number) for number in range(400)), partitions=40)
    found = await rows(log, {"events": EVENTS_MAX})
    assert 0 < len(found) <= EVENTS_MAX
    assert {row["partition"] for row in found} <= set(range(PARTITIONS_MAX))
    [*one] = await rows(log, {"events": 5, "partition": 39})
    assert {row["partition"] for row in one} == {39}
    with pytest.raises(StatusError, match="does not have partition 40"):
        await rows(log, {"partition": 40})


async def test_a_hostile_event_costs_only_itself() -> None:
    bad = (b"\x00not amqp", Event(b"x", properties={"a": 1}).encode(), message(1, type="<script>"))
    log = await log_with()
    log.logs[LOG][0] += [
        Stored(0, f"{number:016d}", number, each) for number, each in enumerate((*bad, message(2)))
    ]
    found = await rows(log, {"filters": [{"exact": {"type": "measured"}}]})
    assert [row["matches"] for row in found] == [False, False, False, True]
    assert all(row["reason"] for row in found[:3])
    assert all(len(row["reason"]) <= 200 for row in found)


async def test_the_evaluation_of_all_events_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "STEPS_MAX", 2000)
    log = await log_with(*(message(number, a="x" * 500) for number in range(20)))
    found = await rows(log, {"filters": [{"cesql": "a LIKE '%x%y%' OR a LIKE '%z%y%'"}]})
    assert found[0]["matches"] is False
    assert found[-1]["matches"] is None
    assert found[-1]["reason"].startswith("not evaluated")


async def test_large_events_are_read_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "BYTES_MAX", 2000)
    log = await log_with(*(message(number, a="x" * 900) for number in range(20)), partitions=2)
    assert len(await rows(log, {})) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"x": 1}, "not have an option 'x'"),
        ({"events": 0}, "events must be a whole number from 1 to 100"),
        ({"events": True}, "events must be"),
        ({"events": "9"}, "events must be"),
        ({"partition": -1}, "partition must be"),
        ({"filters": "cesql"}, "filters: Invalid value"),
        ({"filters": [{"exact": {"Type": "x"}}]}, r"filters\[0\].exact\[Type\]"),
        ({"filters": [{"cesql": "a >> 1"}]}, "at character 4"),
        ({"filters": [{"attributes": {"type": "x"}}]}, "unknown dialect"),
        ({"filters": [{"exact": {"type": "x" * FILTERS_BYTES_MAX}}]}, "bytes of JSON"),
        ({"event": {"type": 1}}, "event must be attributes with texts"),
    ],
)
def test_options_that_are_not_valid_are_named(options: Mapping[str, object], words: str) -> None:
    with pytest.raises(StatusError, match=words) as refused:
        wanted_of(TRIGGER, options)
    assert refused.value.code in {400, 422}


async def test_many_who_try_wait_for_each_other_or_are_refused_and_delay_no_other_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = await log_with(message(1))
    gate = asyncio.Event()
    extents = log.extents
    at_once = most = 0

    async def slow(name: str) -> Any:
        nonlocal at_once, most
        if name == LOG:
            at_once += 1
            most = max(most, at_once)
            await gate.wait()
            at_once -= 1
        return await extents(LOG)

    monkeypatch.setattr(log, "extents", slow)
    trials = Trials(log)
    busy = {**TRIGGER, "metadata": {"namespace": "busy"}}
    tasks = [asyncio.create_task(trials.match(LOG, busy, {})) for _ in range(WAITING_MAX + 5)]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        answer: Any = await trials.match("another log", TRIGGER, {"event": {"type": "x"}})
    assert [row["matches"] for row in answer["events"]] == [False]
    tasks[1].cancel()
    gate.set()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 1
    assert [each.code for each in done if isinstance(each, StatusError)] == [429] * 5
    assert sum(isinstance(each, dict) for each in done) == WAITING_MAX - 1
    assert not trials._of


async def test_a_client_that_leaves_keeps_its_place_until_its_filters_are_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise clients that send and leave would fill all threads."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> Any:
        begun.set()
        assert go_on.wait(60)
        return []

    monkeypatch.setattr(trying, "_tried", slow)
    trials = Trials(await log_with(message(1)))
    left = asyncio.create_task(trials.match(LOG, TRIGGER, {}))
    assert await asyncio.to_thread(begun.wait, 60)
    left.cancel()
    await asyncio.sleep(0.01)
    assert trials._of.total() == 1
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await left
    assert trials._of.total() == 0


async def test_a_log_that_does_not_answer_ends_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "READ_S_MAX", 0.05)
    log = await log_with(message(1))

    async def silent(*_: object, **__: object) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(log, "read_range", silent)
    with pytest.raises(UnavailableError, match="could not be read within"):
        await rows(log, {})
