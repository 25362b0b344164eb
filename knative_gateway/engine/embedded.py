"""[io] The embedded event log node: `amqp-streams serve` as a child process, which is restarted when it ends.

The node ends with the gateway: the kernel signals the node even if the gateway is killed. It keeps its port
over restarts. Its log lines go to the stderr of the gateway. Its data is in `log` below the state directory.
AMQP_STREAMS_… variables set everything that a flag does not set.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog

from knative_gateway.config import GatewaySettings
from knative_gateway.errors import ConfigError, UnavailableError
from knative_gateway.running.supervising import Supervisor
from service_parts.children import die_with, end_child
from service_parts.settings.choices import LogFormat, LogLevel

START_S_MAX: Final = 120.0
"""Time from start to listening. Recovery after a crash takes time."""
STOP_S_MAX: Final = 30.0
FIRST_WAIT_S: Final = 0.1
WAIT_S_MAX: Final = 2.0
"""The maximum pause before a restart. Together with the time of a start, it is shorter than the time that
senders wait (`limits.append`).
"""
STABLE_S: Final = 5.0
"""A node that ran this long is restarted at once. Longer pauses are for a node that ends at its start."""
FIRST_TRIES: Final = 8
"""Attempts before the first success. An earlier gateway may still lock the data directory."""

MESSAGE_BYTES_MIN: Final = 16 << 20
ATTRIBUTES_BYTES: Final = 1 << 20
"""Bytes of a message for the attributes of an event, in addition to its body."""

_USAGE_ERROR: Final = 2
_READ_BYTES: Final = 4096

log = structlog.get_logger("knative_gateway.engine.embedded")


# A process and not a thread: the node syncs while the gateway evaluates, and neither takes the other down
# (docs/decisions/0010-embedded-node.md).
class EmbeddedNode:
    """The child process. It runs while the `async with` block runs."""

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
        """`message_bytes`: the largest message that the node must accept. `command`: the program of the
        engine.
        """
        self.starts = 0
        self.address = ""
        self._listen = listen
        self._arguments: Final = [
            *command,
            "serve",
            "--data-dir",
            str(data_dir),
            "--log-format",
            log_format,
            "--log-level",
            log_level,
        ]
        # The environment of the user comes last and wins: an operator may raise the limit further.
        self._environment: Final = {"AMQP_STREAMS_LIMITS_MESSAGE_BYTES": str(message_bytes), **os.environ}
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: Final = tasks or Supervisor()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def url(self) -> str:
        """The AMQP URL of the node."""
        return f"amqp://{self.address}"

    @property
    def pid(self) -> int | None:
        """The process id of the child while it runs."""
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Self:
        """Start the node, and wait until it listens.

        Raises:
            ConfigError: a setting is not valid; the log contains the message of the node.
            UnavailableError: the node ended, or did not listen in time.
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the node: SIGTERM, then SIGKILL after STOP_S_MAX."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._end()

    async def _watch(self) -> None:
        """Restart the node whenever it ends."""
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
                # The stdout of the gateway is for data. The node writes only log lines.
                stdout=sys.stderr.fileno(),
                env=self._environment,
                pass_fds=(writing,),
                # An interrupt at the terminal must not end the node before the gateway.
                start_new_session=True,
                preexec_fn=die_with(os.getpid(), signal.SIGTERM),
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
        # From now on with the port that the kernel chose: clients that know the address find the node again
        # after a restart.
        self._listen = self.address = addresses["amqp"][0]
        log.info("node_started", url=f"amqp://{self.address}", pid=self._process.pid)

    async def _end(self) -> None:
        if self._process is not None and not await end_child(self._process, STOP_S_MAX):
            log.warning("node_killed", after_s=STOP_S_MAX)


def embedded_node(settings: GatewaySettings, tasks: Supervisor) -> EmbeddedNode:
    """Return the node that a gateway with these settings starts."""
    return EmbeddedNode(
        settings.state_dir / "log",
        listen=str(settings.amqp_listen),
        message_bytes=max(MESSAGE_BYTES_MIN, settings.limits.body + ATTRIBUTES_BYTES),
        log_format=settings.log_format,
        log_level=settings.log_level,
        tasks=tasks,
    )


async def _ready(descriptor: int, process: asyncio.subprocess.Process) -> Mapping[str, Sequence[str]]:
    """Return the addresses that the node reports when it listens. Closes the descriptor."""
    try:
        async with asyncio.timeout(START_S_MAX):
            line = await _line(descriptor)
            status = None if line else await process.wait()
    except TimeoutError:
        message = f"the event log node does not listen after {START_S_MAX:.0f} s"
        raise UnavailableError(message) from None
    finally:
        os.close(descriptor)
    if status is not None:
        message = f"the event log node ended with status {status} before it listened; its log lines say why"
        raise ConfigError(message) if status == _USAGE_ERROR else UnavailableError(message)
    addresses: Mapping[str, Sequence[str]] = json.loads(line)
    return addresses


async def _line(descriptor: int) -> bytes:
    """Return the first line from a pipe; empty if the pipe ends before."""
    # Without a transport: one of uvloop would close the descriptor as well, and later, when another file may
    # have its number.
    loop, found = asyncio.get_running_loop(), bytearray()
    os.set_blocking(descriptor, False)
    while not found.endswith(b"\n"):
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(descriptor, _wake, readable)
        try:
            await readable
        finally:
            loop.remove_reader(descriptor)
        part = os.read(descriptor, _READ_BYTES)
        if not part:
            return b""
        found += part
    return bytes(found)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
