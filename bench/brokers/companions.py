"""[io] What else uses the nodes during `make chaos`: two gateways with one database, and a Spark query."""

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from bench.brokers.verdict import Place
from bench.products import postgresql
from examples.gateway import GatewayProcess, Sender
from examples.node import NodeProcess
from examples.subscriber import SubscriberServer

if TYPE_CHECKING:
    from bench.brokers.watchers import Spark

KINDS: Final = ("gateway", "spark")
GATEWAYS: Final = 2
TRIGGERS: Final = 2
ACCEPTED: Final = 202
_RATE: Final = 5.0
_DATABASE: Final = {"listen_addresses": "", "max_connections": "60"}
_BROKER: Final = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {name: chaos, namespace: default}
"""
_TRIGGER: Final = """---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: t{number}, namespace: default}}
spec:
  broker: chaos
  subscriber: {{uri: "{url}"}}
  delivery: {{retry: 50, backoffDelay: PT0.2S, backoffPolicy: linear}}
"""


class Companion(Protocol):
    """`settle`: send and read no more when all has come; what was not as promised. `figures`: for people.

    `processes`: those that are disturbed as well.
    """

    @property
    def processes(self) -> Sequence[NodeProcess]: ...
    async def settle(self, stored: Mapping[int, Sequence[Place]], within_s: float) -> list[str]: ...
    def figures(self) -> dict[str, object]: ...


@dataclass(slots=True)
class Gateways:
    """A sender at each gateway, one Broker, and a subscriber for each of its Triggers."""

    gateways: Sequence[GatewayProcess]
    subscribers: Sequence[SubscriberServer]
    accepted: set[str] = field(default_factory=set)
    answers: Counter[str] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def processes(self) -> Sequence[NodeProcess]:
        """See `Companion.processes`."""
        return self.gateways

    def start(self) -> None:
        """Create the Broker, and begin to send."""
        triggers = [_TRIGGER.format(number=at, url=each.url) for at, each in enumerate(self.subscribers)]
        self.gateways[0].apply("".join([_BROKER, *triggers]))
        for number in range(len(self.gateways)):
            thread = threading.Thread(target=self._send, args=(number,), name=f"sender-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _send(self, number: int) -> None:
        sender = Sender(self.gateways[number].http, "/broker/default/chaos")
        for count in itertools.count():
            if self._stop.wait(1 / _RATE):
                break
            id_ = f"{number}.{count}"
            status = sender.send({"id": id_, "source": "/chaos", "type": "t"}, b"{}")
            self.answers[str(status or "no answer")] += 1
            if status == ACCEPTED:
                self.accepted.add(id_)
        sender.close()

    async def settle(self, stored: Mapping[int, Sequence[Place]], within_s: float) -> list[str]:  # noqa: ARG002
        """See `Companion.settle`."""
        self._stop.set()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        faults = []
        for at, subscriber in enumerate(self.subscribers):
            await asyncio.to_thread(subscriber.wait, self._has_all, within_s)
            missing = self.accepted - {one.id for one in subscriber.taken}
            if missing:
                faults.append(f"Trigger {at} did not deliver {len(missing)}: {sorted(missing)[:5]}")
        faults += [
            f"gateway {at} wrote a traceback"
            for at, each in enumerate(self.gateways, 1)
            if "Traceback" in each.words
        ]
        return faults

    def _has_all(self, subscriber: SubscriberServer) -> bool:
        return self.accepted <= {one.id for one in subscriber.taken}

    def figures(self) -> dict[str, object]:
        """See `Companion.figures`."""
        again = sum(len(each.taken) - len({one.id for one in each.taken}) for each in self.subscribers)
        answers = ", ".join(f"{count} x {status}" for status, count in sorted(self.answers.items()))
        return {
            "events accepted by gateways": len(self.accepted),
            "answers of gateways": answers,
            "delivered by Triggers": sum(len(each.taken) for each in self.subscribers),
            "of these, again by Triggers": again,
        }


@dataclass(slots=True)
class Query:
    """A streaming query of Spark that reads the log."""

    spark: "Spark"
    processes: Sequence[NodeProcess] = ()

    async def settle(self, stored: Mapping[int, Sequence[Place]], within_s: float) -> list[str]:
        """See `Companion.settle`."""
        ends = {partition: places[-1].offset for partition, places in stored.items() if places}
        reached = await asyncio.to_thread(self.spark.reached, ends, within_s)
        await asyncio.to_thread(self.spark.stop)
        faults = [] if reached else ["the Spark query did not reach the end in time"]
        got = self.spark.got()
        faults += [
            f"Spark has {len(got.get(partition, []))} rows of partition {partition}, Kafka {len(places)}, or"
            " others"
            for partition, places in stored.items()
            if got.get(partition, []) != list(places)
        ]
        return faults

    def figures(self) -> dict[str, object]:
        """See `Companion.figures`."""
        rows = sum(map(len, self.spark.got().values()))
        return {"rows of Spark": rows, "times that the query ended with an error": len(self.spark.errors)}


@asynccontextmanager
async def companions(
    kinds: Sequence[str], folder: Path, urls: Sequence[str], log: str
) -> AsyncIterator[list[Companion]]:
    """Start what is wanted, and end it. Raises RuntimeError: something does not start."""
    found: list[Companion] = []
    async with AsyncExitStack() as stack:
        if "gateway" in kinds:
            inner = stack.enter_context(ExitStack())
            gateways = await asyncio.to_thread(_gateways, inner, folder, urls)
            await asyncio.to_thread(gateways.start)
            found.append(gateways)
        if "spark" in kinds:
            from bench.brokers.watchers import Spark  # noqa: PLC0415 - Spark takes a second to import
            from bench.spark import session  # noqa: PLC0415

            own = await asyncio.to_thread(stack.enter_context, session())
            query = Spark(own, urls, log, folder / "checkpoint")
            stack.callback(query.stop)
            query.start()
            found.append(Query(query))
        yield found


def _gateways(stack: ExitStack, folder: Path, urls: Sequence[str]) -> Gateways:
    if postgresql.binaries() is None:
        raise RuntimeError(postgresql.MISSING)
    database = postgresql.url_of(stack.enter_context(postgresql.server(_DATABASE)))
    subscribers = [stack.enter_context(SubscriberServer()) for _ in range(TRIGGERS)]
    options = ("--amqp", ",".join(urls), "--store", database)
    processes = [
        stack.enter_context(GatewayProcess(folder / f"gateway-{number}", *options))
        for number in range(1, GATEWAYS + 1)
    ]
    return Gateways(processes, subscribers)
