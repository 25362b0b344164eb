"""[io] An event log node of our own: `amqp-streams serve` as a child process, started again when it dies.

Laws: it never outlives us (the kernel tells it when we are killed), it keeps its port from one life to the next, and its log lines go where
ours go. Its data is in `log` below the state directory. AMQP_STREAMS_… variables set whatever no flag says.
"""

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog

from knative_gateway.errors import ConfigError, UnavailableError
from knative_gateway.running.supervising import Supervisor
from service_parts.settings.choices import LogFormat, LogLevel

START_S_MAX: Final = 120.0
"""From start to listening: it may have to recover what a crash left."""
STOP_S_MAX: Final = 30.0
FIRST_WAIT_S: Final = 0.1
WAIT_S_MAX: Final = 2.0
"""With the time that it takes to start, less than senders are made to wait (`limits.append`)."""
STABLE_S: Final = 5.0
"""One that lived so long is started again at once when it dies; waits are for one that dies of its start."""
FIRST_TRIES: Final = 8
"""Before it has ever listened: the one before us may still be letting go of the data."""

_MISUSE: Final = 2
_PR_SET_PDEATHSIG: Final = 1

log = structlog.get_logger("knative_gateway.engine.embedded")


class EmbeddedNode:
    """The child, from entering `async with` to leaving it."""

    def __init__(
        self,
        data_dir: Path,
        *,
        listen: str = "127.0.0.1:0",
        message_bytes: int = 16 << 20,
        log_format: LogFormat = LogFormat.TEXT,
        log_level: LogLevel = LogLevel.INFO,
        command: Sequence[str] = (sys.executable, "-m", "amqp_streams.cli"),
        tasks: Supervisor | None = None,
    ) -> None:
        """`message_bytes`: the largest message that it must take. `command`: what runs the engine."""
        self.starts = 0
        self.address = ""
        self._listen = listen
        self._arguments: Final = [*command, "serve", "--data-dir", str(data_dir), "--log-format", log_format, "--log-level", log_level]
        self._environment: Final = {"AMQP_STREAMS_LIMITS_MESSAGE_BYTES": str(message_bytes), **os.environ}
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: Final = tasks or Supervisor()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"amqp://{self.address}"

    @property
    def pid(self) -> int | None:
        """Of the child, while it runs."""
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Self:
        """Start it and wait until it listens.

        Raises:
            ConfigError: it does not take what it was given; its words are in the log.
            UnavailableError: it ends, or does not listen in time.
        """
        wait_s = FIRST_WAIT_S
        for attempt in range(FIRST_TRIES):
            try:
                await self._start()
                break
            except UnavailableError as error:
                if attempt + 1 == FIRST_TRIES:
                    raise
                log.warning("node_not_started", reason=str(error), again_in_s=wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_S_MAX)
        self._task = self._supervisor.keep("embedded.watch", self._watch)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop it: SIGTERM, and SIGKILL when it takes longer than STOP_S_MAX."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._end()

    async def _watch(self) -> None:
        """Start it again whenever it ends."""
        loop = asyncio.get_running_loop()
        wait_s = FIRST_WAIT_S
        while True:
            assert self._process is not None
            since = loop.time()
            status = await self._process.wait()
            if loop.time() - since >= STABLE_S:
                wait_s = FIRST_WAIT_S
            while True:
                log.error("node_died", status=status, again_in_s=wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, WAIT_S_MAX)
                try:
                    await self._start()
                    break
                except (ConfigError, UnavailableError, OSError) as error:
                    log.error("node_not_started", reason=str(error))

    async def _start(self) -> None:
        reading, writing = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._arguments,
                *("--listen", self._listen, "--ready-fd", str(writing)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                env=self._environment,
                pass_fds=(writing,),
                start_new_session=True,  # an interrupt at the terminal is for us: it ends after us
                preexec_fn=_die_with(os.getpid()),
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self.starts += 1
        try:
            addresses = await _ready(reading, self._process)
        except BaseException:
            await self._end()
            raise
        self._listen = self.address = addresses["amqp"][0]
        log.info("node_started", url=f"amqp://{self.address}", pid=self._process.pid)

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await process.wait()
        except TimeoutError:
            log.warning("node_killed", after_s=STOP_S_MAX)
            process.kill()
            await process.wait()
        except asyncio.CancelledError:
            process.kill()  # nobody waits for it any more
            raise


async def _ready(descriptor: int, process: asyncio.subprocess.Process) -> Mapping[str, Sequence[str]]:
    """What it says when it listens; the descriptor is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    with os.fdopen(descriptor, "rb") as pipe:
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            async with asyncio.timeout(START_S_MAX):
                line = await reader.readline()
                status = None if line else await process.wait()
        except TimeoutError:
            message = f"the event log node does not listen after {START_S_MAX:.0f} s"
            raise UnavailableError(message) from None
        finally:
            transport.close()
    if status is not None:
        message = f"the event log node ended with status {status} before it listened"
        raise ConfigError(message) if status == _MISUSE else UnavailableError(message)
    addresses: Mapping[str, Sequence[str]] = json.loads(line)
    return addresses


def _die_with(parent: int) -> Callable[[], None] | None:
    """In the child, before it becomes the engine: have the kernel end it when we are gone. Only Linux can."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # loaded here: after the fork as little as can be is done

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask
