"""The health of a node as people read it."""

import json

from amqp_streams.cli.terminal.health import health_json, health_lines, warning_lines
from amqp_streams.client import NodeInfo, NodeSetting, NodeWarning, Used

FULL = NodeInfo(
    version="1.2", store="directory", sync="always", started_ms=0, now_ms=90_061_500, ready=False,
    not_ready="the disk is full", disk_free=1 << 30, disk_size=4 << 30, memory=1 << 20,
    descriptors=Used(5, None), commits=3, commit_p50_s=0.0012, commit_p99_s=0.5, commit_max_s=0.5,
    producers=2, consumers=1, limits={"connections": Used(3, 10)},
    warnings=(NodeWarning("disk", "It is full.", "free space", True), NodeWarning("skew", "S.", "r")),
    settings=(NodeSetting("oauth.keys", ["a"], "node.toml"),),
)  # fmt: skip


def test_figures_have_their_units() -> None:
    assert dict(health_lines(FULL)) == {
        "ready": "no: the disk is full",
        "started": "1970-01-01T00:00:00.000Z, 1d1h1m1s ago",
        "version": "1.2",
        "connections": "3 of 10; 2 producers, 1 consumers",
        "disk": "1.0 GiB free of 4.0 GiB",
        "memory": "1.0 MiB",
        "descriptors": "5",
        "sync": "always; recent commits: 1.2 ms (50 %), 500.0 ms (99 %)",
    }


def test_what_is_not_known_is_left_out() -> None:
    assert dict(health_lines(NodeInfo(ready=True, version="1"))) == {"ready": "yes", "version": "1"}


def test_warnings_are_followed_by_their_remedies() -> None:
    assert list(warning_lines(FULL)) == [
        "error: It is full.",
        "  remedy: free space",
        "warning: S.",
        "  remedy: r",
    ]


def test_the_json_is_json() -> None:
    found = json.loads(json.dumps(health_json(FULL)))
    assert found["commits"] == {"count": 3, "p50_seconds": 0.0012, "p99_seconds": 0.5, "max_seconds": 0.5}
    assert found["settings"] == {"oauth.keys": {"value": ["a"], "source": "node.toml"}}
