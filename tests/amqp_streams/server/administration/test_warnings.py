"""Each warning appears with the fact that it is about, and only then; each has a remedy."""

from dataclasses import replace
from typing import Any

import pytest

from amqp_streams.server.administration.warnings import (
    NAMED_MAX,
    SKEW,
    SKEW_EVENTS_MIN,
    Facts,
    Few,
    skew_of,
    warnings,
)
from amqp_streams.storage.ports import PartitionFacts, Use
from service_parts.health.warned import DISK_BYTES, DISK_SHARE, EXPIRES_MS, NEARLY

NOW = 1_700_000_000_000
GIB = 1 << 30
HEALTHY = Facts(
    NOW,
    disk_free=200 * GIB,
    disk_size=400 * GIB,
    disk_reserve=16 << 20,
    descriptors=100,
    descriptors_max=1000,
    connections_wanted=100,
    uses={"connections": Use(10, 100), "storage_cache_bytes": Use(100, 100)},
    certificate_expires_ms=NOW + 10 * EXPIRES_MS,
)
CASES: list[tuple[str, dict[str, Any], bool, str]] = [
    ("not-ready", {"not_ready": "the disk is full"}, True, "the disk is full"),
    ("disk", {"disk_free": DISK_BYTES - 1}, False, "10.0 GiB free of 400.0 GiB"),
    ("disk", {"disk_free": 9 * GIB, "disk_size": 100 * GIB}, False, "9.0 GiB free"),
    ("disk", {"disk_free": 1 << 20}, True, "16 MiB"),
    ("descriptors", {"descriptors": 800}, False, "800 of 1,000"),
    ("limit-partitions", {"uses": {"partitions": Use(80, 100)}}, False, "80 of 100"),
    ("limit-cursors", {"uses": {"cursors": Use(100, 100)}}, True, "100 of 100"),
    ("limit-link_partitions", {"uses": {"link_partitions": Use(99, 100)}}, False, "99 of 100"),
    ("connections-bounded", {"uses": {"connections": Use(1, 50)}}, False, "50 connections instead of 100"),
    ("partition-stopped", {"stopped": Few([("temps", 3, "I/O error")])}, True, "temps/3 (I/O error)"),
    ("skew", {"skewed": Few([("temps", 7.5)])}, False, "temps (7.5 times the mean)"),
    ("timestamps-ahead", {"ahead_ms": {"temps": 90_000}}, False, "temps (90 s)"),
    ("clock-jumped", {"clock_ahead_ms": 5_000}, False, "5 s"),
    (
        "quota",
        {"throttled": Few([("alice", "bytes_in"), ("bob", "bytes_out")]), "throttled_links": 3},
        False,
        "3 links wait for a quota of the user: alice (bytes_in), bob (bytes_out).",
    ),
    ("certificate", {"certificate_expires_ms": NOW + EXPIRES_MS - 1}, False, "expires in 13 days"),
    ("certificate", {"certificate_expires_ms": NOW}, True, "has expired"),
    ("node-certificate", {"node_certificate_expires_ms": NOW}, True, "for other nodes has expired"),
    ("homes", {"homes": ["the node at a:1 is not reached: refused"]}, False, "a:1 is not reached: refused"),
    ("producers", {"producers": ["topic 'numbers' is missing"]}, False, "topic 'numbers' is missing"),
    ("limit-kafka_numbered", {"uses": {"kafka_numbered": Use(52, 64)}}, False, "52 of 64"),
    ("reload", {"reload_failed": ["users"]}, False, "users"),
    ("restart", {"restart_needed": ["limits.connections"]}, False, "limits.connections"),
    ("no-access-rules", {"is_open": True}, False, "every user may do everything"),
]


def test_a_healthy_node_has_no_warning() -> None:
    assert warnings(HEALTHY) == []
    assert warnings(Facts(NOW)) == []


@pytest.mark.parametrize(("code", "facts", "is_error", "words"), CASES)
def test_each_fact_has_its_warning_with_a_remedy(
    code: str, facts: dict[str, Any], is_error: bool, words: str
) -> None:
    (found,) = warnings(replace(HEALTHY, **facts))
    assert (found.code, found.is_error) == (code, is_error)
    assert words in found.text
    assert found.remedy


def test_just_below_each_threshold_nothing_is_said() -> None:
    quiet = replace(
        HEALTHY,
        disk_free=DISK_BYTES,
        descriptors=round(NEARLY * 1000) - 1,
        uses={"partitions": Use(79, 100), "connections": Use(0, 100)},
        certificate_expires_ms=NOW + EXPIRES_MS,
    )
    assert warnings(quiet) == []
    assert warnings(replace(HEALTHY, disk_size=10 * GIB, disk_free=round(DISK_SHARE * 10 * GIB))) == []


def test_errors_come_first_and_long_lists_are_counted() -> None:
    facts = replace(
        HEALTHY,
        is_open=True,
        stopped=Few((f"log-{number}", 0, "I/O error") for number in range(NAMED_MAX + 3)),
    )
    first, second = warnings(facts)
    assert (first.code, second.code) == ("partition-stopped", "no-access-rules")
    assert first.text.endswith("and 3 more.")
    assert f"{NAMED_MAX + 3} partitions" in first.text


class Written:
    """A reason that counts how often it is written into a text."""

    def __init__(self) -> None:
        self.times = 0

    def __format__(self, _spec: str) -> str:
        self.times += 1
        return "I/O error"


def test_only_what_a_warning_names_is_kept_and_written() -> None:
    """A disk that fails stops all partitions at once."""
    reason: Any = Written()
    stopped = Few((f"log-{number}", 0, reason) for number in range(10_000))
    assert [log for log, _, _ in stopped] == [f"log-{number}" for number in range(NAMED_MAX)]
    (found,) = warnings(replace(HEALTHY, stopped=stopped))
    assert found.text.startswith("10,000 partitions")
    assert found.text.endswith(f"and {10_000 - NAMED_MAX:,} more.")
    assert reason.times == NAMED_MAX
    ahead: Any = {f"log-{number}": 1000 for number in range(10_000)}
    (found,) = warnings(replace(HEALTHY, ahead_ms=ahead))
    assert len(found.text) < 500


def test_the_heaviest_are_named_first() -> None:
    few: Few[str] = Few()
    for weight in (1, 9, 3, 9, 7, 5, 2):
        few.add(f"{weight}-{few.count}", weight=weight)
    assert (list(few), few.count) == (["9-1", "9-3", "7-4", "5-5", "3-2"], 7)


def partitions(*events: int) -> list[PartitionFacts]:
    return [PartitionFacts(5, 5 + count, 0, None, None, None) for count in events]


def test_a_log_is_skewed_if_one_partition_has_far_more_than_the_mean() -> None:
    many = SKEW_EVENTS_MIN
    assert skew_of(partitions(*[many] * 8)) is None
    assert skew_of(partitions(many, *[0] * 7)) == 8
    assert skew_of(partitions(many // 2, *[0] * 7)) is None  # too few events to tell
    assert skew_of(partitions(many)) is skew_of([]) is None
    assert skew_of(partitions(many, 0)) == 2  # all in one of two
    assert skew_of(partitions(many, many // 2)) is None
    below = partitions(*[many] * 7, round(many * 3))
    assert skew_of(below) is None
    assert SKEW > 3
