"""`knative-gateway history`, `pause`, `resume`, `replay`, `redrive`: what a Trigger or Subscription can be asked."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import click

from knative_gateway.cli.client import Client
from knative_gateway.cli.options import asks_gateway, namespace_option
from knative_gateway.resources.objects import child, entries, number, text

KINDS: Final = frozenset({"Trigger", "Subscription"})


def _of_subscriber(command: Callable[..., int]) -> Callable[..., int]:
    """The arguments and flags that they have in common."""
    return click.argument("subscriber", metavar="KIND/NAME")(namespace_option(asks_gateway(command)))


def _path(client: Client, subscriber: str, namespace: str | None, action: str) -> str:
    kind, _, name = subscriber.partition("/")
    resources = [resource for resource in client.named(kind) if resource.kind in KINDS]
    if len(resources) != 1 or not name:
        message = f"{subscriber!r} is no trigger/NAME or subscription/NAME"
        raise click.UsageError(message)
    return resources[0].path(namespace or "default", name, action)


@click.command(short_help="Show what lately went wrong with a Trigger or Subscription.")
@click.option("--json", "as_json", is_flag=True, help="All that is known, as one object.")
@_of_subscriber
def history(*, client: Client, subscriber: str, namespace: str | None, as_json: bool) -> int:
    """Show the latest failed deliveries of a Trigger or Subscription, the latest first, and behind an arrow what became of the event.

    \b
    Example:
      knative-gateway history trigger/measured
    """
    _, told = client.ask("GET", _path(client, subscriber, namespace, "deliveries"))
    if as_json:
        click.echo(json.dumps(told))
        return 0
    for failure in entries(told, "failures"):
        moment = datetime.fromtimestamp(number(failure, "at_ms") / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = f"{text(failure, 'event_source')} {text(failure, 'event_id')}"
        code = child(failure).get("code") or "-"
        end = f"  → {text(failure, 'end')}" if text(failure, "end") else ""
        click.echo(f"{moment}  {event}  attempt {number(failure, 'attempt')}  {code}  {text(failure, 'reason')}{end}")
    if not entries(told, "failures"):
        click.echo("no failures", err=True)
    return 0


@click.command(short_help="Deliver nothing for now; events wait in the log.")
@_of_subscriber
def pause(*, client: Client, subscriber: str, namespace: str | None) -> int:
    """Deliver nothing to a Trigger's or Subscription's subscriber until `resume`. Events wait in the log, as long as it keeps them."""
    client.ask("POST", _path(client, subscriber, namespace, "pause"))
    click.echo(f"{subscriber} paused")
    return 0


@click.command(short_help="Go on after `pause`.")
@_of_subscriber
def resume(*, client: Client, subscriber: str, namespace: str | None) -> int:
    """Go on where `pause` stopped."""
    client.ask("POST", _path(client, subscriber, namespace, "resume"))
    click.echo(f"{subscriber} resumed")
    return 0


@click.command(short_help="Deliver again from an earlier place in the log.")
@click.option("--start", required=True, metavar="PLACE", help="earliest, time=2026-01-31T12:00:00Z, offset=PARTITION=OFFSET,… or new.")
@_of_subscriber
def replay(*, client: Client, subscriber: str, namespace: str | None, start: str) -> int:
    """Deliver the events of the log to a Trigger's or Subscription's subscriber again, from a place on.

    \b
    Example:
      knative-gateway replay trigger/measured --start time=2026-01-31T12:00:00Z
    """
    client.ask("POST", _path(client, subscriber, namespace, "replay"), {"start": start})
    click.echo(f"{subscriber} goes on from {start}")
    return 0


@click.command(short_help="Deliver again what was given up.")
@_of_subscriber
def redrive(*, client: Client, subscriber: str, namespace: str | None) -> int:
    """Deliver again the events that went to the dead letter sink or were dropped, as far as the history knows them."""
    _, told = client.ask("POST", _path(client, subscriber, namespace, "redrive"))
    click.echo(f"{subscriber}: {number(told, 'events')} events are delivered again")
    return 0
