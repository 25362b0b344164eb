"""A log is described with its settings, its size and its readers."""

from amqp_streams.cli.terminal.describing import described_lines, setting_text
from amqp_streams.client import CursorInfo, CursorPosition, GroupInfo, LogInfo, PartitionInfo
from amqp_streams.log_settings import BY_FIELD

TIME_MS = 1_795_242_600_000


def partition(name: str, events: int) -> PartitionInfo:
    return PartitionInfo(name, 0, events - 1, events, 1 << 20, TIME_MS, TIME_MS + 1000, None)


def facts(*given: object) -> dict[str, str]:
    lines = list(described_lines(*given))  # type: ignore[arg-type]  # of the tests below
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}


def test_settings_and_sizes_are_shown() -> None:
    log = LogInfo(
        "temps", (partition("0", 10), partition("1", 12)), "abc", "always",
        {"retention_ms": 604_800_000, "segment_bytes": 1 << 20, "compression": "zstd"},
    )  # fmt: skip
    assert facts(log, [], []) == {
        "partitions": "2",
        "events": "22",
        "bytes": "2.0 MiB",
        "first event": "2026-11-21T06:30:00.000Z",
        "last event": "2026-11-21T06:30:01.000Z",
        "retention": "7d",
        "retention bytes": "no limit",
        "segment bytes": "1.0 MiB",
        "segment age": "no limit",
        "compression": "zstd",
        "sync": "always",
        "incarnation": "abc",
        "consumer groups": "none",
        "subscriptions": "none",
    }


def test_an_uneven_log_names_its_largest_partition() -> None:
    log = LogInfo("temps", tuple(partition(str(name), events) for name, events in enumerate([1, 90, 5, 4])))
    assert facts(log, [], [])["events"] == "100 (uneven: 90 in partition 1, 1 in partition 0)"
    assert facts(LogInfo("none", ()), [], [])["events"] == "0"


def test_readers_have_their_lag_if_the_user_may_see_them() -> None:
    log = LogInfo("temps", (partition("0", 10),))
    assert facts(log, None, None)["consumer groups"] == "not visible to this user"
    assert setting_text(BY_FIELD["partitions"], 1000) == "1,000"
    assert setting_text(BY_FIELD["compression"], None) == "-", "an earlier version of the node"


def test_groups_and_subscriptions_have_their_lag() -> None:
    log = LogInfo("temps", (partition("0", 10),))
    position = CursorPosition("0", lag=1200, member="c1")
    groups = [GroupInfo("temps", "billing", positions=(position,)), GroupInfo("temps", "new")]
    cursors = [
        CursorInfo("temps", "9de4", link="nightly", positions=(position,)),
        CursorInfo("temps", "aaaa", group="billing"),
    ]
    found = facts(log, groups, cursors)
    assert found["consumer groups"] == "billing (1 members, lag 1,200), new (0 members, lag -)"
    assert found["subscriptions"] == "nightly (not active, lag 1,200)"
    many = [GroupInfo("temps", f"g{number}") for number in range(10)]
    assert facts(log, many, [])["consumer groups"].endswith(" and 2 more")
