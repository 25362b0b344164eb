"""`knative-gateway trace`: the events of a Broker or Channel, and the path of one of them."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import click

from knative_gateway.cli.client import Client
from knative_gateway.cli.commands.targets import path_of
from knative_gateway.cli.completion import targets
from knative_gateway.cli.options import asks_gateway, namespace_option
from knative_gateway.cli.starts import written_start
from knative_gateway.errors import GatewayError
from knative_gateway.resources.objects import Object, child, entries, number, text
from service_parts.command_line.wording import printable_json

KINDS: Final = ("Broker", "Channel", "InMemoryChannel")
_LOOK_AT: Final = 10_000
_AT_ONCE: Final = 50_000
"""Events that one request looks at."""
_PAGE: Final = 100
_POSITION: Final = re.compile(r"([0-9]{1,7}):([0-9]{1,16})")
_MAIN: Final = ("type", "source", "id")


@click.command(short_help="Show who gets an event, why the others do not, and how far it is.")
@click.argument("source", metavar="[KIND/]NAME", shell_complete=targets)
@click.argument("position", metavar="[PARTITION:OFFSET]", required=False)
@click.option("--id", "event_id", metavar="ID", help="The event with this id, instead of a position.")
@click.option("--source", "event_source", metavar="SOURCE", help="Only events with this source.")
@click.option("--until", metavar="TIME", help="Only events that were stored up to this time, such as -1h.")
@click.option(
    "--events",
    type=click.IntRange(1, 100),
    default=20,
    show_default=True,
    help="How many events a list has.",
)
@click.option(
    "--look-at",
    type=click.IntRange(1),
    default=_LOOK_AT,
    show_default=True,
    help="How many events are looked at for an id or a source, from the newest on.",
)
@click.option("--all", "everyone", is_flag=True, help="Show those that do not get the event, too, and why.")
@click.option("--json", "as_json", is_flag=True, help="Show everything, as one JSON object.")
@namespace_option
@asks_gateway
def trace(*, client: Client, source: str, namespace: str | None, position: str | None, **given: Any) -> int:
    """Show which Triggers or Subscriptions get an event of a Broker or Channel, and how far it is for each:
    not reached, waiting, in flight, retrying, delivered, dead-lettered, dropped. Failed attempts are listed
    with their answers, and dead letters with the place where they are.

    Without a position and an id, the latest events are listed.

    \b
    Examples:
      knative-gateway trace weather
      knative-gateway trace broker/weather 0:42
      knative-gateway trace weather --id 17 --source /kitchen --all
      knative-gateway trace weather --until 2026-01-31T12:00:00Z --json
    """
    as_json: bool = given["as_json"]
    events = path_of(client, source, namespace, "events", KINDS)
    if position is None:
        found = _found(client, events, given)
        listed = entries(found, "events")
        if not given["event_id"] or len(listed) != 1:
            _show(as_json, found, _listed(found, given))
            return 0 if listed or not given["event_id"] else 1
        position = f"{number(listed[0], 'partition')}:{number(listed[0], 'offset')}"
    match = _POSITION.fullmatch(position)
    if match is None:
        message = f"{position!r} is not PARTITION:OFFSET, such as 0:42"
        raise click.BadParameter(message, param_hint="'PARTITION:OFFSET'")
    path = f"{events.removesuffix('events')}trace"
    asked = {"partition": int(match[1]), "offset": int(match[2])}
    answer = _whole(client, path, asked, everyone=given["everyone"])
    _show(as_json, answer, _traced(answer, everyone=given["everyone"]))
    return 0


def _show(as_json: bool, answer: Object, lines: Iterator[str]) -> None:
    click.echo(printable_json(answer) if as_json else "\n".join(lines))


def _found(client: Client, path: str, given: Mapping[str, Any]) -> Object:
    """Return the latest events, or those with an id or a source: then several requests may be needed."""
    options: dict[str, object] = {"events": given["events"]}
    if given["until"]:
        options["time"] = _time(given["until"])
    wanted = {"id": given["event_id"] or "", "source": given["event_source"] or ""}
    if not any(wanted.values()):
        return client.ask("POST", path, options)[1]
    options |= wanted
    left: int = given["look_at"]
    looked_at = 0
    while True:
        _, answer = client.ask("POST", path, {**options, "look_at": min(left, _AT_ONCE)})
        looked_at += number(answer, "looked_at")
        left -= max(1, number(answer, "looked_at"))
        answer = {**answer, "looked_at": looked_at}
        if entries(answer, "events") or left <= 0 or "before" not in answer:
            return answer
        options["before"] = answer["before"]


def _time(written: str) -> str:
    try:
        start = written_start(written, datetime.now(UTC))
    except ValueError:
        start = ""
    if not start.startswith("time="):
        message = f"{written!r} is not a time, such as 2026-01-31T12:00:00Z or -1h"
        raise click.BadParameter(message, param_hint="'--until'")
    return start.removeprefix("time=")


def _whole(client: Client, path: str, asked: Mapping[str, object], *, everyone: bool) -> Object:
    """Return the path of an event with all subscribers that get it, or with all. Those that get it are first.

    Raises:
      GatewayError: the gateway refuses the request.
    """
    subscribers: list[object] = []
    while True:
        _, answer = client.ask("POST", path, {**asked, "limit": _PAGE, "skip": len(subscribers)})
        page = entries(answer, "subscribers")
        # Rows that the gateway had no time for are asked for again: it always evaluates the first one.
        count = next((index for index, each in enumerate(page) if child(each).get("matches") is None), 0)
        page = page[: count or len(page)]
        subscribers += page
        goes_on = everyone or answer.get("matching") is None or number(answer, "matching") > len(subscribers)
        if not page or not goes_on or len(subscribers) >= number(answer, "total"):
            return {**answer, "subscribers": subscribers}


def _listed(found: Object, given: Mapping[str, Any]) -> Iterator[str]:
    listed = entries(found, "events")
    for each in listed:
        names = child(each, "attributes")
        words = "  ".join(text(names, name) for name in _MAIN) or text(each, "problem")
        yield f"{_where(each)}  {moment(number(each, 'at_ms'))}  {words}"
    if not listed:
        looked = number(found, "looked_at")
        more = "; --look-at looks at more" if "before" in found and given["event_id"] else ""
        yield f"no such event: {looked} events were looked at{more}" if given["event_id"] else "no events"


def _traced(answer: Object, *, everyone: bool) -> Iterator[str]:
    event = child(answer, "event")
    yield f"Event:    {_where(event)}, stored {moment(number(event, 'at_ms'))}"
    if text(event, "problem"):
        yield f"Problem:  {text(event, 'problem')}"
    for name, value in child(event, "attributes").items():
        yield f"  {name}={value}"
    data = text(event, "data") or text(event, "data_hex")
    if data:
        yield f"Data:     {data}{' …' if event.get('is_cut') else ''}"
    for origin in entries(answer, "origins"):
        where = f"{text(origin, 'kind').lower()}/{text(origin, 'name')}"
        yield f"Original: this is a dead letter of {where}; see 'knative-gateway trace {where} --id …'"
    subscribers = [child(each) for each in entries(answer, "subscribers")]
    getting = [each for each in subscribers if each.get("matches")]
    yield f"{len(getting)} of {number(answer, 'total')} get it:" if getting else "No subscriber gets it."
    for each in getting:
        yield from _state(each)
    if everyone:
        for each in (each for each in subscribers if not each.get("matches")):
            yield f"  {_name(each)}  does not get it: {text(each, 'reason')}"
    elif len(getting) < number(answer, "total"):
        yield f"not delivered to {number(answer, 'total') - len(getting)}: --all shows why"


def _state(row: Object) -> Iterator[str]:
    words = [text(row, "state")]
    if "ahead" in row:
        words.append(f"{number(row, 'ahead')} events are before it")
    if words == ["completed"]:
        words.append("no record is kept: it was delivered, or the filters did not match it then")
    if row.get("here") is False:
        words.append("another process of the gateway delivers this partition")
    if row.get("paused"):
        words.append("paused")
    if text(row, "reason"):
        words.append(text(row, "reason"))
    delivered = child(row, "delivered")
    if delivered:
        took = f", {number(delivered, 'took_ms')} ms" if delivered.get("took_ms") is not None else ""
        words.append(f"last delivered {moment(number(delivered, 'at_ms'))}{took}")
    yield f"  {_name(row)}  {'; '.join(words)}"
    letter, reply = child(row, "dead_letter"), child(row, "reply")
    if letter:
        yield f"    dead letter: {text(letter, 'sink')}{_place(letter)}"
    if reply:
        yield f"    reply: {text(reply, 'source')} {text(reply, 'id')}{_place(reply)}"
    for each in entries(row, "attempts"):
        code = child(each).get("code") or "-"
        end = f"  → {text(each, 'end')}" if text(each, "end") else ""
        words_of = f"attempt {number(each, 'attempt')}  {code}  {text(each, 'reason')}{end}"
        yield f"    {moment(number(each, 'at_ms'))}  {words_of}"


def _place(found: Object) -> str:
    if text(found, "note"):
        return f" ({text(found, 'note')})"
    return f" at {text(found, 'kind').lower()}/{text(found, 'name')} {_where(found)}"


def _name(row: Object) -> str:
    return f"{text(row, 'kind').lower()}/{text(row, 'name')}"


def _where(each: object) -> str:
    return f"{number(each, 'partition')}:{number(each, 'offset')}"


def moment(at_ms: int) -> str:
    """Return a time for people, in UTC."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, OSError, ValueError) as error:
        message = f"the gateway gave {at_ms} as a time"
        raise GatewayError(message) from error
