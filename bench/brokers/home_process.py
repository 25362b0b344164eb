"""A node that is only a home, for `bench.brokers.homes_chaos`: `python -m bench.brokers.home_process`.

    python -m bench.brokers.home_process SERVERS NAME BUCKETS

It reports to itself one durable link for each bucket that it has, and moves the link's cursor by one with
each answer, from the position that the home gave it. While a home may decide, the process prints a line of
JSON for it: the time by CLOCK_BOOTTIME in ms, the bucket and the term. Ends in order at SIGTERM.
"""

import asyncio
import json
import os
import signal
import sys
import time
from typing import Final

from amqp_streams.config import GroupSettings, Limits, LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.homes.bucket import Bucket, Phase, Reply
from amqp_streams.homes.home import Home
from amqp_streams.homes.leases import Times
from amqp_streams.homes.messages import Owns, Report, Reported
from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.brokers.administration import Administration, FoundTopic
from amqp_streams.kafka.sharing.state_topic import find_or_create
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.server.homes.home_shell import TICK_S, HomeShell
from amqp_streams.streams.groups.claims import Wanted
from amqp_streams.testing import MemoryStore

PREFIX: Final = "chaos"
CLOSE_S: Final = 5.0


def boot_ms() -> int:
    """CLOCK_BOOTTIME in ms."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Link:
    """The link that this node has in a bucket, under one home."""

    def __init__(self, bucket: int, term: int) -> None:
        self.term: Final = term
        self._wanted: Final = Wanted("i", None, f"c{bucket}", "link", None, True, (0,), (0,))
        self._number: Final = bucket + 1
        self._granted: Owns | None = None
        self._position = 0
        self._reports = 0

    def report(self, node: str, bucket: int) -> Report:
        """The next report."""
        self._reports += 1
        granted = self._granted
        link = Reported(
            self._number,
            self._wanted,
            serial=None if granted is None else granted.serial,
            positions=() if granted is None else ((0, self._position),),
        )
        return Report(node, bucket, self.term, self._reports, (link,))

    def answered(self, reply: Reply) -> None:
        """Begin at the position that the home has, and go on by one."""
        for verdict in reply.answer.verdicts:
            if isinstance(verdict, Owns):
                self._granted, self._position = verdict, verdict.positions[0][1]
        if self._granted is not None and reply.answer.remaining_ms > 0:
            self._position += 1


class Process:
    """The homes of this process, and the links that it has in them."""

    def __init__(self, name: str, options: KafkaOptions, found: FoundTopic, ask: Administration) -> None:
        loop = asyncio.get_running_loop()
        log = MemoryStore().create("log", LogSettings(), incarnation="i")
        self.left: Final = asyncio.Event()
        self._name: Final = name
        self._stopping = False
        self._links: Final[dict[int, Link]] = {}
        self._shell: Final = HomeShell(
            Home(name, name, lambda _: log, settings=GroupSettings(), limits=Limits(), times=Times()),
            options,
            ask,
            found,
            loop_call=loop.call_soon_threadsafe,
            boot_ms=boot_ms,
            wall_ms=lambda: int(time.time() * 1000),
            on_reply=self._replied,
            on_home=lambda _bucket, _record: None,
            on_left=self.left.set,
        )
        loop.add_signal_handler(signal.SIGTERM, self._stop)

    def _stop(self) -> None:
        self._stopping = True
        self._shell.stop()

    def _replied(self, reply: Reply) -> None:
        link = self._links.get(reply.answer.bucket)
        if link is not None and link.term == reply.answer.term:
            link.answered(reply)

    def turn(self) -> None:
        """One tick: report, and print which homes may decide."""
        self._shell.tick()
        for number, bucket in list(self._shell.home.buckets.items()):
            self._turn(number, bucket)

    def _turn(self, number: int, bucket: Bucket) -> None:
        term, link = bucket.record.term, self._links.get(number)
        if bucket.serving is None:
            return
        if link is None or link.term != term:
            link = self._links[number] = Link(number, term)
        if not self._stopping:
            self._shell.report(link.report(f"peer.{self._name}", number))
        now_ms = boot_ms()
        if bucket.phase is Phase.SERVING and now_ms < bucket.lease_end_ms:
            print(
                json.dumps({"at_ms": now_ms, "bucket": number, "term": term, "node": self._name}), flush=True
            )

    def close(self) -> None:
        """End the threads."""
        self._shell.close(CLOSE_S)


async def run(servers: str, name: str, buckets: int) -> None:
    """Be a home until SIGTERM."""
    names = TopicNames(PREFIX)
    options = KafkaOptions({"bootstrap.servers": servers, "log_level": 0}, names)
    ask = Administration(options.connection)
    while True:
        try:
            found = await asyncio.to_thread(find_or_create, ask, names.state, buckets, replicas=3, weak=False)
            break
        except StorageError as error:
            print(error, file=sys.stderr)
            await asyncio.sleep(1)
    process = Process(name, options, found, ask)
    while not process.left.is_set():
        process.turn()
        await asyncio.sleep(TICK_S)
    process.close()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    # Threads of librdkafka must not delay the end.
    os._exit(0)
