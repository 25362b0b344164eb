"""send | receive | info with Qpid Proton's BlockingConnection, as its users write it. See ../README.md."""

import sys
from collections.abc import Iterator
from typing import Any

from proton import Delivery, Described, Message, symbol, timestamp, ulong
from proton.reactor import Filter
from proton.utils import BlockingConnection

WINDOW = 500


def send(connection: Any, log: str) -> None:
    """Each line of stdin becomes an event; many are on their way at a time."""
    sender = connection.create_sender(log)
    accepted = 0
    for lines in batched(sys.stdin.read().splitlines()):
        sent = [sender.link.send(event(line)) for line in lines]
        connection.wait(
            lambda sent=sent: all(delivery.settled for delivery in sent), timeout=10, msg="outcomes"
        )
        accepted += sum(delivery.remote_state == Delivery.ACCEPTED for delivery in sent)
    print(accepted)


def batched(lines: list[str]) -> Iterator[list[str]]:
    """The lines, a window at a time."""
    for start in range(0, len(lines), WINDOW):
        yield lines[start : start + WINDOW]


def event(line: str) -> Message:
    """The line as an AMQP message; its group key keeps a day in one partition."""
    return Message(
        body=line.encode(), annotations={symbol("event-streams-group-key"): line[:10]}, inferred=True
    )


def begin(where: str) -> Filter:
    """The filter that starts a receiver after an offset or a time; here by its numeric code 0x200."""
    kind, _, value = where.partition(":")
    if kind == "time":
        condition: dict[Any, Any] = {symbol("event-streams-timestamp"): timestamp(int(value))}
    else:
        condition = {symbol("event-streams-offset"): symbol(value or "@earliest")}
    return Filter({symbol("start"): Described(ulong(0x200), condition)})


def receive(connection: Any, log: str, where: str, count: str) -> None:
    """Print `count` events."""
    receiver = connection.create_receiver(log, credit=WINDOW, options=begin(where))
    for _ in range(int(count)):
        message = receiver.receive(timeout=10)
        receiver.accept()
        about = message.instructions  # Proton's word for delivery annotations
        body = bytes(message.body).decode()
        partition, offset, moment = (
            about[f"event-streams-{name}"] for name in ("source-partition", "offset", "timestamp")
        )
        print(partition, offset, int(moment), body, sep="\t")


def info(connection: Any, log: str) -> None:
    """Print what `$info` says of each partition."""
    receiver = connection.create_receiver(f"{log}/$info", credit=1)
    for one in receiver.receive(timeout=10).body["partitions"]:
        print(one["partition"], one["earliest-offset"], one["latest-offset"], sep="\t")


def main() -> None:
    """Run the command named by the arguments."""
    command, url, *arguments = sys.argv[1:]
    connection = BlockingConnection(url, timeout=10)
    {"send": send, "receive": receive, "info": info}[command](connection, *arguments)
    connection.close()


if __name__ == "__main__":
    main()
