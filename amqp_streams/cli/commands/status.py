"""`amqp-streams status`: whether a node is up and ready, its version, its logs and its disk."""

import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

import click

from amqp_streams.cli.commands.logs import listed
from amqp_streams.cli.connection import Endpoint, NodeCommand, client_options, opened, run
from amqp_streams.cli.terminal.console import human_bytes, print_json
from amqp_streams.cli.terminal.wording import sentence
from amqp_streams.client import ConnectError
from amqp_streams.errors import ConfigError
from service_parts.command_line.program import DONE, FAILED
from service_parts.command_line.wording import plain_sentence

TIMEOUT_S: Final = 10
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
    """Show whether a node accepts connections, and its logs; with --admin also whether it is ready, its
    version and its disk. Exits with 1 if the node is down or not ready.

    \b
    Examples:
      amqp-streams status
      amqp-streams status --admin 127.0.0.1:8672 --json | jq .ready
    """
    found = {
        "url": endpoint.client().address,
        **_over_amqp(endpoint),
        **({} if admin is None else _over_http(admin)),
    }
    if as_json:
        print_json(found)
    else:
        for name, value in _lines(found):
            click.echo(f"{name + ':':13}{value}")
    return DONE if found["up"] and found.get("ready", True) else FAILED


def _over_amqp(endpoint: Endpoint) -> dict[str, Any]:
    started = time.monotonic()

    async def asked() -> tuple[float, int, int, int, int]:
        async with opened(endpoint) as client:
            logs, extents = await listed(client)
        partitions = [one for extent in extents.values() for one in extent.partitions]
        events = sum(one.next - one.earliest for one in partitions)
        answered_ms = (time.monotonic() - started) * 1000
        return answered_ms, len(logs), len(partitions), events, sum(one.bytes for one in partitions)

    try:
        answered_ms, logs, partitions, events, size = run(asked())
    except ConnectError as error:
        return {"up": False, "reason": sentence(error)}
    return {
        "up": True,
        "answered_ms": round(answered_ms, 1),
        "logs": logs,
        "partitions": partitions,
        "events": events,
        "bytes": size,
    }


def _over_http(admin: str) -> dict[str, Any]:
    base = admin if "://" in admin else f"http://{admin}"
    if not base.startswith(("http://", "https://")):
        message = f"--admin: {admin!r} is not HOST:PORT or an http:// URL"
        raise ConfigError(message)
    try:
        code, answer = _get(f"{base}/readyz")
        _, metrics = _get(f"{base}/metrics")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None)
        cause = reason if isinstance(reason, OSError) else error
        words = (
            f"{base} does not answer: {plain_sentence(cause)}. Is it the address of 'serve --admin-listen'?"
        )
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


def _lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What people read, in order."""
    lines = [("node", found["url"])]
    if found["up"]:
        lines += [
            ("up", f"yes, answered in {found['answered_ms']} ms"),
            (
                "logs",
                (
                    f"{found['logs']:,}, with {found['partitions']:,} partitions, {found['events']:,} events,"
                    f" {human_bytes(found['bytes'])}"
                ),
            ),
        ]
    else:
        lines.append(("up", f"no: {found['reason']}"))
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
