"""The figures of a node as rows."""

from amqp_streams.client import NodeInfo, Used
from web_console.showing.health import figure_rows, trends_of

NODE = NodeInfo(
    disk_free=1 << 30, disk_size=4 << 30, memory=None, descriptors=Used(5, None), commit_p50_s=0.002,
    producers=3, limits={"pending_bytes": Used(2048, 4096), "storage_cache_bytes": Used(1, 2)},
)  # fmt: skip


def test_rows_have_units_limits_and_trends() -> None:
    rows = {each.name: each for each in figure_rows(NODE, {"disk": [1.0, 2.0]})}
    assert rows["disk"][1:4] == ("1.0 GiB", "4.0 GiB", [1.0, 2.0])
    assert rows["memory"][1:4] == ("-", "-", ())
    assert rows["descriptors"][1:3] == ("5", "-")
    assert rows["commit_p50"][1] == "2.0 ms"
    assert rows["pending_bytes"][1:3] == ("2.0 KiB", "4.0 KiB")
    assert "storage_cache_bytes" not in rows


def test_only_known_figures_have_trends() -> None:
    assert trends_of(NODE) == {
        "pending_bytes": 2048.0,
        "disk": float(1 << 30),
        "descriptors": 5.0,
        "producers": 3.0,
        "commit_p50": 0.002,
    }
    assert trends_of(NodeInfo()) == {}


def test_a_node_on_kafka_shows_for_how_many_buckets_it_decides() -> None:
    (row,) = [
        each
        for each in figure_rows(NodeInfo(home_buckets=Used(0, 16)), {"homes": [5.0]})
        if each.name == "homes"
    ]
    assert row[1:4] == ("0", "16", [5.0])
    assert "homes" not in {each.name for each in figure_rows(NODE, {})}


def test_every_trend_has_a_row() -> None:
    full = NodeInfo(
        disk_free=1, memory=1, descriptors=Used(1, 1), producers=1, consumers=1, commit_p50_s=1.0,
        commit_p99_s=1.0, home_buckets=Used(1, 16),
        limits={"connections": Used(1, 2), "partitions": Used(1, 2)},
    )  # fmt: skip
    assert trends_of(full).keys() <= {each.name for each in figure_rows(full, {})}
