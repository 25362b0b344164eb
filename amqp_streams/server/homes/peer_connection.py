"""[io] One connection between nodes, on either side: frames in, the newest message of each bucket out.

Laws: one frame is read or written in an iteration of the loop, so that a large message delays no other work.
What waits to be sent is bounded: the buffer of the socket, the parts of one message, one message for each
bucket, and `SAID_MAX` changes or outcomes, which are sent once and in their order. Inquiries and descriptions
are sent only when nothing else waits, and so few of them in a second that the other node reads the rest
without delay. A connection ends when the other node does not prove that it is one, sends what does not follow
the protocol, is silent, or does not read. The callbacks are called from the loop, `on_end` exactly once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, cast

import structlog

from amqp_streams.homes.messages import Answer, Asked, Description, Inquiry, Outcome, Report
from amqp_streams.homes.protocol import answers, changes, descriptions, frames, reports
from amqp_streams.homes.protocol.dialogue import Dialogue, RefusedError, Role, refused
from amqp_streams.homes.protocol.frames import FRAME_BYTES_MAX, Frame, FrameError, Kind, Splitter
from amqp_streams.homes.protocol.parts import Unfinished
from service_parts.networks import format_address, is_loopback

HELLO_S: Final = 5.0
"""How long the other node may take to prove that it is one."""
SILENCE_S: Final = 5.0
"""How long it may send nothing, or read nothing of what waits. Time in which this node did not run is not
counted.
"""
BEAT_S: Final = 1.0
"""A node that has sent nothing for this long sends a frame BEAT."""
FRAMES_A_SECOND: Final = 1000
"""A node that sends more is not read until the second is over."""
BYTES_A_SECOND: Final = 16 << 20
UNSENT_BYTES_MAX: Final = 64 << 10
"""While more than this waits in the buffer of the socket, nothing is added to it."""
SAID_MAX: Final = 64
"""Changes or outcomes that wait. A node that asks for more without reading the outcomes is cut."""

INQUIRED_MAX: Final = 8
"""Inquiries or descriptions that wait. Further ones are not sent: no request waits for them for long."""
INQUIRED_FRAMES_A_SECOND: Final = FRAMES_A_SECOND // 4
"""Frames of inquiries or descriptions that are sent in a second: reports and answers need the others."""
INQUIRED_BYTES_A_SECOND: Final = BYTES_A_SECOND // 4

log = structlog.get_logger("amqp_streams.server")

State = Report | Answer
"""The newest one of a bucket counts."""
Message = State | Asked | Outcome | Inquiry | Description
MakeDialogue = Callable[[bytes], Dialogue]
"""`certificate`: of the other node, in DER; empty without TLS."""


class PeerConnection(asyncio.Protocol):
    """`secure`: it uses TLS; without it, the other node must have a loopback address.

    `unfinished`, `inquired`: the messages of all connections in this direction of which parts are missing:
    reports or answers, and inquiries or descriptions.

    `on_open`: both nodes have proved. `on_message`: a report, a change or an inquiry came (at the called
    node), or an answer, an outcome or a description (at the caller). `on_end`: why it ended, and whether the
    other node was refused, or refused this one.
    """

    def __init__(
        self,
        role: Role,
        make_dialogue: MakeDialogue,
        *,
        secure: bool,
        unfinished: Unfinished,
        inquired: Unfinished,
        on_open: Callable[["PeerConnection"], None],
        on_message: Callable[["PeerConnection", Message], None],
        on_end: Callable[["PeerConnection", Exception], None],
    ) -> None:
        self.peer = "?"
        self.process = ""
        """The id of the other process, once it has proved."""
        self.open = False
        self._role: Final = role
        self._make_dialogue: Final = make_dialogue
        self._secure: Final = secure
        self._on_open: Final = on_open
        self._on_message: Final = on_message
        self._on_end: Final = on_end
        self._loop: Final = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._dialogue: Dialogue | None = None
        self._reason: Exception | None = None
        """Why this side ends the connection."""
        self._splitter: Final = Splitter()
        self._reports: Final = reports.Reports(unfinished)
        self._answers: Final = answers.Answers(unfinished)
        self._inquiries: Final = descriptions.Inquiries(inquired)
        self._descriptions: Final = descriptions.Descriptions(inquired)
        self._reading: asyncio.Handle | None = None
        """The next iteration that reads; the socket is not read until then."""
        self._second = 0.0
        self._frames = self._bytes = 0
        self._waiting: Final[dict[int, State]] = {}
        self._said: Final[deque[tuple[Kind, bytes]]] = deque()
        self._bodies: Iterator[bytes] | None = None
        """The rest of the message that is being sent."""
        self._inquired: Final[deque[Iterator[bytes]]] = deque()
        """The parts of inquiries or descriptions that wait."""
        self._kinds: Final = (
            (Kind.REPORT, Kind.INQUIRY) if role is Role.CALLER else (Kind.ANSWER, Kind.DESCRIPTION)
        )
        self._inquired_since = 0.0
        self._inquired_frames = self._inquired_bytes = 0
        """Sent in the second since then."""
        self._pause: asyncio.TimerHandle | None = None
        """Until inquiries or descriptions are sent again."""
        self._full = False
        self._writing: asyncio.Handle | None = None
        self._written = 0
        self._age_s = self._silent_s = self._quiet_s = self._stuck_s = 0.0
        self._left: tuple[int, int] = (0, 0)
        """Bytes that were written, and those of them that the socket had not taken, at the last tick."""

    @property
    def waiting(self) -> int:
        """How many messages wait, without the one that is being sent."""
        return len(self._waiting)

    def takes(self, what: str) -> bool:
        """Whether the other node, which has proved, takes CHANGES or INQUIRIES: earlier versions do not."""
        return self._dialogue is not None and what in self._dialogue.takes

    def say(self, message: Asked | Outcome) -> None:
        """Send a change or an outcome soon."""
        if self._reason is not None:
            return
        if len(self._said) >= SAID_MAX:
            self.end(ConnectionError("the other node does not read the outcomes of the changes it asks for"))
            return
        self._said.append(
            (Kind.ASKED, changes.asked_body(message))
            if isinstance(message, Asked)
            else (Kind.OUTCOME, changes.outcome_body(message))
        )
        self._write_soon()

    def inquire(self, message: Inquiry | Description) -> None:
        """Send an inquiry or a description when nothing else waits."""
        if self._reason is not None or len(self._inquired) >= INQUIRED_MAX:
            return
        self._inquired.append(
            descriptions.inquiry_parts(message)
            if isinstance(message, Inquiry)
            else descriptions.description_parts(message)
        )
        self._write_soon()

    def post(self, message: State) -> None:
        """Send a message soon. It replaces one of the same bucket that waits."""
        if self._reason is None:
            self._waiting[message.bucket] = message
            self._write_soon()

    def end(self, reason: Exception) -> None:
        """Close the connection. A refused node gets the reason."""
        if self._reason is not None:
            return
        self._reason = reason
        self.open = False
        self._waiting.clear()
        self._said.clear()
        self._inquired.clear()
        self._bodies = None
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if isinstance(reason, RefusedError) and not reason.remote:
            transport.write(refused(reason.reason))
            transport.close()  # `tick` cuts it if the other node does not read
        else:
            transport.abort()

    def abort(self) -> None:
        """Close the connection at once, whatever waits."""
        self.end(ConnectionError("this node closed the connection"))
        if self._transport is not None:
            self._transport.abort()

    def tick(self, elapsed_s: float) -> None:
        """Called several times a second, with the time in which this node ran."""
        transport = self._transport
        if transport is None:
            return
        self._age_s += elapsed_s
        self._silent_s += elapsed_s
        self._quiet_s += elapsed_s
        unsent = transport.get_write_buffer_size()
        written, before = self._left
        self._stuck_s = (
            self._stuck_s + elapsed_s if unsent and unsent >= before + self._written - written else 0.0
        )
        self._left = self._written, unsent
        if self._reason is not None:
            if self._stuck_s > SILENCE_S:
                transport.abort()
        elif not self.open and self._age_s > HELLO_S:
            self.end(TimeoutError(f"the other node did not prove in {HELLO_S:.0f} s that it is one"))
        elif self._silent_s > SILENCE_S:
            self.end(TimeoutError(f"the other node sent nothing for {SILENCE_S:.0f} s"))
        elif self._stuck_s > SILENCE_S:
            self.end(TimeoutError(f"the other node read nothing for {SILENCE_S:.0f} s"))
        elif self.open and self._quiet_s > BEAT_S and not unsent:
            self._send(frames.encoded(Kind.BEAT, b"{}"))

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the dialogue."""
        # uvloop's transport has the methods of asyncio.Transport, but does not inherit from it.
        self._transport = transport = cast("asyncio.Transport", transport)
        if self._reason is not None:  # ended between accept and this call
            transport.abort()
            return
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        host, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
        self.peer = format_address(host, port)
        if not self._secure and not is_loopback(host):
            self.end(not_secure(host))
            return
        tls = transport.get_extra_info("ssl_object")
        self._dialogue = self._make_dialogue((tls.getpeercert(binary_form=True) if tls else None) or b"")
        for data in self._dialogue.begin():
            self._send(data)

    def data_received(self, data: bytes) -> None:
        """Read the next frame."""
        self._silent_s = 0.0
        self._bytes += len(data)
        self._splitter.feed(data)
        if self._reading is None:
            self._read()

    def pause_writing(self) -> None:
        """The buffer of the socket is full."""
        self._full = True

    def resume_writing(self) -> None:
        """The buffer of the socket has room."""
        self._full = False
        self._write_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """Say why the connection has ended."""
        self._transport = None
        for handle in (self._reading, self._writing, self._pause):
            if handle is not None:
                handle.cancel()
        lost = exc or ConnectionError("the other node closed the connection")
        reason, self._reason = self._reason or lost, self._reason or lost
        self.open = False
        self._waiting.clear()
        self._said.clear()
        self._inquired.clear()
        for parts in (self._reports, self._answers, self._inquiries, self._descriptions):
            parts.give_up()
        self._on_end(self, reason)

    # -- reading

    def _read(self) -> None:
        """Take one frame."""
        self._reading = None
        if self._reason is not None or self._transport is None:
            return
        now = self._loop.time()
        if now - self._second >= 1:
            self._second, self._frames, self._bytes = now, 0, 0
        try:
            frame = self._splitter.next()
            if frame is not None:
                self._take(frame)
        except (FrameError, RefusedError) as error:
            self.end(error)
        except Exception as error:
            log.exception("node_connection_failed", peer=self.peer)
            self.end(error)
        # The callbacks can end the connection as well.
        if self._transport is None or self._transport.is_closing():
            return
        if self._frames >= FRAMES_A_SECOND or self._bytes >= BYTES_A_SECOND:
            self._transport.pause_reading()
            self._reading = self._loop.call_later(max(0.0, self._second + 1 - now), self._read)
        elif frame is not None and self._splitter.has_bytes:
            self._transport.pause_reading()
            self._reading = self._loop.call_soon(self._read)
        else:
            self._transport.resume_reading()

    def _take(self, frame: Frame) -> None:
        self._frames += 1
        if not self.open:
            self._introduce(frame)
        elif frame.kind == Kind.REFUSED or (frame.kind in {Kind.HELLO, Kind.PROOF}):
            message = f"a frame {Kind(frame.kind).name.lower()} cannot come after both nodes have proved"
            raise FrameError(message)
        elif frame.kind in set(Kind) - {Kind.BEAT}:
            self._take_message(frame)

    def _introduce(self, frame: Frame) -> None:
        dialogue = self._dialogue
        assert dialogue is not None, "bytes come after the connection was made"
        for data in dialogue.take(frame):
            self._send(data)
        if dialogue.done and dialogue.peer is not None:
            self.open, self.process = True, dialogue.peer.process
            self._splitter.bytes_max = FRAME_BYTES_MAX
            self._on_open(self)
            self._write_soon()

    def _take_message(self, frame: Frame) -> None:
        taken: Message | None
        match frame.kind:
            case Kind.REPORT if self._role is Role.CALLED:
                taken = report = self._reports.take(frame.body)
                if report is not None and report.node != self.process:
                    message = "report.node must be the process that sent the report"
                    raise FrameError(message)
            case Kind.ASKED if self._role is Role.CALLED:
                taken = changes.asked_of(frame.body)
                if isinstance(taken, Outcome):
                    self.say(taken)
                    return
            case Kind.INQUIRY if self._role is Role.CALLED:
                taken = self._inquiries.take(frame.body)
            case Kind.DESCRIPTION if self._role is Role.CALLER:
                taken = self._descriptions.take(frame.body)
            case Kind.ANSWER if self._role is Role.CALLER:
                taken = self._answers.take(frame.body)
            case Kind.OUTCOME if self._role is Role.CALLER:
                taken = changes.outcome_of(frame.body)
            case kind:
                message = f"a frame {Kind(kind).name.lower()} cannot come from the other side"
                raise FrameError(message)
        if taken is not None:
            self._on_message(self, taken)

    # -- writing

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self._written += len(data)
            self._quiet_s = 0.0

    def _write_soon(self) -> None:
        if self.open and not self._full and self._writing is None:
            if self._said or self._waiting or self._bodies:
                self._writing = self._loop.call_soon(self._write)
            elif self._inquired and self._pause is None:
                self._writing = self._loop.call_soon(self._write_inquired)

    def _write(self) -> None:
        """Send the next part."""
        self._writing = None
        if not self.open or self._full:
            return
        if self._said:
            self._send(frames.encoded(*self._said.popleft()))
            self._write_soon()
            return
        if self._bodies is None and self._waiting:
            # The one that waits longest.
            message = self._waiting.pop(next(iter(self._waiting)))
            self._bodies = reports.parts(message) if isinstance(message, Report) else answers.parts(message)
        if self._bodies is not None and not self._write_part(self._kinds[0], self._bodies):
            self._bodies = None
        self._write_soon()

    def _write_inquired(self) -> None:
        """Send the next part of an inquiry or a description, unless something else waits by now."""
        self._writing = None
        if self._said or self._waiting or self._bodies:
            self._write()
            return
        if not self.open or self._full or not self._inquired:
            return
        now, before = self._loop.time(), self._written
        if now - self._inquired_since >= 1:
            self._inquired_since, self._inquired_frames, self._inquired_bytes = now, 0, 0
        frames_left = self._inquired_frames < INQUIRED_FRAMES_A_SECOND
        if not (frames_left and self._inquired_bytes < INQUIRED_BYTES_A_SECOND):
            self._pause = self._loop.call_at(self._inquired_since + 1, self._continue)
            return
        if not self._write_part(self._kinds[1], self._inquired[0]):
            self._inquired.popleft()
        self._inquired_frames += 1
        self._inquired_bytes += self._written - before
        self._write_soon()

    def _continue(self) -> None:
        self._pause = None
        self._write_soon()

    def _write_part(self, kind: Kind, bodies: Iterator[bytes]) -> bool:
        """Send the next part of a message. Returns False after the last one."""
        body = next(bodies, None)
        if body is None:
            return False
        if len(body) >= FRAME_BYTES_MAX:
            log.error("node_message_too_large", peer=self.peer, bytes=len(body), limit=FRAME_BYTES_MAX)
            return False
        self._send(frames.encoded(kind, body))
        return True


def not_secure(host: str) -> ConnectionError:
    """The error for a node at another machine, without TLS."""
    return ConnectionError(
        f"{host} is not a loopback address, and this node has no certificate for other nodes: set"
        " node.certificate, node.key and node.ca"
    )
