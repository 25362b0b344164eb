"""`knative-gateway history`, `pause`, `resume`, `replay`, `redrive`: actions on a Trigger or Subscription."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import click

from knative_gateway.cli.client import Client
from knative_gateway.cli.commands.targets import resource_of, suggesting
from knative_gateway.cli.completion import subscribers
from knative_gateway.cli.options import asks_gateway, namespace_option
from knative_gateway.cli.output import AS_JSON, report
from knative_gateway.cli.starts import FORMS, written_start
from knative_gateway.errors import GatewayError
from knative_gateway.resources.objects import Object, child, entries, number, text
from service_parts.command_line.wording import printable_json

_LOOK_S: Final = 0.2
_OTHERS_MAX: Final = 100
"""Answers of other processes of the gateway in a row, after which the command does not wait any more."""
KINDS: Final = ("Trigger", "Subscription")
_DELIVERIES: Final = "deliveries"


def _of_subscriber(command: Callable[..., int]) -> Callable[..., int]:
    """Add the arguments and flags that all these commands have."""
    return click.argument("subscriber", metavar="[KIND/]NAME", shell_complete=subscribers)(
        namespace_option(asks_gateway(command))
    )


def _asked(
    client: Client, subscriber: str, namespace: str | None, action: str, body: object = None
) -> Object:
    """Ask for an action of a Trigger or Subscription, and return the answer. See `resource_of`."""
    resource, name = resource_of(client, subscriber, namespace, KINDS)
    space = namespace or "default"
    method = "GET" if action == _DELIVERIES else "POST"
    with suggesting(client, resource, space, name):
        return client.ask(method, resource.path(space, name, action), body)[1]


@click.command(short_help="Show the latest failed deliveries of a Trigger or Subscription.")
@click.option("--json", "as_json", is_flag=True, help="Show everything, as one JSON object.")
@_of_subscriber
def history(*, client: Client, subscriber: str, namespace: str | None, as_json: bool) -> int:
    """Show the failed deliveries of a Trigger or Subscription, the latest first.

    The outcome of an event follows an arrow.

    \b
    Example:
      knative-gateway history trigger/measured
    """
    answer = _asked(client, subscriber, namespace, _DELIVERIES)
    if as_json:
        click.echo(printable_json(answer))
        return 0
    lines = failure_lines(answer)
    click.echo("".join(f"{line}\n" for line in lines), nl=False)
    if not lines:
        click.echo("no failures", err=True)
    return 0


def failure_lines(answer: Object) -> list[str]:
    """Return the failures in an answer of `deliveries` for people, one line each, the latest first."""
    lines = []
    for failure in _joined(list(map(child, entries(answer, "failures")))):
        moment = datetime.fromtimestamp(number(failure, "at_ms") / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = f"{text(failure, 'event_source')} {text(failure, 'event_id')}"
        code = child(failure).get("code") or "-"
        end = f"  → {text(failure, 'end')}" if text(failure, "end") else ""
        lines.append(
            f"{moment}  {event}  attempt {number(failure, 'attempt')}  {code}  {text(failure, 'reason')}{end}"
        )
    return lines


def _joined(failures: Sequence[Object]) -> Iterator[Object]:
    """Yield the failures, with an event's last attempt and its outcome (two records) joined to one."""
    ended: tuple[object, ...] | None = None
    for failure in failures:
        attempt = tuple(
            failure.get(key)
            for key in ("partition", "offset", "event_source", "event_id", "attempt", "reason")
        )
        # The latest record comes first: the record of the outcome was seen, and this is its attempt.
        if not text(failure, "end") and attempt == ended:
            continue
        ended = attempt if text(failure, "end") else None
        yield failure


@click.command(short_help="Stop deliveries; events wait in the log.")
@_of_subscriber
@AS_JSON
def pause(*, client: Client, subscriber: str, namespace: str | None, as_json: bool) -> int:
    """Stop deliveries to the subscriber of a Trigger or Subscription until `resume`.

    Events wait in the log as long as its retention allows.

    \b
    Example:
      knative-gateway pause trigger/measured
    """
    _asked(client, subscriber, namespace, "pause")
    report(f"{subscriber} paused", as_json=as_json, paused=subscriber)
    return 0


@click.command(short_help="Continue after `pause`.")
@_of_subscriber
@AS_JSON
def resume(*, client: Client, subscriber: str, namespace: str | None, as_json: bool) -> int:
    """Continue where `pause` stopped.

    \b
    Example:
      knative-gateway resume trigger/measured
    """
    _asked(client, subscriber, namespace, "resume")
    report(f"{subscriber} resumed", as_json=as_json, resumed=subscriber)
    return 0


@click.command(short_help="Deliver again from an earlier start in the log.")
@click.option("--start", required=True, metavar="START", help=f"{FORMS[0].upper()}{FORMS[1:]}.")
@_of_subscriber
@AS_JSON
def replay(*, client: Client, subscriber: str, namespace: str | None, start: str, as_json: bool) -> int:
    """Deliver the events of the log again to the subscriber of a Trigger or Subscription, beginning at a
    start.

    \b
    Examples:
      knative-gateway replay trigger/measured --start -1h
      knative-gateway replay measured --start 2026-01-31T12:00:00Z
    """
    try:
        first = written_start(start, datetime.now(UTC))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--start'") from error
    _asked(client, subscriber, namespace, "replay", {"start": first})
    report(f"{subscriber} continues from {first}", as_json=as_json, replayed=subscriber, start=first)
    return 0


@click.command(short_help="Deliver failed events again.")
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="PARTITION:OFFSET",
    help="Only this event of the history; may be repeated.",
)
@click.option("--wait", is_flag=True, help="Wait until all deliveries have ended, and show the progress.")
@click.option("--cancel", is_flag=True, help="Cancel the events of a redrive whose delivery has not begun.")
@_of_subscriber
@AS_JSON
def redrive(
    *,
    client: Client,
    subscriber: str,
    namespace: str | None,
    events: Sequence[str],
    wait: bool,
    cancel: bool,
    as_json: bool,
) -> int:
    """Deliver again the events in the history that went to the dead letter sink or were dropped.

    \b
    Examples:
      knative-gateway redrive trigger/measured
      knative-gateway redrive trigger/measured --event 0:42 --event 3:7
      knative-gateway redrive trigger/measured --wait
      knative-gateway redrive trigger/measured --cancel
    """
    if cancel and (events or wait):
        message = "--cancel does not go with --event or --wait"
        raise click.UsageError(message)
    options: dict[str, object] = {"events": [_event(text) for text in events]} if events else {}
    answer = _asked(client, subscriber, namespace, "redrive", {"cancel": True} if cancel else options)
    count = number(answer, "cancelled" if cancel else "events")
    words = f"{subscriber}: {count} {'event is' if count == 1 else 'events are'}"
    if cancel:
        report(f"{words} not delivered again", as_json=as_json, redriven=subscriber, cancelled=count)
        return 0
    more = _waited(client, subscriber, namespace, answer) if wait else {}
    report(f"{words} delivered again", as_json=as_json, redriven=subscriber, events=count, **more)
    return 0


def _waited(client: Client, subscriber: str, namespace: str | None, begun: Object) -> dict[str, object]:
    """Wait until a redrive has ended, and return how many of its events were cancelled.

    Raises:
      GatewayError: another process of the gateway carries it out, and none of the answers is from that one.
    """
    shown, others = -1, 0
    while others < _OTHERS_MAX:
        progress = child(_asked(client, subscriber, namespace, _DELIVERIES), "redrive")
        others = others + 1 if text(progress, "process") != text(begun, "process") else 0
        left = number(progress, "left")
        if not others and not left:
            return {"cancelled": number(progress, "cancelled")}
        if not others and left != shown:
            click.echo(f"{left} of {number(progress, 'events')} events are left", err=True)
            shown = left
        time.sleep(_LOOK_S)
    message = (
        "the events are delivered again, but the process of the gateway that does it does not answer here"
    )
    raise GatewayError(message)


def _event(text: str) -> dict[str, int]:
    partition, _, offset = text.partition(":")
    if not all(part.isascii() and part.isdigit() and len(part) <= 16 for part in (partition, offset)):
        message = f"{text!r} is not PARTITION:OFFSET, such as 0:42"
        raise click.BadParameter(message, param_hint="'--event'")
    return {"partition": int(partition), "offset": int(offset)}
