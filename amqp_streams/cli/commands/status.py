"""`amqp-streams status`: whether a node is up and ready, its health, its warnings and its logs."""

import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final

import click

from amqp_streams import names
from amqp_streams.cli.commands.logs import listed
from amqp_streams.cli.connection import Endpoint, NodeCommand, client_options, opened, run
from amqp_streams.cli.terminal.console import human_bytes, print_json, stored_size
from amqp_streams.cli.terminal.health import health_json, health_lines, warning_lines
from amqp_streams.cli.terminal.wording import sentence
from amqp_streams.client import Client, ConnectError, ManagementError, NodeInfo
from amqp_streams.client.reasons import reason as unanswered
from amqp_streams.errors import ConfigError
from service_parts.command_line.program import DONE, FAILED

TIMEOUT_S: Final = 10
_NOT_SHOWN: Final = frozenset({403, 501})
_METRIC: Final = re.compile(
    r"^amqp_streams_(disk_free_bytes|disk_size_bytes|connections) ([0-9.e+]+)$", re.MULTILINE
)
_VERSION: Final = re.compile(r'^amqp_streams_build_info\{version="([^"]*)"\}', re.MULTILINE)


@click.command(cls=NodeCommand, short_help="Show whether a node is up and ready, its logs and disk.")
@click.option(
    "--admin",
    metavar="HOST:PORT",
    envvar="AMQP_STREAMS_ADMIN",
    show_envvar=True,
    help="The admin listener of the node ('serve --admin-listen'), for readiness, version and disk.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_options
def status(*, admin: str | None, as_json: bool, endpoint: Endpoint) -> int:
    """Show whether a node accepts connections, and its logs. A user with the right 'manage' on all logs also
    sees its health: whether it is ready, its figures, and warnings with remedies; --json adds its settings
    and recent changes. --admin asks the admin listener, which needs no login. Exits with 1 if the node is
    down or not ready.

    \b
    Examples:
      amqp-streams status
      amqp-streams status --json | jq '.health.warnings'
      amqp-streams status --admin 127.0.0.1:8672 --json | jq .ready
    """
    over_amqp, health = _over_amqp(endpoint)
    found = {
        "url": endpoint.client().address,
        **over_amqp,
        **_summary(health),
        **({} if admin is None else _over_http(admin)),
    }
    if as_json:
        print_json(found if health is None else found | {"health": health_json(health)})
    else:
        for name, value in _lines(found, health):
            click.echo(f"{name + ':':13}{value}")
        for line in () if health is None else warning_lines(health):
            click.echo(line)
    return DONE if found["up"] and found.get("ready", True) else FAILED


def _over_amqp(endpoint: Endpoint) -> tuple[dict[str, Any], NodeInfo | None]:
    """What every user sees, and the health for users who may see it."""
    started = time.monotonic()

    async def asked() -> tuple[tuple[float, int, int, int, int], NodeInfo | None]:
        async with opened(endpoint) as client:
            logs, extents = await listed(client)
            answered_ms = (time.monotonic() - started) * 1000
            health = await _health(client)
        partitions = [one for extent in extents.values() for one in extent.partitions]
        events = sum(one.next - one.earliest for one in partitions)
        size = sum(one.bytes for one in partitions)
        return (answered_ms, len(logs), len(partitions), events, size), health

    try:
        (answered_ms, logs, partitions, events, size), health = run(asked())
    except ConnectError as error:
        return {"up": False, "reason": sentence(error)}, None
    found = {
        "up": True,
        "answered_ms": round(answered_ms, 1),
        "logs": logs,
        "partitions": partitions,
        "events": events,
        "bytes": size,
    }
    return found, health


async def _health(client: Client) -> NodeInfo | None:
    """The health of the node; None: the user may not see it, or the node is of an earlier version."""
    try:
        rights = await client.management.describe_node(parts=[names.NODE_RIGHTS])
        return await client.management.describe_node() if rights.administers else None
    except ManagementError as error:
        if error.status in _NOT_SHOWN:
            return None
        raise


def _summary(health: NodeInfo | None) -> dict[str, Any]:
    """The entries that the admin listener has as well."""
    if health is None:
        return {}
    connections = health.limits.get("connections")
    found = {
        "ready": health.ready,
        "not_ready": health.not_ready,
        "version": health.version,
        "disk_free_bytes": health.disk_free,
        "disk_size_bytes": health.disk_size,
        "connections": None if connections is None else connections.used,
    }
    return {name: value for name, value in found.items() if value is not None}


def _over_http(admin: str) -> dict[str, Any]:
    base = admin if "://" in admin else f"http://{admin}"
    if not base.startswith(("http://", "https://")):
        message = f"--admin: {admin!r} is not HOST:PORT or an http:// URL"
        raise ConfigError(message)
    try:
        code, answer = _get(f"{base}/readyz")
        _, metrics = _get(f"{base}/metrics")
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", None)
        cause = reason if isinstance(reason, OSError) else error
        why = "its answer is not HTTP" if isinstance(cause, HTTPException) else unanswered(cause)
        words = f"{base} does not answer: {why}. Is it the address of 'serve --admin-listen'?"
        return {"ready": False, "not_ready": words}
    figures = {name: round(float(value)) for name, value in _METRIC.findall(metrics)}
    version = _VERSION.search(metrics)
    return {
        "ready": code == 200,
        **({} if code == 200 else {"not_ready": answer.strip().removeprefix("not ready: ")}),
        "version": None if version is None else version[1],
        **figures,
    }


def _get(url: str) -> tuple[int, str]:
    # `_over_http` checks the scheme; a proxy of the environment cannot reach this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode("utf-8", "replace")


def _lines(found: Mapping[str, Any], health: NodeInfo | None) -> list[tuple[str, str]]:
    """What people read, in order."""
    lines = [("node", found["url"])]
    if found["up"]:
        lines += [
            ("up", f"yes, answered in {found['answered_ms']} ms"),
            (
                "logs",
                (
                    f"{found['logs']:,}, with {found['partitions']:,} partitions, {found['events']:,} events,"
                    f" {stored_size(found['bytes'], found['events'])}"
                ),
            ),
        ]
    else:
        lines.append(("up", f"no: {found['reason']}"))
    if health is not None and found["ready"] == health.ready:
        return lines + list(health_lines(health))
    if "ready" in found:
        lines.append(("ready", "yes" if found["ready"] else f"no: {found['not_ready']}"))
    if found.get("version"):
        lines.append(("version", found["version"]))
    if "connections" in found:
        lines.append(("connections", f"{found['connections']:,}"))
    if "disk_free_bytes" in found and "disk_size_bytes" in found:
        free, size = found["disk_free_bytes"], found["disk_size_bytes"]
        lines.append(("disk", f"{human_bytes(free)} free of {human_bytes(size)}"))
    return lines
