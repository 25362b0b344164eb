"""A node that writes down what it does with links in groups: `python -m bench.brokers.groups.traced_node`.

    python -m bench.brokers.groups.traced_node TRACE serve ...

It is the program `amqp-streams`, with one line of JSON in the file TRACE for each grant, write and end of a
link that a home decides about, and for each bucket that it serves. Times are readings of CLOCK_BOOTTIME in
microseconds: all processes of a machine read the same clock.

SIGUSR1 makes it stop (SIGSTOP) the next time that it may write to a link, before the write. SIGUSR2 makes it
stop when it has written the records of a transaction and not yet committed them.
"""

import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from amqp_streams import cli
from amqp_streams.homes import reporting
from amqp_streams.homes.bucket import Phase
from amqp_streams.kafka.sharing.producing import TransactionalProducer
from amqp_streams.server.homes.home_shell import HomeShell
from amqp_streams.server.homes.link_shell import LinkShell
from amqp_streams.server.links.consumer import ConsumerLink
from amqp_streams.streams.groups.claims import Wanted

if TYPE_CHECKING:
    from amqp_streams.streams.consuming.reader import Run


_SOON_S: Final = 1.5
"""A request to stop is forgotten after this time."""


def boot_us() -> int:
    """CLOCK_BOOTTIME in microseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def key_of(wanted: Wanted) -> str:
    """What a link shares with those that came before it: its group, or its container and name."""
    if wanted.claim is not None and wanted.claim.group is not None:
        return f"group {wanted.claim.group}"
    return f"link {wanted.container} {wanted.link}"


class Trace:
    """The file. `asked`: by link, when it was last allowed to write."""

    def __init__(self, path: str) -> None:
        self._descriptor: Final = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.asked: Final[dict[int, int]] = {}
        self.keys: Final[dict[int, tuple[str, str]]] = {}
        self.served: dict[int, int] = {}
        self._wanted: dict[str, float] = {}

    def note(self, kind: str, *fields: object) -> None:
        """Write a line. A process that is killed has written all lines before."""
        os.write(self._descriptor, json.dumps([kind, *fields]).encode() + b"\n")

    def stop_at(self, where: str) -> None:
        """Stop there, if the process comes there soon."""
        self._wanted[where] = time.monotonic() + _SOON_S

    def stop_here(self, where: str, what: object) -> None:
        """Stand still until SIGCONT, if that is wanted."""
        if time.monotonic() < self._wanted.pop(where, 0.0):
            self.note("stop", boot_us(), where, what)
            os.kill(os.getpid(), signal.SIGSTOP)


def watch_links(trace: Trace) -> None:
    """Note what `LinkShell` is asked, and what it does."""
    attach, may_send, carry_out = LinkShell.attach, LinkShell.may_send, LinkShell._carry_out

    def attached(shell: LinkShell, wanted: Wanted) -> int:
        number = attach(shell, wanted)
        trace.keys[number] = key_of(wanted), wanted.container
        return number

    def asked(shell: LinkShell, number: int) -> bool:
        # Before the question: a time that is too early finds less, and accuses nobody.
        at_us = boot_us()
        allowed = may_send(shell, number)
        if allowed:
            trace.asked[number] = at_us
            trace.stop_here("write", number)
        return allowed

    def carried_out(shell: LinkShell, effect: reporting.Effect) -> None:
        at_us = boot_us()
        match effect:
            case reporting.Granted(number, partition, epoch, positions):
                key, container = trace.keys[number]
                trace.note("grant", at_us, number, key, container, partition, epoch, positions)
            case reporting.Denied(number, error) | reporting.Closed(number, error):
                trace.note("end", at_us, number, error.condition)
            case reporting.Leave(number):
                trace.note("leave", at_us, number)
            case _:
                pass
        carry_out(shell, effect)

    LinkShell.attach = attached  # type: ignore[method-assign, assignment]  # a trace
    LinkShell.may_send = asked  # type: ignore[method-assign, assignment]  # a trace
    LinkShell._carry_out = carried_out  # type: ignore[method-assign, assignment]  # a trace


def watch_writes(trace: Trace) -> None:
    """Note each write, and whether the link was closed because its grant had ended."""
    detach, wrote, send = reporting.Reporting.detach, reporting.Reporting.wrote, ConsumerLink._send

    def detached(self: reporting.Reporting, number: int, now_ms: int) -> None:
        trace.note("end", boot_us(), number, None)
        trace.asked.pop(number, None)
        detach(self, number, now_ms)

    def written(self: reporting.Reporting, number: int, now_ms: int) -> None:
        asked_us = trace.asked.get(number, 0)
        wrote(self, number, now_ms)
        link = self._links.get(number)
        trace.note("wrote", asked_us, number, now_ms, link is None or link.gone)

    def sent(link: ConsumerLink, run: "Run") -> None:
        number = link.grant.number
        if number is not None:
            chunk, stop_at = run.chunk, run.start + run.count
            first, last = chunk.number(run.start), chunk.number(stop_at - 1)
            trace.note("send", trace.asked.get(number, 0), number, run.partition.index, first, last)
        send(link, run)

    reporting.Reporting.detach = detached  # type: ignore[method-assign]  # a trace
    reporting.Reporting.wrote = written  # type: ignore[method-assign]  # a trace
    ConsumerLink._send = sent  # type: ignore[method-assign, assignment]  # a trace


def watch_homes(trace: Trace) -> None:
    """Note from when to when this node is the home of a bucket, to 50 ms."""
    tick, end = HomeShell.tick, TransactionalProducer.end

    def ticked(shell: HomeShell) -> None:
        tick(shell)
        at_us = boot_us()
        served = {
            number: bucket.record.term
            for number, bucket in shell.home.buckets.items()
            if bucket.phase is Phase.SERVING and at_us // 1000 < bucket.lease_end_ms
        }
        for bucket, term in served.items() - trace.served.items():
            trace.note("serves", at_us, bucket, term)
        for bucket in trace.served.keys() - served.keys():
            trace.note("rests", at_us, bucket)
        trace.served = served

    def ended(producer: TransactionalProducer, until: float) -> Any:
        trace.stop_here("transaction", producer._named)
        return end(producer, until)

    HomeShell.tick = ticked  # type: ignore[method-assign, assignment]  # a trace
    TransactionalProducer.end = ended  # type: ignore[method-assign, assignment]  # a trace


def main() -> None:
    """Run the program with its trace."""
    trace = Trace(sys.argv[1])
    trace.note("process", boot_us(), os.getpid())
    watch_links(trace)
    watch_writes(trace)
    watch_homes(trace)
    signal.signal(signal.SIGUSR1, lambda *_: trace.stop_at("write"))
    signal.signal(signal.SIGUSR2, lambda *_: trace.stop_at("transaction"))
    sys.argv = ["amqp-streams", *sys.argv[2:]]
    cli.main()


if __name__ == "__main__":
    main()
