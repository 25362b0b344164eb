"""Collects the figures of the store, the node, its links and the regular work, in steps.

It visits only what is shown, because there may be many consumers and groups. The event loop serves clients
between the steps, so figures of different steps are from different moments.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol

from amqp_streams.config import Limits
from amqp_streams.node import Node
from amqp_streams.server.limits.quotas import Quotas
from amqp_streams.server.links.consumer import ConsumerLink
from amqp_streams.server.links.effects import Effects
from amqp_streams.server.links.link import AnyLink
from amqp_streams.server.links.producer import ProducerLink
from amqp_streams.server.links.turns import Turns
from amqp_streams.server.observing.audit import Audit
from amqp_streams.server.observing.status import (
    CONSUMERS_MAX,
    GROUP_LAGS_MAX,
    GROUPS_MAX,
    NodeStatus,
    consumer_statuses,
    group_statuses,
    log_statuses,
)
from amqp_streams.server.regular import Regular
from amqp_streams.storage.ports import Store, Use
from amqp_streams.storage.questions import Figure
from amqp_streams.streams.steps import Steps

_LINKS_A_STEP: Final = 1000
"""How many links a step counts."""


class Connection(Protocol):
    """A connection whose links are counted."""

    def find_links(self, wanted: Callable[[AnyLink], bool]) -> list[AnyLink]:
        """Return the links for which `wanted` is true."""


class Service(Protocol):
    """The parts of the server that figures are collected from."""

    node: Node
    store: Store
    limits: Limits
    turns: Turns
    effects: Effects
    regular: Regular
    quotas: Quotas
    audit: Audit
    ready: bool

    @property
    def connections(self) -> Collection[Connection]:
        """The open connections."""

    home_figures: Callable[[], Iterable[Figure]]

    def uses(self) -> dict[str, Use]:
        """How much of each limit is in use."""


def picture(service: Service) -> Steps[NodeStatus]:
    """Return the current figures of the whole server."""
    node = service.node
    consumers = consumer_statuses(node, CONSUMERS_MAX)
    yield
    groups = node.group_figures(groups_max=GROUPS_MAX, lags_max=GROUP_LAGS_MAX)
    yield
    producer_links, consumer_links = yield from _links(tuple(service.connections))
    logs = yield from log_statuses(tuple(service.store.logs.values()), node)
    return NodeStatus(
        ready=service.ready,
        connections=len(service.connections),
        producer_links=producer_links,
        consumer_links=consumer_links,
        pending_bytes=service.store.pending_bytes,
        uses=service.uses(),
        request_seconds=service.turns.seconds,
        faults=dict(service.regular.faults),
        hindered=service.regular.hindrance(),
        logs=logs,
        consumers=consumers,
        consumers_more=node.consumer_partitions() - len(consumers),
        groups=group_statuses(groups.shown, service.effects.moves),
        groups_more=groups.more,
        quotas=tuple(service.quotas.status()),
        access_refused=service.audit.refused_count,
        deliveries_refused=dict(service.audit.deliveries_refused),
        figures=(*service.store.facts().figures, *service.home_figures()),
    )


def _links(connections: Sequence[Connection]) -> Steps[tuple[int, int]]:
    """How many links of producers and of consumers there are."""
    producers = consumers = since = 0
    for connection in connections:
        links = connection.find_links(lambda _link: True)
        producers += sum(isinstance(link, ProducerLink) for link in links)
        consumers += sum(isinstance(link, ConsumerLink) for link in links)
        since += len(links) + 1
        if since >= _LINKS_A_STEP:
            since = 0
            yield
    return producers, consumers
