"""[io] The failures of the table, one by one: each is made, held for some seconds, and repaired."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.brokers.world import PREFIX, World

_CHANGE_S: Final = 60.0
_SHRINK_S: Final = 15.0
"""When a broker is killed, Kafka takes it out of the replicas in sync after about 9 s."""

_APPEND_TIMES: Final = {"message.timestamp.type": "LogAppendTime"}
"""Otherwise a topic with the prefix of nodes is a copy that has not ended."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A row of the table. `hold_s`: how long it lasts.

    `log_gone`: the events before it are gone by intention. `unclean`: accepted events may be lost: that is
    what the table shows.
    """

    name: str
    what: str
    hold_s: float
    make: Callable[[World, str, float], Awaitable[None]]
    log_gone: bool = False
    unclean: bool = False


async def _broker_killed(world: World, _log: str, hold_s: float) -> None:
    broker = world.cluster.brokers[0]
    broker.signal(signal.SIGKILL)
    await asyncio.sleep(hold_s)
    await world.start_broker(broker)


async def _broker_stopped(world: World, _log: str, hold_s: float) -> None:
    broker = world.cluster.brokers[1]
    broker.signal(signal.SIGSTOP)
    await asyncio.sleep(hold_s)
    broker.signal(signal.SIGCONT)


async def _broker_cut(world: World, _log: str, hold_s: float) -> None:
    for proxy in world.of_broker(2):
        proxy.cut()
    await asyncio.sleep(hold_s)
    for proxy in world.of_broker(2):
        proxy.join()


async def _too_few_in_sync(world: World, log: str, hold_s: float) -> None:
    for topic in topics(world, log):
        await asyncio.to_thread(alter, world, topic, {"min.insync.replicas": "3"})
    await _broker_killed(world, log, hold_s)


async def _all_away(world: World, _log: str, hold_s: float) -> None:
    for broker in world.cluster.brokers:
        broker.signal(signal.SIGKILL)
    await asyncio.sleep(hold_s)
    for broker in world.cluster.brokers:
        await asyncio.to_thread(broker.start, with_parent=True)
    await asyncio.to_thread(world.cluster.await_ready)


async def _deleted(world: World, log: str, hold_s: float) -> None:
    await asyncio.to_thread(delete, world, topics(world, log))
    await asyncio.sleep(hold_s)


async def _made_anew(world: World, log: str, hold_s: float) -> None:
    gone = topics(world, log)
    await asyncio.to_thread(delete, world, gone)
    for topic in gone:
        config = {"min.insync.replicas": "2", **_APPEND_TIMES}
        await asyncio.to_thread(create, world, NewTopic(topic, 4, 3, config=config))
    await asyncio.sleep(hold_s)


async def _unclean(world: World, log: str, hold_s: float) -> None:
    """The leader continues alone and is then lost. A replica that is behind becomes the leader."""
    leader, behind, _ = world.cluster.brokers
    behind.signal(signal.SIGKILL)
    await asyncio.sleep(_SHRINK_S + hold_s)
    leader.signal(signal.SIGKILL)
    await asyncio.to_thread(behind.start, with_parent=True)
    await asyncio.to_thread(_await_leader, world, topics(world, log))
    await world.start_broker(leader)
    await asyncio.sleep(hold_s)


async def _node_killed(world: World, _log: str, hold_s: float) -> None:
    node = world.nodes[0]
    await asyncio.to_thread(node.kill)
    await asyncio.sleep(hold_s)
    await node.restart()


async def _node_stopped(world: World, _log: str, hold_s: float) -> None:
    process = world.nodes[0].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(hold_s)
    process.send_signal(signal.SIGCONT)


FAILURES: Final[Sequence[Failure]] = (
    Failure("broker-killed", "one broker is killed", 30.0, _broker_killed),
    Failure("broker-stopped", "one broker is stopped (SIGSTOP) and continues", 30.0, _broker_stopped),
    Failure("broker-cut", "one broker is cut off from the nodes", 75.0, _broker_cut),
    Failure("below-min-isr", "too few replicas are in sync", 75.0, _too_few_in_sync),
    Failure("all-away", "all brokers are killed, and started again", 75.0, _all_away),
    Failure("topic-deleted", "the topic is deleted", 15.0, _deleted, log_gone=True),
    Failure("topic-recreated", "the topic is deleted and created again", 15.0, _made_anew, log_gone=True),
    Failure("unclean", "an unclean election", 10.0, _unclean, unclean=True),
    Failure("node-killed", "a node is killed, and started again", 15.0, _node_killed),
    Failure("node-stopped", "a node is stopped (SIGSTOP) and continues", 30.0, _node_stopped),
)


def topics(world: World, log: str) -> list[str]:
    """The topics of a log and of the gateway's Broker with the same name."""
    names = _admin(world).list_topics(timeout=_CHANGE_S).topics
    wanted = (f"{PREFIX}.log.{log}", f"{PREFIX}.log.broker.default.{log}")
    return [name for name in wanted if name in names]


def create(world: World, topic: NewTopic) -> None:
    """Create a topic. One that was just deleted may still be there for a moment."""
    admin = _admin(world)
    admin.create_topics([topic])[topic.topic].result(_CHANGE_S)


def delete(world: World, names: Sequence[str]) -> None:
    """Delete topics."""
    admin = _admin(world)
    for future in admin.delete_topics(list(names)).values():
        future.result(_CHANGE_S)


def alter(world: World, topic: str, settings: dict[str, str]) -> None:
    """Change settings of a topic."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = _admin(world)
    admin.incremental_alter_configs([resource])[resource].result(_CHANGE_S)


def unclean_topic(name: str, *, partitions: int = 4) -> NewTopic:
    """A topic of the first two brokers, of which one that is behind may lead."""
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true", **_APPEND_TIMES}
    return NewTopic(name, partitions, replica_assignment=[[1, 2]] * partitions, config=config)


def _await_leader(world: World, names: Sequence[str]) -> None:
    """Wait until each partition has a leader."""
    admin = _admin(world)
    while True:
        found = admin.list_topics(timeout=_CHANGE_S).topics
        partitions = [each for name in names for each in found[name].partitions.values()]
        if partitions and all(each.leader >= 0 and each.error is None for each in partitions):
            return


def _admin(world: World) -> AdminClient:
    return AdminClient({"bootstrap.servers": world.cluster.servers, "log_level": 0})
