"""`knative-gateway wait`: until resources have a condition, or are deleted."""

from time import monotonic
from typing import Final

import click

from knative_gateway.cli.client import Client, RefusedError, Resource
from knative_gateway.cli.commands.targets import by_kind, suggesting
from knative_gateway.cli.completion import kinds, names_of_kind
from knative_gateway.cli.options import asks_gateway, namespace_option
from knative_gateway.cli.output import AS_JSON, report
from knative_gateway.cli.watches import changes
from knative_gateway.errors import GatewayError
from knative_gateway.resources.objects import Object, entries, text

_NOT_FOUND: Final = 404
_DELETED: Final = "delete"
_CONDITION: Final = "condition="


@click.command(short_help="Wait until resources have a condition, or are deleted.")
@click.argument("kind", metavar="KIND[/NAME]", shell_complete=kinds)
@click.argument("names", nargs=-1, metavar="[NAME…]", shell_complete=names_of_kind)
@click.option(
    "--for",
    "wanted",
    default="condition=Ready",
    show_default=True,
    metavar="CONDITION",
    help="condition=TYPE, condition=TYPE=STATUS, or delete.",
)
@click.option(
    "--timeout",
    type=click.IntRange(1, 3600),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="The longest wait, for all resources together.",
)
@namespace_option
@AS_JSON
@asks_gateway
def wait(
    *,
    client: Client,
    kind: str,
    names: tuple[str, ...],
    wanted: str,
    timeout: int,
    namespace: str | None,
    as_json: bool,
) -> int:
    """Wait until resources have a condition, or are deleted. A resource must exist, except for --for delete.

    \b
    Examples:
      knative-gateway wait trigger/measured
      knative-gateway wait broker/weather trigger/measured
      knative-gateway wait broker weather --for condition=Ready --timeout 30
      knative-gateway wait trigger/measured --for delete
    """
    named = by_kind(client, kind, names)
    if not named[0][1]:
        message = f"name a {named[0][0].singular}: {kind}/NAME"
        raise click.UsageError(message)
    condition = _condition(wanted)
    end = monotonic() + timeout
    space = namespace or "default"
    for resource, name in ((resource, name) for resource, each in named for name in each):
        with suggesting(client, resource, space, name):
            wait_for(client, resource, space, name, condition=condition, end=end)
        done = f"{resource.full_name}/{name}"
        met = "deleted" if condition is None else f"condition {condition[0]} is {condition[1]}"
        report(f"{done} {met}", as_json=as_json, resource=done, met=wanted)
    return 0


def wait_for(
    client: Client,
    resource: Resource,
    namespace: str,
    name: str,
    *,
    condition: tuple[str, str] | None,
    end: float,
) -> None:
    """Wait until a resource has a condition (type and status), or is deleted if it is None.

    Raises:
      GatewayError: the resource does not exist, or the time is over. The message has the last state.
    """
    path = resource.path(namespace, name)
    try:
        _, found = client.ask("GET", path)
    except RefusedError as error:
        if error.code == _NOT_FOUND and condition is None:
            return
        raise
    if _met(found, condition):
        return
    left = max(1, round(end - monotonic()))
    for type_, changed in changes(client, resource, namespace, name, {}, timeout_s=left):
        found = changed
        if type_ == "DELETED":
            if condition is None:
                return
            message = f"{resource.full_name} {name} was deleted"
            raise GatewayError(message)
        if _met(found, condition):
            return
    state = "it still exists" if condition is None else _state(found, condition[0])
    message = f"{resource.full_name} {name}: the time is over, and {state}"
    raise GatewayError(message)


def _condition(wanted: str) -> tuple[str, str] | None:
    """Return type and status of the condition; None for a deletion."""
    if wanted == _DELETED:
        return None
    type_, _, status = wanted.removeprefix(_CONDITION).partition("=")
    if not wanted.startswith(_CONDITION) or not type_:
        message = f"{wanted!r} is not condition=TYPE, condition=TYPE=STATUS or delete"
        raise click.BadParameter(message, param_hint="'--for'")
    return type_, status or "True"


def _met(found: Object, condition: tuple[str, str] | None) -> bool:
    return condition is not None and any(
        (text(each, "type"), text(each, "status")) == condition
        for each in entries(found, "status", "conditions")
    )


def _state(found: Object, type_: str) -> str:
    conditions = entries(found, "status", "conditions")
    for each in conditions:
        if text(each, "type") == type_:
            reason = ": ".join(part for part in (text(each, "reason"), text(each, "message")) if part)
            return f"condition {type_} is {text(each, 'status')}" + (f" ({reason})" if reason else "")
    known = ", ".join(text(each, "type") for each in conditions)
    return f"it has no condition {type_}" + (f"; its conditions are {known}" if known else "")
