"""[io] A sender of a gateway with its subscriber, and a Spark job: both note all they see."""

import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.brokers.verdict import Place
from bench.brokers.world import place
from examples.gateway import GatewayProcess, Sender
from examples.subscriber import SubscriberServer

ACCEPTED: Final = 202
_RATE: Final = 20.0
_AGAIN_S: Final = 1.0
_RAISED: Final = re.compile(r"(?:spark_connector|amqp_streams)[\w.]*\.(\w+Error): ([^\n]+)")
_REASON_MAX: Final = 300
_BROKER: Final = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {{name: {name}, namespace: default}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: {name}, namespace: default}}
spec:
  broker: {name}
  subscriber: {{uri: "{url}"}}
  delivery: {{retry: 20, backoffDelay: PT0.2S, backoffPolicy: linear}}
"""


@dataclass(slots=True)
class Gateway:
    """Sends events to one Broker, one after the other, and receives those of its Trigger.

    `answers`: when each request ended, and its status, 0 without an answer. `accepted`: moments by event id.
    """

    process: GatewayProcess
    broker: str
    answers: list[tuple[float, int]] = field(default_factory=list)
    accepted: dict[str, float] = field(default_factory=dict)
    subscriber: SubscriberServer = field(default_factory=SubscriberServer)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Create the Broker and begin to send."""
        self.subscriber.__enter__()
        self.process.apply(_BROKER.format(name=self.broker, url=self.subscriber.url))
        self._thread = threading.Thread(target=self._send, name="sender", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def delivered(self, since: float, within_s: float) -> int:
        """Wait until the events accepted since a moment were delivered; how many were not in time."""
        ids = {each for each, moment in self.accepted.items() if moment >= since}
        self.subscriber.wait(lambda server: ids <= {one.id for one in server.taken}, within_s)
        return len(ids - {one.id for one in self.subscriber.taken})

    def close(self) -> None:
        """End the subscriber."""
        self.subscriber.__exit__()

    @property
    def doubled(self) -> int:
        """How many deliveries were not the first one of their event."""
        counts = Counter(one.id for one in self.subscriber.taken)
        return sum(counts.values()) - len(counts)

    def _send(self) -> None:
        sender = Sender(self.process.http, f"/broker/default/{self.broker}")
        for number in itertools.count():
            if self._stop.wait(1 / _RATE):
                break
            id_ = f"{self.broker}.{number}"
            status = sender.send({"id": id_, "source": "/failures", "type": "t"}, b"{}")
            moment = time.monotonic()
            self.answers.append((moment, status or 0))
            if status == ACCEPTED:
                self.accepted[id_] = moment
        sender.close()


def cause(text: str) -> str:
    """The error of the connector in what Spark says, or else what it says."""
    raised = _RAISED.findall(text)
    return ": ".join(raised[-1]) if raised else " ".join(text.split())


@dataclass(slots=True)
class Spark:
    """A streaming query that reads a log; it is started again from its checkpoint when it fails."""

    session: SparkSession
    urls: Sequence[str]
    log: str
    checkpoint: Path
    times: list[float] = field(default_factory=list)
    errors: list[tuple[float, str]] = field(default_factory=list)
    _batches: dict[int, list[tuple[int, Place]]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read."""
        self._thread = threading.Thread(target=self._run, name="spark", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def got(self) -> dict[int, list[Place]]:
        """What the query has read, by partition, in the order of its batches."""
        found: dict[int, list[Place]] = {}
        for number in sorted(self._batches):
            for partition, each in sorted(self._batches[number]):
                found.setdefault(partition, []).append(each)
        return found

    def reached(self, ends: dict[int, int], within_s: float) -> bool:
        """Wait until the query has read up to these last offsets; whether it did in time."""
        until = time.monotonic() + within_s
        while True:
            got = self.got()
            if all(
                partition in got and got[partition][-1].offset >= last for partition, last in ends.items()
            ):
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.5)

    def _run(self) -> None:
        while not self._stop.is_set():
            query: StreamingQuery | None = None
            try:
                query = self._query()
                while not self._stop.is_set() and not query.awaitTermination(1):
                    pass
            except PySparkException as error:
                self.errors.append((time.monotonic(), cause(str(error))[:_REASON_MAX]))
                self._stop.wait(_AGAIN_S)
            finally:
                if query is not None:
                    query.stop()

    def _query(self) -> StreamingQuery:
        options: dict[str, Any] = {
            "endpoint": ",".join(self.urls),
            "stream": self.log,
            "startingOffsets": "earliest",
        }
        frame = self.session.readStream.format("amqpstreams").options(**options).load()
        written = frame.select("partition", "offset", "body").writeStream.foreachBatch(self._batch)
        return (
            written.option("checkpointLocation", str(self.checkpoint))
            .trigger(processingTime="1 second")
            .start()
        )

    def _batch(self, frame: DataFrame, number: int) -> None:
        rows = frame.collect()
        if rows:
            # A batch that is repeated replaces itself, as in a file.
            self._batches[number] = [
                (int(row["partition"]), place(int(row["offset"]), bytes(row["body"]))) for row in rows
            ]
            self.times.append(time.monotonic())
