"""[io] Completes kinds and names in a shell, from the gateway that the command line names.

Law: **a completion never fails, and ends within `TIME_LIMIT_S`**. A gateway that does not answer completes
nothing.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Final

import click
from click.shell_completion import CompletionItem

from knative_gateway.cli.client import Client, Resource
from knative_gateway.cli.options import SERVER, connection_of
from knative_gateway.errors import GatewayError
from knative_gateway.resources.objects import child, entries, name_of
from service_parts.errors import SettingError

TIME_LIMIT_S: Final = 2
NAMES_MAX: Final = 1000
"""A shell shows no more names than this in a useful way."""
_PARAMETERS: Final = ("server", "token", "ca", "namespace")
_SUBSCRIBERS: Final = ("Trigger", "Subscription")
_ADDRESSABLE: Final = ("Broker", "Channel")

Names = Callable[[Client, str], Iterable[str]]
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def kinds(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete KIND, and the name in KIND/NAME."""
    before, slash, _name = incomplete.partition("/")
    first, comma, _last = before.rpartition(",")

    def names(client: Client, namespace: str) -> Iterable[str]:
        if slash:
            return [
                f"{before}/{name}"
                for each in client.named(before)
                for name in _names(client, each, namespace)
            ]
        return [f"{first}{comma}{each.plural}" for each in client.resources()]

    return _completed(ctx, incomplete, names)


def names_of_kind(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a NAME behind KIND."""
    kind = ctx.params.get("kinds") or ctx.params.get("kind") or ""

    def names(client: Client, namespace: str) -> Iterable[str]:
        return [name for each in client.named(kind) for name in _names(client, each, namespace)]

    return _completed(ctx, incomplete, names) if kind and "/" not in kind else []


def subscribers(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete trigger/NAME and subscription/NAME."""
    return _of_kinds(ctx, incomplete, _SUBSCRIBERS)


def targets(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete broker/NAME and channel/NAME."""
    return _of_kinds(ctx, incomplete, _ADDRESSABLE)


def brokers(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a Broker."""

    def names(client: Client, namespace: str) -> Iterable[str]:
        return [name for each in client.named("broker") for name in _names(client, each, namespace)]

    return _completed(ctx, incomplete, names)


def _of_kinds(ctx: click.Context, incomplete: str, wanted: tuple[str, ...]) -> list[CompletionItem]:
    def names(client: Client, namespace: str) -> Iterable[str]:
        return [
            f"{each.singular}/{name}"
            for each in client.resources()
            if each.kind in wanted
            for name in _names(client, each, namespace)
        ]

    return _completed(ctx, incomplete, names)


def _names(client: Client, resource: Resource, namespace: str) -> list[str]:
    _, answer = client.ask("GET", resource.path(namespace))
    return [name_of(child(each)) for each in entries(answer, "items")]


def _completed(ctx: click.Context, incomplete: str, names: Names) -> list[CompletionItem]:
    found: list[str] = []

    def ask() -> None:
        # The shell shows whatever is printed, so that an error would look like a name.
        try:
            params = {name: ctx.params.get(name) for name in _PARAMETERS}
            params["server"] = params["server"] or SERVER
            values = connection_of(ctx, params, ctx.params.get("context"))
            client = Client(values["server"], values["token"], values["ca"], timeout_s=TIME_LIMIT_S)
            found.extend(names(client, values["namespace"] or "default"))
        except (GatewayError, SettingError, click.ClickException):
            return

    # Several requests may take longer than each of them: the process ends without waiting for the thread.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(TIME_LIMIT_S)
    return [CompletionItem(name) for name in found[:] if name.startswith(incomplete)][:NAMES_MAX]
