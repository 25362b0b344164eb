"""Stored events are listed page by page and searched: each once, in bounds, whatever the messages have."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event
from event_formats.amqp_binding import encode
from event_formats.event import CloudEvent
from knative_gateway.paths import stored
from knative_gateway.paths.asked import wanted_of
from knative_gateway.paths.stored import (
    ATTRIBUTES_MAX,
    DATA_MAX,
    PARTITIONS_MAX,
    SEARCH_BYTES_MAX,
    VALUE_MAX,
    Budget,
    Log,
    by_identity,
    data_of,
    listed,
    row,
)
from knative_gateway.ports import Stored
from knative_gateway.resources.refusals import StatusError
from tests.knative_gateway.memory_log import MemoryEventLog

LOG = "broker.default.b"


def message(number: int | str, data: bytes = b"x", **more: str) -> bytes:
    attributes = {"specversion": "1.0", "id": str(number), "source": "/s", "type": "measured", **more}
    return encode(CloudEvent(attributes, data))


async def log_with(*messages: bytes, partitions: int = 1) -> MemoryEventLog:
    log = MemoryEventLog()
    await log.ensure(LOG, partitions=partitions, retention_ms=None)
    for each in messages:
        await log.append(LOG, each)
    return log


async def ask(log: MemoryEventLog, options: Mapping[str, object]) -> Any:
    return await listed(log, LOG, wanted_of(options))


async def pages(log: MemoryEventLog, options: Mapping[str, object]) -> list[list[Any]]:
    found = []
    answer = await ask(log, options)
    while True:
        found.append([(each["partition"], each["offset"]) for each in answer["events"]])
        if "before" not in answer:
            return found
        answer = await ask(log, {**options, "before": answer["before"]})


@given(st.integers(1, 5), st.integers(0, 40), st.integers(1, 9))
async def test_pages_have_every_event_once_the_newest_first(partitions: int, count: int, size: int) -> None:
    log = await log_with(*(message(number) for number in range(count)), partitions=partitions)
    found = [each for page in await pages(log, {"events": size}) for each in page]
    expected = {(each.partition, int(each.offset)) for part in log.logs[LOG] for each in part}
    assert len(found) == len(expected)
    assert set(found) == expected
    for partition in range(partitions):
        offsets = [offset for each, offset in found if each == partition]
        assert offsets == sorted(offsets, reverse=True)


async def test_events_that_come_between_two_pages_change_nothing() -> None:
    log = await log_with(*(message(number) for number in range(6)), partitions=3)
    first = await ask(log, {"events": 4})
    for number in range(9):
        await log.append(LOG, message(f"new-{number}"))
    second = await ask(log, {"events": 4, "before": first["before"]})
    names = [each["attributes"]["id"] for each in (*first["events"], *second["events"])]
    assert sorted(names) == [str(number) for number in range(6)]


async def test_large_events_make_pages_smaller_and_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "BYTES_MAX", 3000)
    log = await log_with(*(message(number, b"x" * 900) for number in range(20)))
    found = await pages(log, {"events": 20})
    assert [offset for page in found for _, offset in page] == list(range(20))[::-1]
    assert max(map(len, found)) < 20


async def test_one_partition_and_a_time_are_chosen() -> None:
    log = await log_with(*(message(number) for number in range(12)), partitions=3)
    assert {each["partition"] for each in (await ask(log, {"partition": 2}))["events"]} == {2}
    with pytest.raises(StatusError, match="does not have partition 3; it has 3"):
        await ask(log, {"partition": 3})
    early = await ask(log, {"time": "1970-01-01T00:00:00.005Z"})
    assert sorted(each["attributes"]["id"] for each in early["events"]) == ["0", "1", "2", "3", "4"]


async def test_at_most_some_partitions_are_read_for_a_page() -> None:
    log = await log_with(*(message(number) for number in range(100)), partitions=PARTITIONS_MAX + 10)
    answer = await ask(log, {"events": 100})
    assert {each["partition"] for each in answer["events"]} == set(range(PARTITIONS_MAX))
    assert set(answer["before"]) == {str(each) for each in range(PARTITIONS_MAX, PARTITIONS_MAX + 10)}


@pytest.mark.parametrize("wanted", ["17", "<script>", "ä/ö", 'a"b\\c'])
async def test_an_event_is_found_by_its_id_in_any_mode(wanted: str) -> None:
    structured = Event(
        b'{"specversion":"1.0","id":"\\u0061\\u002fj","source":"/s","type":"t"}',
        content_type="application/cloudevents+json",
    ).encode()
    log = await log_with(
        *(message(number) for number in range(15)), message(wanted), structured, partitions=4
    )
    [found] = (await ask(log, {"id": wanted}))["events"]
    assert found["attributes"]["id"] == wanted
    [escaped] = (await ask(log, {"id": "a/j"}))["events"]
    assert escaped["attributes"]["id"] == "a/j"
    assert (await ask(log, {"id": "none"}))["events"] == []
    assert (await ask(log, {"id": wanted, "source": "/other"}))["events"] == []


async def test_a_search_looks_at_so_many_events_and_goes_on() -> None:
    log = await log_with(*(message(number) for number in range(1000)), partitions=2)
    answer = await ask(log, {"id": "3", "look_at": 300})
    looked_at = answer["looked_at"]
    assert answer["events"] == []
    assert looked_at == 300
    while not answer["events"]:
        answer = await ask(log, {"id": "3", "look_at": 300, "before": answer["before"]})
        looked_at += answer["looked_at"]
        assert answer["looked_at"] <= 300
    assert answer["events"][0]["attributes"]["id"] == "3"
    assert looked_at <= 1000


async def test_a_search_that_matches_everything_has_a_bounded_answer() -> None:
    log = await log_with(*(message(number) for number in range(2000)), partitions=5)
    answer = await ask(log, {"source": "/s", "events": 10})
    assert len(answer["events"]) <= 10 + 256


async def test_a_search_reads_so_many_bytes() -> None:
    log = await log_with(*(message(number, b"x" * 1000) for number in range(50)))
    opened = await Log.opened(log, LOG)
    budget = Budget(1000, bytes=5000)
    found = await opened.searched(await opened.marks(wanted_of({})), by_identity("0", ""), budget, enough=1)
    assert found.looked_at < 10
    assert Budget(1).bytes == SEARCH_BYTES_MAX


async def test_an_event_that_is_not_there_is_named_with_the_reason() -> None:
    log = await log_with(*(message(number) for number in range(5)))
    log.removed[LOG, 0] = 2
    opened = await Log.opened(log, LOG)
    assert (await opened.one(0, 3)).identity == ("3", "/s")
    for partition, offset, words in ((0, 1, "retention has removed"), (0, 5, "yet"), (7, 0, "does not have")):
        with pytest.raises(StatusError, match=words) as refused:
            await opened.one(partition, offset)
        assert refused.value.code == 404


async def test_an_event_of_an_empty_partition_is_not_there() -> None:
    opened = await Log.opened(await log_with(partitions=2), LOG)
    with pytest.raises(StatusError, match="does not have the offset 0 yet"):
        await opened.one(1, 0)


async def test_a_hostile_message_costs_only_itself() -> None:
    log = await log_with(message(1))
    many = {f"a{number}": "y" * 5000 for number in range(200)}
    log.logs[LOG][0] += [
        Stored(0, f"{number:016d}", number, each)
        for number, each in enumerate((b"\x00not amqp", Event(b"x").encode(), message(9, b"x", **many)), 1)
    ]
    rows = (await ask(log, {}))["events"]
    assert [bool(each.get("problem")) for each in rows] == [False, True, True, False]
    assert len(rows[0]["attributes"]) == ATTRIBUTES_MAX
    assert max(len(each) for each in rows[0]["attributes"].values()) == VALUE_MAX
    assert [each["offset"] for each in (await ask(log, {"id": "9"}))["events"]] == [3]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, {}),
        (b"", {"data": "", "is_cut": False}),
        (b"x" * DATA_MAX, {"data": "x" * DATA_MAX, "is_cut": False}),
        ("ä".encode() * DATA_MAX, {"data": "ä" * (DATA_MAX // 2), "is_cut": True}),
        (b"x" + "ä".encode() * DATA_MAX, {"data": "x" + "ä" * (DATA_MAX // 2 - 1), "is_cut": True}),
        (b"\xff\x00", {"data_hex": "ff 00", "is_cut": False}),
        ("ä".encode()[:1], {"data_hex": "c3", "is_cut": False}),
    ],
)
def test_data_is_shown_as_text_or_as_digits(data: bytes | None, shown: Mapping[str, object]) -> None:
    assert data_of(data) == shown


@given(st.binary(max_size=300))
def test_any_bytes_can_be_a_row(body: bytes) -> None:
    found = by_identity("", "")(Stored(0, "0000000000000000", 1, body))
    assert found is not None
    assert row(found)["partition"] == 0
    assert data_of(body).keys() <= {"data", "data_hex", "is_cut"}
