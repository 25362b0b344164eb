"""`knative-gateway describe`: resources with their conditions, Events and failed deliveries, for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click

from knative_gateway.cli.client import Client, RefusedError, Resource
from knative_gateway.cli.commands.subscribers import KINDS, failure_lines
from knative_gateway.cli.commands.targets import by_kind, suggesting
from knative_gateway.cli.completion import kinds, names_of_kind
from knative_gateway.cli.options import asks_gateway, namespace_option
from knative_gateway.cli.output import AS_JSON
from knative_gateway.resources.documents.manifests import written_yaml
from knative_gateway.resources.objects import Object, child, entries, name_of, namespace_of, number, text
from service_parts.command_line.wording import printable_json

_EVENTS: Final = "/api/v1/namespaces/{}/events"
_FORBIDDEN: Final = 403
_SHOWN_ELSEWHERE: Final = frozenset({"conditions", "deliveries", "history"})
_WRITTEN_BY_KUBECTL: Final = "kubectl.kubernetes.io/last-applied-configuration"
_FAILURES_MAX: Final = 5


@click.command(short_help="Show all about resources: settings, conditions, Events, failures.")
@click.argument("kind", metavar="KIND[/NAME]", shell_complete=kinds)
@click.argument("names", nargs=-1, metavar="[NAME…]", shell_complete=names_of_kind)
@namespace_option
@AS_JSON
@asks_gateway
def describe(
    *, client: Client, kind: str, names: tuple[str, ...], namespace: str | None, as_json: bool
) -> int:
    """Show all about resources: settings, conditions with reasons, Events, and the latest failed deliveries
    of a Trigger or Subscription. Without a name, all resources of the kind.

    \b
    Examples:
      knative-gateway describe trigger measured
      knative-gateway describe broker/weather trigger/measured --json
    """
    space = namespace or "default"
    objects = [
        (resource, object_)
        for resource, all_names in by_kind(client, kind, names)
        for object_ in _objects(client, resource, space, all_names)
    ]
    for index, (resource, object_) in enumerate(objects):
        events, deliveries = _events(client, object_), _deliveries(client, resource, object_)
        if as_json:
            click.echo(printable_json({"object": object_, "events": events, "deliveries": deliveries}))
        else:
            click.echo(("\n\n" if index else "") + "\n".join(described(object_, events, deliveries)))
    if not objects:
        click.echo(f"no {kind} in the namespace {space}", err=True)
    return 0


def _objects(client: Client, resource: Resource, space: str, names: Sequence[str]) -> Iterator[Object]:
    """Yield the named resources of a kind, or all."""
    if not names:
        yield from (child(each) for each in entries(client.ask("GET", resource.path(space))[1], "items"))
    for name in names:
        with suggesting(client, resource, space, name):
            yield client.ask("GET", resource.path(space, name))[1]


def described(object_: Object, events: Sequence[Object], deliveries: Object | None) -> Iterator[str]:
    """Yield the lines that describe a resource. `deliveries`: None for kinds without deliveries."""
    metadata, status = child(object_, "metadata"), child(object_, "status")
    yield f"Name:         {name_of(object_)}"
    if namespace_of(object_):
        yield f"Namespace:    {namespace_of(object_)}"
    yield f"Kind:         {text(object_, 'kind')} ({text(object_, 'apiVersion')})"
    yield f"Created:      {text(metadata, 'creationTimestamp') or '-'}"
    yield from _pairs("Labels:", child(metadata, "labels"))
    yield from _pairs("Annotations:", child(metadata, "annotations"))
    yield from _section("Spec", child(object_, "spec"))
    yield from _section("Data", child(object_, "data"))
    yield from _section(
        "Status", {name: value for name, value in status.items() if name not in _SHOWN_ELSEWHERE}
    )
    yield from _conditions(entries(status, "conditions"))
    if deliveries is not None:
        yield from _failures(failure_lines(deliveries))
    if events:
        yield "Events:"
        yield from map(_event, events)


def _pairs(title: str, values: Mapping[str, object]) -> Iterator[str]:
    shown = sorted((name, value) for name, value in values.items() if name != _WRITTEN_BY_KUBECTL)
    for index, (name, value) in enumerate(shown):
        yield f"{'' if index else title:14}{name}={value}"


def _section(title: str, value: Mapping[str, object]) -> Iterator[str]:
    if value:
        yield f"{title}:"
        yield from (f"  {line}" for line in written_yaml(value).splitlines())


def _conditions(conditions: Sequence[object]) -> Iterator[str]:
    if not conditions:
        return
    yield "Conditions:"
    width = max(len(text(each, "type")) for each in conditions)
    for each in conditions:
        reason = ": ".join(part for part in (text(each, "reason"), text(each, "message")) if part)
        yield f"  {text(each, 'type'):{width}}  {text(each, 'status'):7}  {reason}".rstrip()


def _failures(lines: Sequence[str]) -> Iterator[str]:
    yield f"Failed deliveries: {f'{len(lines)}, the latest first' if lines else 'none'}"
    yield from (f"  {line}" for line in lines[:_FAILURES_MAX])
    if len(lines) > _FAILURES_MAX:
        yield f"  … and {len(lines) - _FAILURES_MAX} more: see 'knative-gateway history'"


def _event(event: Object) -> str:
    count = number(event, "count")
    times = f" ({count} times)" if count > 1 else ""
    words = f"{text(event, 'reason')}: {text(event, 'message')}"
    return f"  {text(event, 'lastTimestamp')}  {text(event, 'type')}  {words}{times}"


def _events(client: Client, object_: Object) -> list[Object]:
    """Return the Events about a resource, the latest last; none if the token has no right to read them."""
    uid = text(object_, "metadata", "uid")
    try:
        _, answer = client.ask("GET", _EVENTS.format(namespace_of(object_) or "default"))
    except RefusedError as error:
        if error.code == _FORBIDDEN:
            return []
        raise
    found = [child(each) for each in entries(answer, "items") if text(each, "involvedObject", "uid") == uid]
    return sorted(found, key=lambda each: text(each, "lastTimestamp"))


def _deliveries(client: Client, resource: Resource, object_: Object) -> Object | None:
    """Return positions and failures of a Trigger or Subscription; None for other kinds."""
    if resource.kind not in KINDS:
        return None
    return client.ask("GET", resource.path(namespace_of(object_), name_of(object_), "deliveries"))[1]
