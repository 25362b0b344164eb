"""`knative-gateway status`: whether a gateway is up and ready, its version and what it serves."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from knative_gateway.cli.client import Client, RefusedError, Resource
from knative_gateway.cli.options import asks_gateway
from knative_gateway.errors import GatewayError
from knative_gateway.resources.objects import annotation, child, entries, text
from service_parts.command_line.program import DONE, FAILED
from service_parts.command_line.wording import printable_json

_KINDS: Final = ("Broker", "Trigger", "Channel", "Subscription")
_GATEWAY: Final = "/apis/gateway.knative.dev/v1/gateway"
_PAUSED: Final = "knative-gateway/paused"


@click.command(short_help="Show whether a gateway is up and ready, and what it serves.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@asks_gateway
def status(*, client: Client, as_json: bool) -> int:
    """Show whether a gateway is up and ready, its version, and how many of its resources are not ready or
    paused. A user who may read everything also sees warnings with remedies, of the gateway and of its log
    node; --json adds figures, settings and recent changes. Exits with 1 if the gateway is down or not ready.

    \b
    Examples:
      knative-gateway status
      knative-gateway status --json | jq .ready
    """
    found: dict[str, Any] = {"server": client.server}
    try:
        reason = client.not_ready()
    except GatewayError as error:
        found |= {"up": False, "reason": str(error)}
    else:
        found |= {"up": True, "ready": reason is None, "not_ready": reason} | _served(client)
        health = _health(client)
        if health is not None:
            found["health"] = health
    if as_json:
        click.echo(printable_json(found))
    else:
        _print(found)
    return DONE if found.get("ready") else FAILED


def _served(client: Client) -> dict[str, Any]:
    """Return version and resources; of a token without the right to list a kind, the kind is left out."""
    _, version = client.ask("GET", "/version")
    counted = {}
    for resource in client.resources():
        if resource.kind in _KINDS:
            counts = _counted(client, resource)
            if counts is not None:
                counted[resource.plural] = counts
    return {"version": text(version, "gitVersion").rpartition("knative-gateway-")[2], "resources": counted}


def _health(client: Client) -> Mapping[str, Any] | None:
    """Return what the gateway says about itself; None: the user may not see it, or it is not known now."""
    try:
        return client.ask("GET", _GATEWAY)[1]
    except GatewayError:
        return None


def _warning_lines(health: object) -> Iterator[str]:
    for path, of in ((("warnings",), ""), (("node", "warnings"), "log node: ")):
        for each in entries(health, *path):
            level = "error" if child(each).get("error") else "warning"
            yield f"{level}: {of}{text(each, 'text')}"
            yield f"  remedy: {text(each, 'remedy')}"


def _counted(client: Client, resource: Resource) -> dict[str, int] | None:
    try:
        _, answer = client.ask("GET", resource.path(""))
    except RefusedError as error:
        if error.code == 403:
            return None
        raise
    objects = [child(each) for each in entries(answer, "items")]
    ready = sum(
        any(
            (text(each, "type"), text(each, "status")) == ("Ready", "True")
            for each in entries(one, "status", "conditions")
        )
        for one in objects
    )
    paused = sum(annotation(one, _PAUSED) == "true" for one in objects)
    return {"count": len(objects), "not_ready": len(objects) - ready, "paused": paused}


def _print(found: dict[str, Any]) -> None:
    lines = [("gateway", found["server"])]
    if not found["up"]:
        lines.append(("up", f"no: {found['reason']}"))
    else:
        lines += [
            ("up", "yes"),
            ("ready", "yes" if found["ready"] else f"no: {found['not_ready']}"),
            ("version", found["version"]),
        ]
        for plural, counts in found["resources"].items():
            details = [
                f"{counts[name]:,} {words}"
                for name, words in (("not_ready", "not ready"), ("paused", "paused"))
                if counts[name]
            ]
            more = f" ({', '.join(details)})" if details else ""
            lines.append((plural, f"{counts['count']:,}{more}"))
    for name, value in lines:
        click.echo(f"{name + ':':15}{value}")
    for line in _warning_lines(found.get("health")):
        click.echo(line)
