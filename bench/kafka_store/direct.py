"""confluent-kafka used directly from Python, as a program: what the node on Kafka is compared with.

    python -m bench.kafka_store.direct send | recv --servers S --topic T --count N [--size BYTES] [--window N]

`send` hands over 1,000 records with each call, at most `--window` without a report, and counts the reports;
acks=all, idempotent, like the node. `recv` takes 10,000 records with each call, and looks at the error and
the value of each. Prints a line of JSON like `amqp_load`. The exit status is 1 if records are missing.
"""

import argparse
import json
import sys
import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

BATCH: Final = 1000
TAKEN: Final = 10_000
TIMEOUT_S: Final = 60.0


class Reports:
    """Counts what was accepted and what was not."""

    def __init__(self) -> None:
        self.accepted = 0
        self.failed = 0

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.accepted += 1
        else:
            self.failed += 1


def send(servers: str, topic: str, *, count: int, size: int, window: int) -> float:
    """Send records; returns how many were accepted a second.

    Raises:
        RuntimeError: a record was not accepted.
    """
    reports, value = Reports(), bytes(size)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": window + BATCH,
        }
    )
    # Connections and metadata are not measured.
    producer.produce(topic, value, partition=0)
    producer.flush(TIMEOUT_S)
    sent, began = 0, time.monotonic()
    while sent < count:
        while sent - reports.accepted - reports.failed > window - BATCH:
            producer.poll(0.1)
        messages: list[dict[str, Any]] = [{"value": value} for _ in range(min(BATCH, count - sent))]
        sent += producer.produce_batch(topic, messages, partition=0, on_delivery=reports)
        producer.poll(0)
    producer.flush(TIMEOUT_S)
    if reports.accepted != count:
        message = f"{reports.accepted} of {count} records were accepted"
        raise RuntimeError(message)
    return count / (time.monotonic() - began)


def recv(servers: str, topic: str, *, count: int) -> float:
    """Read records from the first on; returns how many came a second after the first one.

    The clock begins with the first record, as that of our generator, and not after the first call for 10,000:
    librdkafka has read a third of 200,000 records of 1 KiB ahead by then.

    Raises:
        RuntimeError: a record did not come.
    """
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "direct", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got, first, began = 0, 0, 0.0
    until = time.monotonic() + TIMEOUT_S
    while got < count:
        # Asked for more than there are, it would wait for them.
        for message in consumer.consume(min(TAKEN, count - got) if got else 1, 1.0):
            if message.error() is not None or message.value() is None:
                text = f"not a record: {message.error()}"
                raise RuntimeError(text)
            got += 1
        if not began and got:
            first, began = got, time.monotonic()
        if time.monotonic() > until:
            text = f"{got} of {count} records came"
            raise RuntimeError(text)
    rate = (got - first) / (time.monotonic() - began)
    consumer.close()
    return rate


def main() -> int:
    """Do what the command line says, and print how fast it was."""
    parser = argparse.ArgumentParser(prog="python -m bench.kafka_store.direct", description=__doc__)
    parser.add_argument("mode", choices=("send", "recv"))
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--window", type=int, default=10_000)
    given = parser.parse_args()
    try:
        rate = (
            send(given.servers, given.topic, count=given.count, size=given.size, window=given.window)
            if given.mode == "send"
            else recv(given.servers, given.topic, count=given.count)
        )
    except RuntimeError as error:
        print(json.dumps({"ok": False, "error": str(error)}))
        return 1
    print(json.dumps({"ok": True, "error": "", "msgs_per_s": rate, "client_cpu_s": time.process_time()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
