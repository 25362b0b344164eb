"""The health of a real node, and answers that are not what the client expects."""

from collections.abc import Iterator

import pytest

from amqp_streams import __version__, names
from amqp_streams.client import (
    Event,
    ManagementError,
    NodeChange,
    NodeInfo,
    NodeSetting,
    NodeWarning,
    Used,
    blocking,
    connect,
)
from amqp_streams.client.management.node import node_info
from tests.amqp_streams.client.running import RunningNode


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path_factory.mktemp("node"), "--log=temps:2").start()
    yield running
    running.stop()


async def test_a_node_describes_itself(node: RunningNode) -> None:
    async with connect(node.url) as client, client.producer("temps") as producer:
        await producer.send(Event("x"))
        await client.management.create_log("orders")
        found = await client.management.describe_node()
        assert (found.version, found.ready, found.store, found.logs) == (__version__, True, "directory", 2)
        assert found.uptime_ms is not None
        assert found.commits == 1
        assert found.commit_p50_s == found.commit_max_s
        assert found.limits["partitions"] == Used(3, 10_000)
        assert found.warnings == ()
        assert NodeSetting("sync", "always", "default") in found.settings
        assert [(each.what, each.name) for each in found.changes] == [("CREATE", "orders")]
        part = await client.management.describe_node(parts=["warnings"])
        assert part == NodeInfo()
        with pytest.raises(ManagementError) as refused:
            await client.management.describe_node(parts=["colour"])
        assert refused.value.status == 400


def test_the_blocking_client_has_the_same_call(node: RunningNode) -> None:
    with blocking.connect(node.url) as client:
        assert client.management.describe_node(parts=["figures"]).version == __version__


def test_values_of_other_types_become_nothing_and_never_an_error() -> None:
    keys = [value for name, value in vars(names).items() if name.startswith("NODE_")]
    assert node_info({key: ["x"] for key in keys}) == NodeInfo()
    assert node_info({}) == NodeInfo()
    found = node_info({
        "warnings": [{"code": "a", "text": "b", "remedy": "c", "error": True}, 7],
        "settings": [{"name": "n", "value": 5, "source": "default"}],
        "changes": [{"at-ms": 1, "user": "u", "what": "W", "type": "t", "name": "n", "details": {"k": "v"}},
                    {}],
        "limits": {"a": {"used": 1, "limit": 2}, "b": 7},
    })  # fmt: skip
    assert found.warnings == (NodeWarning("a", "b", "c", True),)
    assert found.settings == (NodeSetting("n", 5, "default"),)
    assert found.changes == (
        NodeChange(1, "u", "W", "t", "n", {"k": "v"}),
        NodeChange(None, None, "None", "None"),
    )
    assert found.limits == {"a": Used(1, 2), "b": Used(None, None)}
