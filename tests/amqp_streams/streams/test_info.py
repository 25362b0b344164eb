"""Runtime information: the entries of the specification, and those of this node."""

from typing import cast

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.info import LogUse, log_extent, log_info, partition_extent, value_message
from amqp_streams.streams.redirects import NOWHERE, Elsewhere, Redirected
from amqp_streams.streams.steps import PARTITIONS_A_STEP, finish
from amqp_streams.testing import MemoryStore, Uneven
from amqp_streams.wire.codec import Encoded, decode, encode
from amqp_streams.wire.types import Described, Symbol, Timestamp, ULong, Value
from tests.amqp_streams.streams.conftest import NOW, Append


def partitions(log: StoredLog, elsewhere: Redirected = NOWHERE) -> list[dict[Value, Value]]:
    entries, _ = decode(encode(finish(log_info(log, "always", elsewhere))[names.INFO_PARTITIONS]))
    assert isinstance(entries, list)
    return [entry for entry in entries if isinstance(entry, dict)]


def test_an_empty_partition_has_no_offsets_and_no_times(log: StoredLog) -> None:
    assert partitions(log)[1] == {
        "partition": Symbol("1"),
        "earliest-offset": None,
        "latest-offset": None,
        "event-count": 0,
        "bytes": 0,
        "first-timestamp": None,
        "last-timestamp": None,
        "state": "running",
    }


def test_a_partition_with_events_reports_its_bounds(log: StoredLog, append: Append) -> None:
    append(log.partitions[0], NOW, NOW + 1, NOW + 7)
    entry = partitions(log)[0]
    assert entry == {
        "partition": Symbol("0"),
        "earliest-offset": Symbol("0000000000000000"),
        "latest-offset": Symbol("0000000000000002"),
        "event-count": 3,
        "bytes": 18,
        "first-timestamp": Timestamp(NOW),
        "last-timestamp": Timestamp(NOW + 7),
        "state": "running",
    }
    assert all(isinstance(entry[key], Symbol) for key in ("partition", "earliest-offset", "latest-offset"))
    assert all(isinstance(entry[key], Timestamp) for key in ("first-timestamp", "last-timestamp"))


def test_a_partition_says_that_its_offsets_have_gaps() -> None:
    log = MemoryStore(uneven=Uneven()).create("log", LogSettings(), incarnation="i")
    assert partitions(log)[0]["offset-gaps"] is True
    assert partition_extent(log.partitions[0], None)["offset-gaps"] is True


def test_every_partition_is_listed_in_order_also_the_only_one(log: StoredLog, store: MemoryStore) -> None:
    """Section 6: the list MUST carry an entry for the main partition if the log is unpartitioned."""
    assert [entry["partition"] for entry in partitions(log)] == ["0", "1", "2", "3"]
    assert [
        entry["partition"] for entry in partitions(store.create("one", LogSettings(), incarnation="i"))
    ] == ["0"]


def test_a_partition_on_another_container_is_refused_with_that_container(log: StoredLog) -> None:
    elsewhere = {1: Elsewhere("b.example", 5672), 3: Elsewhere("c.example", 5671, "node-c")}
    assert [entry.get("owner") for entry in partitions(log, elsewhere)] == [
        None,
        {"network-host": "b.example", "port": 5672},
        None,
        {"network-host": "c.example", "port": 5671, "container-id": "node-c"},
    ]


def test_a_stopped_partition_says_why(log: StoredLog, store: MemoryStore) -> None:
    store.fail(log.partitions[3], StorageError("the disk is gone"))
    assert [entry["state"] for entry in partitions(log)] == ["running"] * 3 + ["stopped: the disk is gone"]


def test_the_log_reports_its_own_settings_in_addition_to_its_partitions(store: MemoryStore) -> None:
    log = store.create("kept", LogSettings(retention_ms=5000, retention_bytes=1 << 20), incarnation="abc")
    top = finish(log_info(log, "interval:5"))
    del top[names.INFO_PARTITIONS]
    assert top == {
        "log": "kept",
        "incarnation": "abc",
        "retention-ms": 5000,
        "retention-bytes": 1 << 20,
        "sync": "interval:5",
    }


def test_the_answer_is_one_amqp_value_section(log: StoredLog) -> None:
    message = value_message(finish(log_info(log, "always")))
    whole = finish(log_info(log, "always")) | {names.INFO_PARTITIONS: list[Value](partitions(log))}
    assert decode(message) == (Described(ULong(0x77), whole), len(message))


def test_a_wide_log_is_described_and_encoded_in_steps(store: MemoryStore) -> None:
    log = store.create("wide", LogSettings(partitions=10 * PARTITIONS_A_STEP), incarnation="i")
    steps = log_info(log, "always")
    assert sum(1 for _ in steps) == 10
    assert all(
        isinstance(each, Encoded) for each in cast(list[Value], finish(log_info(log, "always"))["partitions"])
    )


def test_an_extent_reports_bounds_as_numbers_also_of_an_empty_partition(
    log: StoredLog, append: Append
) -> None:
    append(log.partitions[0], NOW, NOW + 1, NOW + 7)
    extent = log_extent(log, [partition_extent(each, None) for each in log.partitions[:2]], LogUse(5))
    assert (extent["name"], extent["incarnation"]) == (log.name, log.incarnation)
    assert extent["events-out"] == ULong(5)
    assert not {"consumers", "groups"} & extent.keys()
    assert log_extent(log, [], LogUse(5, 0, 2)).items() >= {"consumers": ULong(0), "groups": ULong(2)}.items()
    assert extent["partitions"] == [
        {
            "partition": Symbol("0"),
            "earliest": ULong(0),
            "next": ULong(3),
            "bytes": log.partitions[0].facts().bytes,
            "first-timestamp": Timestamp(NOW),
            "last-timestamp": Timestamp(NOW + 7),
            "state": "running",
        },
        {
            "partition": Symbol("1"),
            "earliest": ULong(0),
            "next": ULong(0),
            "bytes": 0,
            "first-timestamp": None,
            "last-timestamp": None,
            "state": "running",
        },
    ]


def test_an_extent_finds_a_moment_and_names_the_container_of_a_partition(
    log: StoredLog, append: Append
) -> None:
    append(log.partitions[0], NOW, NOW + 1, NOW + 7)
    for after_ms, found in ((NOW - 1, 0), (NOW, 1), (NOW + 6, 2), (NOW + 7, 3)):
        assert partition_extent(log.partitions[0], after_ms)["found"] == found
    assert "owner" in partition_extent(log.partitions[0], 0, {0: Elsewhere("there", 1)})
