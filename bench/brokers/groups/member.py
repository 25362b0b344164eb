"""Consumers in one process, which is killed and stopped: `python -m bench.brokers.groups.member`.

    python -m bench.brokers.groups.member JOURNAL SPEC

SPEC is JSON: see `Spec`. Each consumer writes a line of JSON into JOURNAL for each event that it gets, before
it settles it, and again before it settles it. Times are readings of CLOCK_BOOTTIME in microseconds. Ends in
order at SIGTERM.
"""

import asyncio
import json
import os
import random
import signal
import sys
from asyncio import FIRST_COMPLETED, FIRST_EXCEPTION
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from amqp_streams.client import EARLIEST, Client, ReceivedEvent, RetryPolicy, connect
from amqp_streams.client.aio import Consumer, GroupConsumer
from amqp_streams.errors import AmqpStreamsError
from bench.brokers.groups.second import SecondReceiver
from bench.brokers.groups.traced_node import boot_us
from bench.brokers.world import place

IDLE_MS: Final = 5_000
_AGAIN_S: Final = 0.3
_LEAVE_S: Final = 10.0
_TURN: Final = 64
_HELD_S: Final = (1.0, 5.0)
"""How long a claimant that lost its partition waits before it takes it back."""

Kind = Literal["member", "claimant", "subscription"]
Settle = Literal["auto", "manual", "second"]


@dataclass(frozen=True, slots=True)
class Role:
    """One consumer. `name`: its container-id. `group`: empty for a subscription.

    `key`: what it shares with other consumers, as the traces of nodes have it. `partition`: of a claimant.
    `settle`: `second` is a receiver that settles after the node.
    """

    kind: Kind
    name: str
    log: str
    key: str
    settle: Settle
    group: str = ""
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Spec:
    """What a process runs. `urls`: the nodes, the first one first."""

    urls: tuple[str, ...]
    roles: tuple[Role, ...]
    seed: int = 1

    @property
    def text(self) -> str:
        """The argument of the command."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str) -> "Spec":
        """The opposite of `text`."""
        fields = json.loads(text)
        return Spec(tuple(fields["urls"]), tuple(Role(**each) for each in fields["roles"]), fields["seed"])


class Journal:
    """The file."""

    def __init__(self, path: Path) -> None:
        self._descriptor: Final = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, kind: str, role: Role, *fields: object) -> None:
        """Write a line."""
        line = json.dumps([kind, boot_us(), role.key, role.name, *fields])
        os.write(self._descriptor, line.encode() + b"\n")

    def got(self, role: Role, partition: int, offset: int, body: bytes) -> None:
        """An event came."""
        found = place(offset, body)
        self.note("got", role, partition, [[offset, f"{found.producer}:{found.number}"]])

    def events(self, role: Role, events: Sequence[ReceivedEvent]) -> dict[int, list[ReceivedEvent]]:
        """Events came; the same by partition."""
        found: dict[int, list[ReceivedEvent]] = {}
        for event in events:
            found.setdefault(int(event.partition or 0), []).append(event)
        for partition, each in found.items():
            rows = [[event.offset, _id(event)] for event in each]
            self.note("got", role, partition, rows)
            if role.settle == "auto":
                # The client settles them from now on, when the program asks for more.
                self.note("settles", role, partition, [event.offset for event in each])
        return found


def _id(event: ReceivedEvent) -> str:
    assert event.offset is not None
    assert isinstance(event.body, bytes)
    found = place(event.offset, event.body)
    return f"{found.producer}:{found.number}"


class Process:
    """All consumers of a process."""

    def __init__(self, spec: Spec, journal: Journal) -> None:
        self._spec: Final = spec
        self._journal: Final = journal
        self._random: Final = random.Random(spec.seed)
        self.ending: Final = asyncio.Event()

    async def run(self) -> None:
        """Consume until `ending` is set. What cannot end in order then, without a node, is given up."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.ending.set)
        tasks = [asyncio.create_task(self._consume(role)) for role in self._spec.roles]
        await asyncio.wait([*tasks, asyncio.create_task(self.ending.wait())], return_when=FIRST_COMPLETED)
        _, waiting = await asyncio.wait(tasks, timeout=_LEAVE_S, return_when=FIRST_EXCEPTION)
        for task in waiting:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _consume(self, role: Role) -> None:
        if role.settle == "second":
            receiver = SecondReceiver(self._spec.urls, role, self._journal)
            receiver.start()
            await self.ending.wait()
            await asyncio.to_thread(receiver.stop)
            return
        while not self.ending.is_set():
            try:
                async with self._client(role) as client:
                    await self._attached(client, role)
            except (AmqpStreamsError, TimeoutError) as error:
                self._journal.note("error", role, f"{type(error).__name__}: {error}"[:300])
                if role.kind == "claimant":
                    await self._wait(self._random.uniform(*_HELD_S))
                await self._wait(_AGAIN_S)

    def _client(self, role: Role) -> Client:
        retry = RetryPolicy(
            attempts_max=1 << 30, elapsed_max_ms=1 << 40, wait_max_ms=1000, first_connect=True
        )
        return connect(
            self._spec.urls, retry=retry, idle_timeout_ms=IDLE_MS, timeout=10.0, container_id=role.name
        )

    async def _attached(self, client: Client, role: Role) -> None:
        if role.kind == "member":
            settle: Literal["auto", "manual"] = "auto" if role.settle == "auto" else "manual"
            async with client.group_consumer(role.log, role.group, settle=settle) as member:
                await self._receive(member, role)
            return
        claim = role.kind == "claimant"
        consumer = client.consumer(
            role.log,
            start=EARLIEST,
            settle="auto" if role.settle == "auto" else "manual",
            durable=role.key.rpartition(" ")[2] if not claim else f"claim-{role.partition}",
            group=role.group if claim else None,
            partition=role.partition if claim else None,
            # Grows without an agreement between the claimants.
            epoch=boot_us() // 1000 if claim else None,
        )
        async with consumer:
            await self._receive(consumer, role)

    async def _receive(self, consumer: Consumer | GroupConsumer, role: Role) -> None:
        while not self.ending.is_set():
            events = await consumer.receive(_TURN, timeout=0.3)
            found = self._journal.events(role, events)
            if role.settle == "auto":
                continue
            for partition, each in found.items():
                # Not in their order: the cursor may pass none that is not settled.
                half = len(each) // 2
                for part in (each[half:], each[:half]):
                    if part:
                        offsets = [event.offset for event in part]
                        self._journal.note("settles", role, partition, offsets)
                        consumer.settle(part)
                        await asyncio.sleep(0)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ending.wait()


if __name__ == "__main__":
    asyncio.run(Process(Spec.of(sys.argv[2]), Journal(Path(sys.argv[1]))).run())
