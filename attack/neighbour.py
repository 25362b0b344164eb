"""The tenant that works during an attack, in a process of its own: it sends events and gets them.

An AMQP round trip is: send an event, wait until it is accepted and has come back. An HTTP round trip is: POST
an event to a Broker, wait until it is accepted and has been delivered to the subscriber, which is here. It
also measures the syncs of the disk (`disk.py`). Each line on stdin asks for the figures since the last one;
they come as one line of JSON.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
from aiohttp import web

from amqp_streams.client import (
    LATEST,
    NO_RETRY,
    Client,
    Consumer,
    Event,
    Producer,
    SaslOptions,
    connect,
)
from attack.disk import DISK, Syncs

NEIGHBOUR_OF_KAFKA: Final = {
    "numbered": "n-numbered",
    "opened": "n-opened",
    "group": "n-group",
    "claim": "n-claim",
}
"""What the neighbour of nodes on Kafka does in addition, and the log of each."""
ANSWER_S_MAX: Final = 60.0
START_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Round trips of one kind. `waiting_ms`: of the round trip that is not complete."""

    ms: tuple[float, ...] = ()
    errors: tuple[str, ...] = ()
    waiting_ms: float = 0.0

    @property
    def p99(self) -> float:
        """The 99th percentile; what is not complete counts with the time that it has taken so far."""
        ordered = sorted([*self.ms, self.waiting_ms])
        return ordered[min(len(ordered) - 1, round(len(ordered) * 0.99))]

    def __add__(self, later: "Measured") -> "Measured":
        """Both measurements as one."""
        return Measured(self.ms + later.ms, self.errors + later.errors, later.waiting_ms)


@dataclass
class _Trips:
    """Collects one kind of round trips, in the process of the neighbour."""

    ms: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    since: float | None = None

    def take(self) -> dict[str, object]:
        waiting = 0.0 if self.since is None else (time.perf_counter() - self.since) * 1000
        taken = {"ms": self.ms, "errors": self.errors, "waiting_ms": waiting}
        self.ms, self.errors = [], []
        return taken

    async def keep_on(self, trip: Any, every_s: float) -> None:
        while True:
            self.since = time.perf_counter()
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    await trip()
            except Exception as error:  # noqa: BLE001  every failure of a trip is what is measured
                self.errors.append(f"{type(error).__name__}: {error}"[:200])
            else:
                self.ms.append((time.perf_counter() - self.since) * 1000)
            self.since = None
            await asyncio.sleep(every_s)


class Neighbour:
    """The process, from outside. Use it with `with`, or `neighbour`."""

    def __init__(self, settings: dict[str, str]) -> None:
        command = [sys.executable, "-m", "attack.neighbour", json.dumps(settings)]
        self._process: Final = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid: Final = self._process.pid
        self.url: Final[str] = self._line()["url"]
        """Of the subscriber."""

    def take(self) -> dict[str, Measured]:
        """What was measured since the last call, by kind."""
        return {
            name: Measured(tuple(each["ms"]), tuple(each["errors"]), each["waiting_ms"])
            for name, each in self._asked("take").items()
        }

    def begin(self) -> None:
        """Begin to work: everything that it needs is there."""
        self._asked("begin")

    def _asked(self, word: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            message = "the neighbour has ended"
            raise RuntimeError(message)
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(ANSWER_S_MAX)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


@contextmanager
def neighbour(**settings: str) -> Iterator[Neighbour]:
    """A neighbour that works until the end."""
    with Neighbour(settings) as beside:
        yield beside


class _Working:
    """What runs in the process."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings: Final = settings
        self._trips: Final[dict[str, _Trips]] = {}
        self._came: dict[str, asyncio.Event] = {}
        self._number = 0
        self._tasks: Final[list[asyncio.Task[None]]] = []

    async def run(self) -> None:
        application = web.Application()
        application.router.add_post("/", self._delivered)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}/"}), flush=True)
        while word := await asyncio.to_thread(sys.stdin.readline):
            if word.strip() == "begin":
                await self._begin()
                print("{}", flush=True)
            else:
                print(json.dumps({name: each.take() for name, each in self._trips.items()}), flush=True)
        for task in self._tasks:
            task.cancel()
        await runner.cleanup()

    async def _begin(self) -> None:
        works = {
            "amqp": self._amqp,
            "numbered": self._numbered,
            "opened": self._opened,
            "group": self._group,
            "claim": self._claim,
            "http": self._http,
            DISK: self._disk,
        }
        for name, work in works.items():
            if name in self._settings:
                ready = asyncio.Event()
                self._trips[name] = _Trips()
                task = asyncio.create_task(work(self._trips[name], ready))
                self._tasks.append(task)
                async with asyncio.timeout(START_S_MAX):
                    waiting = asyncio.create_task(ready.wait())
                    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
                    if task.done():
                        task.result()

    async def _amqp(self, trips: _Trips, ready: asyncio.Event) -> None:
        log = self._settings["log"]
        async with (
            self._connected() as client,
            client.consumer(log, start=LATEST) as consumer,
            client.producer(log) as producer,
        ):
            ready.set()

            async def trip() -> None:
                await producer.send(Event("x"))
                await consumer.receive(1, timeout=ANSWER_S_MAX)

            await trips.keep_on(trip, float(self._settings["every_s"]))

    def _connected(self) -> Client:
        sasl = SaslOptions(token=self._settings["token"])
        return connect(self._settings["amqp"], sasl=sasl, retry=NO_RETRY)

    async def _numbered(self, trips: _Trips, ready: asyncio.Event) -> None:
        """Send an event with a number, and wait until it is accepted and has come once."""
        log = self._settings["numbered"]
        async with (
            self._connected() as client,
            client.consumer(log, start=LATEST) as consumer,
            client.producer(log, producer_id="beside") as producer,
        ):
            await self._events(trips, ready, producer, consumer)

    async def _group(self, trips: _Trips, ready: asyncio.Event) -> None:
        """The same without a number, in a consumer group."""
        log = self._settings["group"]
        async with (
            self._connected() as client,
            client.consumer(log, partition=0, group="works", start=LATEST) as consumer,
            client.producer(log) as producer,
        ):
            await self._events(trips, ready, producer, consumer)

    async def _events(
        self, trips: _Trips, ready: asyncio.Event, producer: Producer, consumer: Consumer
    ) -> None:
        ready.set()
        number = 0

        async def trip() -> None:
            nonlocal number
            number += 1
            await producer.send(Event(number))
            came = [event.body for event in await consumer.receive(1, timeout=ANSWER_S_MAX)]
            if came != [number]:
                message = f"event {number} was sent, {came} came"
                raise RuntimeError(message)

        await trips.keep_on(trip, float(self._settings["every_s"]))

    async def _opened(self, trips: _Trips, ready: asyncio.Event) -> None:
        """Open an idempotent producer, send an event and close it."""
        log = self._settings["opened"]
        async with self._connected() as client:

            async def trip() -> None:
                self._number += 1
                async with client.producer(log, producer_id=f"opened-{self._number % 4}") as producer:
                    await producer.send(Event("x"))

            await trip()
            ready.set()
            await trips.keep_on(trip, float(self._settings["every_s"]))

    async def _claim(self, trips: _Trips, ready: asyncio.Event) -> None:
        """Claim a partition in a group, and leave it."""
        log = self._settings["claim"]
        async with self._connected() as client:

            async def trip() -> None:
                async with client.consumer(log, partition=0, group="claims"):
                    pass

            await trip()
            ready.set()
            await trips.keep_on(trip, float(self._settings["every_s"]))

    async def _disk(self, trips: _Trips, ready: asyncio.Event) -> None:
        with Syncs(Path(self._settings[DISK])) as syncs:
            ready.set()
            await trips.keep_on(syncs.one, float(self._settings["every_s"]))

    async def _http(self, trips: _Trips, ready: asyncio.Event) -> None:
        headers = {
            "ce-specversion": "1.0",
            "ce-source": "/n",
            "ce-type": "n",
            "content-type": "application/json",
            "authorization": f"Bearer {self._settings['http_token']}",
        }
        async with aiohttp.ClientSession() as session:

            async def trip() -> None:
                self._number += 1
                id_ = str(self._number)
                self._came[id_] = came = asyncio.Event()
                async with session.post(
                    self._settings["http"], data=b"{}", headers={**headers, "ce-id": id_}
                ) as answer:
                    await answer.read()
                if answer.status != 202:
                    message = f"status {answer.status}"
                    raise RuntimeError(message)
                await came.wait()
                del self._came[id_]

            await trip()
            ready.set()
            await trips.keep_on(trip, float(self._settings["every_s"]))

    async def _delivered(self, request: web.Request) -> web.Response:
        await request.read()
        came = self._came.get(request.headers.get("ce-id", ""))
        if came is not None:
            came.set()
        return web.Response(status=202)


if __name__ == "__main__":
    asyncio.run(_Working(json.loads(sys.argv[1])).run())
