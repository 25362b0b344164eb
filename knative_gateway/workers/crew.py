"""[io] The worker processes: carries out what `Supervision` decides, and passes messages between workers."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from knative_gateway.running.channel import Channel, Message
from knative_gateway.workers.gathering import Gathering
from knative_gateway.workers.supervision import Effect, GiveUp, Kill, Lead, Start, Supervision
from service_parts.children import die_with

BEAT_S: Final = 1.0
"""How often the parent sends the state of all workers even if it did not change."""

log = structlog.get_logger("knative_gateway.workers")


class Crew(Collector):
    """All workers of a gateway, from `start` to `stop`."""

    def __init__(
        self,
        workers: int,
        settings: Callable[[], bytes],
        *,
        inherited: Sequence[int] = (),
        files: Mapping[str, Sequence[int]] | None = None,
        about: Callable[[int], bytes] = lambda _restarts: b"",
        supervision: Supervision | None = None,
    ) -> None:
        """`settings` returns the settings of a worker that is started now. `inherited`: descriptors that
        workers keep open. `files`: the files of the state database. `about` returns what the parent knows
        about the gateway, given how often workers were started again.
        """
        self.ready: Final = asyncio.Event()
        """Set when all workers are ready for the first time."""
        self.gave_up: Final[asyncio.Future[GiveUp]] = asyncio.get_running_loop().create_future()
        """Done when the first worker cannot start."""
        self._count: Final = workers
        self._settings: Final = settings
        self._inherited: Final = tuple(inherited)
        self._files: Final = files or {}
        self._about: Final = about
        self._supervision: Final = supervision or Supervision(workers)
        self.gathering: Final = Gathering(self)
        self._channels: Final[dict[int, Channel]] = {}
        self._processes: Final[dict[int, asyncio.subprocess.Process]] = {}
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._state: tuple[str | None, str | None] = "", None
        self._wake: Final = asyncio.Event()
        self._stopping = False
        self._clean = True
        self.gathering.registry.register(self)

    # -- what others call

    def start(self) -> None:
        """Start the workers."""
        self._keep(self._clock())
        self._do(self._supervision.begin(self._now()))

    async def stop(self, limit_s: float) -> bool:
        """Stop all workers in order. Those that still run after `limit_s` are killed. Returns whether all
        workers stopped in order.
        """
        self._stopping = True
        for process in self._processes.values():
            _send(process, signal.SIGTERM)
        latest = self._now() + limit_s
        while self._processes and self._now() < latest:  # noqa: ASYNC110  several tasks end them
            await asyncio.sleep(0.02)
        for number, process in self._processes.items():
            log.error("worker_killed", worker=number, reason="it did not stop in time")
            self._clean = False
            _send(process, signal.SIGKILL)
        while self._processes:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return self._clean

    def reload(self, settings: bytes) -> None:
        """Send new settings to all workers."""
        for channel in self._channels.values():
            channel.send("reload", settings)

    def ask(self) -> Sequence[int]:
        """Ask all workers for their metrics. Returns those that will answer: not those that hang."""
        late = self._supervision.late(self._now())
        for channel in self._channels.values():
            channel.offer("collect")
        return [number for number in self._channels if number not in late]

    def answer(self, worker: int, text: bytes) -> None:
        """Send a worker the metrics of all."""
        if worker in self._channels:
            self._channels[worker].send("figures", text)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics about the workers."""
        restarts = CounterMetricFamily(
            "knative_gateway_worker_restarts", "Workers that ended and were started again.", labels=["worker"]
        )
        for number, count in enumerate(self._supervision.restarts):
            restarts.add_metric([str(number)], count)
        yield restarts
        words = "Worker processes that run."
        yield GaugeMetricFamily("knative_gateway_workers", words, float(self._supervision.running))
        words = "Worker processes that the settings ask for."
        yield GaugeMetricFamily("knative_gateway_workers_wanted", words, float(self._count))

    # -- effects

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start(number, leads):
                    self._keep(self._run(number, leads=leads))
                case Lead(number) if number in self._channels:
                    log.info("worker_leads", worker=number)
                    self._channels[number].send("lead")
                case Kill(number) if number in self._processes:
                    log.error("worker_killed", worker=number, reason="it does not answer")
                    _send(self._processes[number], signal.SIGKILL)
                case GiveUp() if not self.gave_up.done():
                    self.gave_up.set_result(effect)
                case _:
                    pass
        self._tell()
        self._wake.set()

    async def _run(self, number: int, *, leads: bool) -> None:
        """Run one worker from its start to its end."""
        status = -signal.SIGKILL
        try:
            if not self._stopping:
                status = await self._lived(number, leads=leads)
        except OSError as error:
            # Without memory or descriptors. Like a worker that ends at once.
            log.error("worker_not_started", worker=number, reason=str(error))
        if self._stopping:
            self._clean = self._clean and status == 0
            return
        log.error("worker_ended", worker=number, status=status)
        self._do(self._supervision.ended(number, status, self._now()))

    async def _lived(self, number: int, *, leads: bool) -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "knative_gateway.workers.process", str(theirs.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    # The stdout of the gateway is for data.
                    stdout=sys.stderr.fileno(),
                    pass_fds=(theirs.fileno(), *self._inherited),
                    # An interrupt at the terminal must not end the workers: the parent stops them in order.
                    start_new_session=True,
                    # SIGKILL: an orphan would hold the port and the state database against the next gateway.
                    preexec_fn=die_with(os.getpid(), signal.SIGKILL),
                )
            except BaseException:
                ours.close()
                raise
        self._processes[number] = process
        channel = self._channels[number] = await Channel.open(ours)
        log.info("worker_started", worker=number, pid=process.pid)
        channel.send("boot", self._settings(), worker=number, leads=leads, files=self._files)
        if self._stopping:
            _send(process, signal.SIGTERM)
        self._tell(again=True)
        try:
            await self._listen(number, channel)
            return await process.wait()
        finally:
            channel.close()
            del self._channels[number], self._processes[number]
            self.gathering.ended(number)

    async def _listen(self, number: int, channel: Channel) -> None:
        """Take the messages of a worker until it closes its end."""
        while (message := await channel.receive()) is not None:
            self._take(number, message)

    def _take(self, number: int, message: Message) -> None:
        match message.kind:
            case "report":
                problem, is_up = message.fields["problem"], message.fields["up"]
                self._do(self._supervision.reported(number, problem, up=is_up, now_s=self._now()))
                if self._supervision.problem(self._now()) is None:
                    self.ready.set()
            case "failed":
                self._supervision.failed(number, message.fields["reason"], self._now())
            case "wrote":
                for other, channel in self._channels.items():
                    if other != number:
                        channel.offer("wrote")
            case "ask":
                self._keep(self.gathering.asked(number))
            case "figures":
                self.gathering.came(number, message.payload)
            case "inquire":
                self._inquire(number)
            case "vitals" if (asking := self._channels.get(message.fields["to"])) is not None:
                asking.send("vitals", message.payload, worker=number)

    def _inquire(self, number: int) -> None:
        """A worker wants to know how all are: the parent passes on what they say."""
        about = self._about(sum(self._supervision.restarts))
        self._channels[number].send("about", about, workers=list(self._channels))
        for channel in self._channels.values():
            channel.offer("examine", to=number)

    # -- regular work

    async def _clock(self) -> None:
        # Outside of the loop: the reports of workers wake it more often than the beat.
        beat_s = self._now() + BEAT_S
        while True:
            self._wake.clear()
            due_s = beat_s if self._stopping else min(self._supervision.next_s or beat_s, beat_s)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._wake.wait()
            if self._now() >= beat_s:
                beat_s = self._now() + BEAT_S
                self._tell(again=True)
            if not self._stopping:
                self._do(self._supervision.tick(self._now()))

    def _tell(self, *, again: bool = False) -> None:
        """Send the state of the gateway to all workers: when it has changed, or `again`."""
        now_s = self._now()
        state = self._supervision.problem(now_s), self._supervision.trouble(now_s)
        if again or state != self._state:
            self._state = state
            for channel in self._channels.values():
                channel.offer("state", problem=state[0], trouble=state[1])

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    # The process may have ended, and its end may not be known yet.
    if process.returncode is None:
        process.send_signal(number)
