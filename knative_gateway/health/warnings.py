"""What people who run a gateway should look at, each with its remedy. Decides; does no I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from knative_gateway.health.facts import DESCRIPTORS, Gathered
from service_parts.health.warned import (
    NEARLY,
    Warned,
    counted,
    is_nearly_full,
    of_certificate,
    of_descriptors,
    space,
)

STORED_S_MAX: Final = 10.0
"""Positions are stored several times a second. After this time without it, people should know."""
_LIMITS: Final = {
    "connections": (
        "connections from clients",
        "raise limits.connections and the limit of open files, and restart; else close idle connections",
    ),
    "pendingEvents": (
        "events that are not durable yet",
        "nothing if it is short: the log node is slower than the senders. Else use a faster disk for it",
    ),
    "pendingBytes": (
        "bytes of events that are not durable yet",
        "nothing if it is short: the log node is slower than the senders. Else use a faster disk for it",
    ),
    "subscriberConnections": (
        "connections to subscribers",
        "look in the map for subscribers that answer slowly; else raise subscribers.connections and restart",
    ),
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What a gateway knows. Times are in milliseconds since 1970.

    `urls_guessed`: why the URLs of Brokers may not be reachable; None: they are set, or only for this
    machine. `is_open`: other machines can connect, and no client needs a token. `has_plain_tokens`: tokens
    travel without TLS to a listener for other machines. `trusts_all`: certificates of subscribers are not
    checked.
    """

    now_ms: int
    gathered: Gathered
    not_ready: str | None = None
    disk_free: int | None = None
    disk_size: int | None = None
    certificate_expires_ms: int | None = None
    urls_guessed: str | None = None
    is_open: bool = False
    has_plain_tokens: bool = False
    trusts_all: bool = False


def warnings(facts: Facts) -> list[Warned]:
    """Return all warnings, errors first."""
    found = (*_service(facts), *_space(facts), *_limits(facts), *_settings(facts))
    return sorted(found, key=lambda each: not each.is_error)


def _service(facts: Facts) -> Iterator[Warned]:
    gathered, known = facts.gathered, facts.gathered.known
    if facts.not_ready is not None:
        remedy = "see the log of the gateway: docs/knative.md says under Operations what the reasons mean"
        yield Warned("not-ready", f"The gateway is not ready: {facts.not_ready}.", remedy, is_error=True)
    if gathered.silent:
        workers = _named("worker", gathered.silent)
        yield Warned(
            "worker-silent",
            f"The {workers} did not answer: the figures are those of the others.",
            "nothing if it is short: the gateway restarts a worker that hangs. Else see its log",
            is_error=True,
        )
    if known.restarts:
        yield Warned(
            "worker-restarts",
            f"Workers ended and were started again, {counted(known.restarts, 'time', 'times')}.",
            "search the log of the gateway for worker_ended: it has the reason",
        )
    if known.node_starts is not None and known.node_starts > 1:
        yield Warned(
            "node-restarts",
            "The event log node of the gateway ended and was started again,"
            f" {counted(known.node_starts - 1, 'time', 'times')}.",
            "search the log of the gateway for node_died: it has the reason",
        )
    unstored_s = gathered.unstored_s
    if unstored_s is not None and unstored_s > STORED_S_MAX:
        yield Warned(
            "positions",
            f"Positions of subscribers have not been stored for {unstored_s:,.0f} s. After a crash, events of"
            " this time are delivered again.",
            "see cursors_not_stored in the log of the gateway; free space on the disk of the state database",
            is_error=True,
        )


def _space(facts: Facts) -> Iterator[Warned]:
    if facts.disk_free is not None and is_nearly_full(facts.disk_free, facts.disk_size):
        yield Warned(
            "disk",
            f"The disk of the state directory has {space(facts.disk_free)} free of"
            f" {space(facts.disk_size or 0)}.",
            "free space, shorten the retention of logs, or delete a Broker or Channel with its events",
        )
    descriptors = facts.gathered.uses.get(DESCRIPTORS)
    if descriptors is not None:
        yield from of_descriptors(*descriptors)


def _limits(facts: Facts) -> Iterator[Warned]:
    for name, use in facts.gathered.uses.items():
        if name in _LIMITS and use.limit and use.used >= NEARLY * use.limit:
            noun, remedy = _LIMITS[name]
            text = f"{use.used:,} of {use.limit:,} {noun} are in use."
            yield Warned(f"limit-{name}", text, remedy, is_error=use.used >= use.limit)


def _settings(facts: Facts) -> Iterator[Warned]:
    known = facts.gathered.known
    yield from of_certificate(
        facts.certificate_expires_ms,
        facts.now_ms,
        remedy="replace the files of tls.certificate and tls.key, then reload the gateway (SIGHUP)",
    )
    if known.reload_failed is not None:
        yield Warned(
            "reload",
            f"The last reload failed: {known.reload_failed}. The old values are in force.",
            "correct it, then reload again (SIGHUP)",
        )
    if known.restart_needed:
        yield Warned(
            "restart",
            f"Changed settings are not in force yet: {', '.join(known.restart_needed)}.",
            "restart the gateway",
        )
    if facts.is_open:
        yield Warned(
            "no-tokens",
            "Other machines can connect, and every client may read and change everything and send events.",
            "set tokens or jwt, and restart",
        )
    if facts.has_plain_tokens:
        yield Warned(
            "plain-tokens",
            "Tokens of clients on other machines travel without encryption, unless a proxy adds it.",
            "set tls.certificate and tls.key, or let a proxy with TLS be the only way to the listener",
        )
    if facts.trusts_all:
        yield Warned(
            "certificates-not-checked",
            "Certificates of subscribers are not checked: other machines can read and answer deliveries.",
            "set subscribers.ca, and remove subscribers.verify",
        )
    if facts.urls_guessed is not None:
        yield Warned("public-url", f"{facts.urls_guessed}.", "set public_url, and restart")


def _named(noun: str, numbers: Sequence[int]) -> str:
    return f"{noun if len(numbers) == 1 else noun + 's'} {', '.join(map(str, numbers))}"
