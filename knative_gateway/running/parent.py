"""[io] What a worker process of a gateway has in common with the other workers, through their parent process.

A gateway with one worker has no parent: `Alone` stands for it.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from knative_gateway.errors import GatewayError, UnavailableError
from knative_gateway.running.channel import Channel, Message

LOOK_S: Final = 0.1
"""How often a worker looks whether it is ready. A change is reported at once."""
BEAT_S: Final = 1.0
"""A worker reports this often even if nothing changed, and the parent answers."""
SILENT_S: Final = 15.0
"""A parent that has not answered for this time is a problem."""
FIGURES_S_MAX: Final = 10.0
"""How long a worker waits for the metrics of all workers."""
INQUIRY_S_MAX: Final = 3.0
"""How long a worker waits for what the others know about themselves."""
WORDS_MAX: Final = 1_000
"""Characters of a problem that are sent to other processes."""


class Told(NamedTuple):
    """What the parent and the workers say about themselves, packed. `silent`: workers that did not answer."""

    about: bytes
    vitals: Sequence[bytes]
    silent: Sequence[int]


@dataclass(slots=True)
class _Inquiry:
    """One that has begun. `awaited`: workers whose answers are missing; None: the parent has not said."""

    done: asyncio.Event = field(default_factory=asyncio.Event)
    about: bytes = b""
    awaited: set[int] | None = None
    vitals: dict[int, bytes] = field(default_factory=dict)

    def look(self) -> None:
        if self.awaited is not None and self.awaited <= self.vitals.keys():
            self.done.set()


class Member(Protocol):
    """The gateway in a worker process, as its parent needs it."""

    @property
    def is_up(self) -> bool:
        """Whether all parts have started."""

    def missing(self) -> str | None:
        """Return why this worker is not ready; None if it is."""

    async def packed(self) -> bytes:
        """Return the metrics of this worker, packed."""

    async def vitals(self) -> bytes:
        """Return what this worker knows about itself, packed."""

    def lead(self) -> None:
        """Lead from now on."""

    def notice(self) -> None:
        """Another worker has written objects."""

    def reload(self) -> None:
        """Read settings, certificates, tokens and rules again."""


class Alone:
    """The only process of a gateway."""

    several = False
    leads = True
    first = True
    files = None
    problem: str | None = None
    trouble: str | None = None

    def wrote(self) -> None:
        """Do nothing: other workers do not exist."""

    def failed(self, error: Exception) -> None:
        """Do nothing: the process ends with the error."""


class ParentLink:
    """A worker's link to its parent. Use it with `async with` after `join`.

    - `several`: whether other workers exist.
    - `leads`: whether this worker is the leader.
    - `first`: whether this worker is the first one since the gateway was started.
    - `problem`: why the gateway as a whole is not ready.
    - `number`: of this worker.
    """

    several = True

    def __init__(
        self,
        end: socket.socket,
        *,
        leads: bool,
        settings: bytes,
        number: int = 0,
        words: Callable[[str], str] = str,
        files: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """`settings`: the settings of this worker. The parent sends them again for a reload. `words` makes
        the text of an error one for users. `files`: the files of the state database, which the parent has
        locked.
        """
        self.files: Final[Mapping[str, Sequence[int]]] = files or {}
        self.number: Final = number
        self.leads = self.first = leads
        self.settings = settings
        self.problem: str | None = "the workers have not reported yet"
        self._words: Final = words
        self._trouble: str | None = None
        self._end: Final = end
        self._channel: Channel | None = None
        self._member: Member | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._figures: asyncio.Future[bytes] | None = None
        self._inquiry: _Inquiry | None = None
        self._heard_s = 0.0

    def join(self, member: Member) -> Self:
        """Name the gateway that this link is of."""
        self._member = member
        return self

    @property
    def trouble(self) -> str | None:
        """Why the gateway as a whole is not healthy; None if it is."""
        silent_s = asyncio.get_running_loop().time() - self._heard_s
        return self._trouble or (
            f"the parent process has not answered for {silent_s:.0f} s" if silent_s > SILENT_S else None
        )

    async def __aenter__(self) -> Self:
        channel = self._channel = await Channel.open(self._end)
        self._heard_s = asyncio.get_running_loop().time()
        self._tasks = [
            asyncio.create_task(self._receive(channel)),
            asyncio.create_task(self._report(channel)),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._channel is not None:
            self._channel.close()

    def wrote(self) -> None:
        """Report that this worker wrote objects, so that the others read them at once."""
        if self._channel is not None:
            self._channel.offer("wrote")

    def failed(self, error: Exception) -> None:
        """Report why this worker cannot start."""
        if self._channel is not None:
            self._channel.send("failed", reason=self._words(str(error))[:WORDS_MAX])

    async def figures(self) -> bytes:
        """Return the text of `/metrics` of all workers.

        Raises:
            UnavailableError: the parent does not answer.
        """
        assert self._channel is not None
        if self._figures is None or self._figures.done():
            self._figures = asyncio.get_running_loop().create_future()
            self._channel.send("ask")
        try:
            async with asyncio.timeout(FIGURES_S_MAX):
                return await asyncio.shield(self._figures)
        except TimeoutError:
            self._figures.cancel()
            message = "the parent process does not answer"
            raise UnavailableError(message) from None

    async def inquire(self) -> Told:
        """Return what the parent and all workers know about themselves. One inquiry at a time.

        Raises:
            UnavailableError: the parent does not answer.
        """
        assert self._channel is not None
        assert self._inquiry is None
        inquiry = self._inquiry = _Inquiry()
        try:
            self._channel.send("inquire")
            with suppress(TimeoutError):
                async with asyncio.timeout(INQUIRY_S_MAX):
                    await inquiry.done.wait()
        finally:
            self._inquiry = None
        if inquiry.awaited is None:
            message = "the parent process does not answer"
            raise UnavailableError(message)
        silent = sorted(inquiry.awaited - inquiry.vitals.keys())
        return Told(inquiry.about, list(inquiry.vitals.values()), silent)

    async def _receive(self, channel: Channel) -> None:
        answering: set[asyncio.Task[None]] = set()
        while (message := await channel.receive()) is not None:
            self._heard_s = asyncio.get_running_loop().time()
            if message.kind in {"collect", "examine"}:
                task = asyncio.create_task(self._answer(channel, message))
                answering.add(task)
                task.add_done_callback(answering.discard)
            else:
                self._take(message)
        # The parent was killed. A worker without it would be an orphan, which nothing stops or restarts. The
        # kernel ends it as well, where it can.
        os._exit(1)

    def _take(self, message: Message) -> None:
        member = self._member
        assert member is not None
        match message.kind:
            case "state":
                self.problem, self._trouble = message.fields["problem"], message.fields["trouble"]
            case "figures" if self._figures is not None and not self._figures.done():
                self._figures.set_result(message.payload)
            case "about" if self._inquiry is not None:
                self._inquiry.about = message.payload
                self._inquiry.awaited = set(message.fields["workers"])
                self._inquiry.look()
            case "vitals" if self._inquiry is not None:
                self._inquiry.vitals[message.fields["worker"]] = message.payload
                self._inquiry.look()
            case "wrote":
                member.notice()
            case "lead":
                self.leads = True
                member.lead()
            case "reload":
                self.settings = message.payload
                member.reload()

    async def _answer(self, channel: Channel, message: Message) -> None:
        assert self._member is not None
        if message.kind == "collect":
            channel.send("figures", await self._member.packed())
        else:
            channel.send("vitals", await self._member.vitals(), to=message.fields["to"])

    async def _report(self, channel: Channel) -> None:
        loop, member = asyncio.get_running_loop(), self._member
        assert member is not None
        last, sent_s = None, 0.0
        while True:
            missing = member.missing()
            state = (None if missing is None else missing[:WORDS_MAX], member.is_up)
            if state != last or loop.time() - sent_s >= BEAT_S:
                last, sent_s = state, loop.time()
                channel.send("report", problem=state[0], up=state[1])
            await asyncio.sleep(LOOK_S)


Parent = Alone | ParentLink
Figures = Callable[[], Awaitable[bytes]]


def raise_error(start: asyncio.Task[None], parent: Parent) -> None:
    """Raise the error of a start that has ended, and report it to the parent process."""
    try:
        start.result()
    except GatewayError as error:
        parent.failed(error)
        raise
