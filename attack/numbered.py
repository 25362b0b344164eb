"""Idempotent producers of an attacker, and what it does again and again while the neighbour is measured."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import proton

from amqp_streams import names
from attack.load import give_way
from attack.peer import Peer, refusal

LOG: Final = "m-log"


@contextmanager
def again_and_again(*acts: Callable[[], None]) -> Iterator[Counter[str]]:
    """Call each in a thread of its own, again and again while inside; how often. What it raises is raised."""
    ended, counts, failed = threading.Event(), Counter[str](), list[Exception]()

    def run(name: str, act: Callable[[], None]) -> None:
        give_way()
        try:
            while not ended.is_set():
                act()
                counts[name] += 1
        except Exception as error:  # noqa: BLE001  raised again below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(str(number), act)) for number, act in enumerate(acts)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def producer(peer: Peer, producer: str, *, log: str = LOG, partition: int | None = 0) -> Any:
    """A link of an idempotent producer."""

    def wanted(link: Any) -> None:
        link.target.capabilities.put_object(proton.symbol(names.CAPABILITY_IDEMPOTENT_PRODUCER))

    return peer.sender(log, partition=partition, properties={names.PRODUCER_ID: producer}, prepare=wanted)


def post(link: Any, number: Any, body: bytes = b"x", *, whole: bool = True) -> Any:
    """Hand an event with this number to the engine; its delivery. Not `whole`: it is never finished."""
    message = proton.Message(body=body)
    message.instructions = {proton.symbol(names.SEQUENCE): number}
    delivery = link.delivery(f"{time.monotonic_ns()}")
    link.stream(message.encode())
    if whole:
        link.advance()
    return delivery


def outcome(peer: Peer, link: Any, number: Any) -> int:
    """Send an event and wait for what becomes of it; 0: the link is closed."""
    delivery = post(link, number)
    peer.until(lambda: int(delivery.remote_state) != 0 or refusal(link) is not None, "no outcome")
    return int(delivery.remote_state)
