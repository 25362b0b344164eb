"""`knative-gateway create`: a Broker or a Trigger without a file."""

import functools
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import click

from knative_gateway.cli.client import Client
from knative_gateway.cli.commands.waiting import wait_for
from knative_gateway.cli.completion import brokers
from knative_gateway.cli.options import asks_gateway, namespace_option
from knative_gateway.cli.output import AS_JSON
from knative_gateway.resources.documents.manifests import written_yaml
from knative_gateway.resources.objects import name_of
from service_parts.command_line.wording import printable_json

_READY: Final = ("Ready", "True")
_WAIT_S: Final = 60.0
_KINDS: Final = {"broker": "eventing.knative.dev/v1", "channel": "messaging.knative.dev/v1"}


@click.group(short_help="Create a Broker or a Trigger.")
def create() -> None:
    """Create a Broker or a Trigger without a file. 'apply' creates all kinds from files.

    \b
    Examples:
      knative-gateway create broker weather
      knative-gateway create trigger measured --broker weather --filter type=temperature.measured \\
        --subscriber http://127.0.0.1:9000/
    """


@dataclass(frozen=True)
class Wanted:
    """What both commands ask for."""

    namespace: str | None
    sink: str | None
    retry: int | None
    wait: bool
    dry_run: bool
    as_json: bool

    @property
    def delivery(self) -> dict[str, Any]:
        """The part of the spec that says how failed deliveries are handled."""
        delivery: dict[str, Any] = {}
        if self.retry is not None:
            delivery["retry"] = self.retry
        if self.sink is not None:
            delivery["deadLetterSink"] = _destination("--dead-letter-sink", self.sink)
        return {"delivery": delivery} if delivery else {}


def _creates(asked: Any) -> Any:
    """Add the options that both commands have. The command gets them as `wanted`, and a `client`."""

    @asks_gateway
    @functools.wraps(asked)
    def command(
        *,
        namespace: str | None,
        sink: str | None,
        retry: int | None,
        wait: bool,
        dry_run: bool,
        as_json: bool,
        **rest: Any,
    ) -> Any:
        return asked(wanted=Wanted(namespace, sink, retry, wait, dry_run, as_json), **rest)

    for option in (
        namespace_option,
        AS_JSON,
        click.option("--dry-run", is_flag=True, help="Print the resource as YAML, and create nothing."),
        click.option("--wait", is_flag=True, help="Wait up to 60 s until the resource is ready."),
        click.option("--retry", type=click.IntRange(0), metavar="N", help="Retries of a failed delivery."),
        click.option(
            "--dead-letter-sink",
            "sink",
            metavar="TARGET",
            help="Where events go that cannot be delivered: a URL, broker/NAME or channel/NAME.",
        ),
    ):
        command = option(command)
    return command


@create.command()
@click.argument("name")
@_creates
def broker(*, client: Client, name: str, wanted: Wanted) -> int:
    """Create the Broker NAME.

    \b
    Examples:
      knative-gateway create broker weather --wait
      knative-gateway create broker weather --retry 5 --dead-letter-sink http://127.0.0.1:9001/
    """
    return _create(client, "Broker", name, wanted.delivery, wanted)


@create.command()
@click.argument("name")
@click.option(
    "--broker",
    default="default",
    show_default=True,
    metavar="NAME",
    shell_complete=brokers,
    help="The Broker whose events the Trigger selects.",
)
@click.option(
    "--subscriber",
    required=True,
    metavar="TARGET",
    help="Where the events go: a URL, broker/NAME or channel/NAME.",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only events whose attribute has this value; may be repeated, and all must match.",
)
@click.option("--sql", metavar="CESQL", help="Only events for which this CloudEvents SQL expression is true.")
@_creates
def trigger(
    *,
    client: Client,
    name: str,
    broker: str,
    subscriber: str,
    filters: tuple[str, ...],
    sql: str | None,
    wanted: Wanted,
) -> int:
    """Create the Trigger NAME.

    \b
    Examples:
      knative-gateway create trigger measured --broker weather --filter type=temperature.measured \\
        --subscriber http://127.0.0.1:9000/
      knative-gateway create trigger warm --broker weather --sql "INT(celsius) > 25" --subscriber broker/warm
    """
    selected: list[dict[str, Any]] = []
    if filters:
        selected.append({"exact": dict(map(_attribute, filters))})
    if sql:
        selected.append({"cesql": sql})
    spec = {
        "broker": broker,
        **({"filters": selected} if selected else {}),
        "subscriber": _destination("--subscriber", subscriber),
        **wanted.delivery,
    }
    return _create(client, "Trigger", name, spec, wanted)


def _create(client: Client, kind: str, name: str, spec: dict[str, Any], wanted: Wanted) -> int:
    space = wanted.namespace or "default"
    object_ = {
        "apiVersion": _KINDS["broker"],
        "kind": kind,
        "metadata": {"name": name, "namespace": space},
        **({"spec": spec} if spec else {}),
    }
    [resource] = client.named(kind)
    # The gateway checks the resource in a dry run, too.
    query = {"fieldValidation": "Strict", **({"dryRun": "All"} if wanted.dry_run else {})}
    _, written = client.ask("POST", resource.path(space), object_, query=query)
    if wanted.wait:
        wait_for(client, resource, space, name, condition=_READY, end=monotonic() + _WAIT_S)
        _, written = client.ask("GET", resource.path(space, name))
    if wanted.as_json:
        click.echo(printable_json(written))
    elif wanted.dry_run:
        click.echo(written_yaml(object_), nl=False)
    else:
        click.echo(f"{resource.full_name}/{name_of(written)} created{' and ready' if wanted.wait else ''}")
    return 0


def _destination(option: str, written: str) -> dict[str, Any]:
    """Return the destination that `http://…`, `broker/NAME` or `channel/NAME` means."""
    if "://" in written:
        return {"uri": written}
    kind, _, name = written.partition("/")
    if kind not in _KINDS or not name:
        message = f"{written!r} is not a URL, broker/NAME or channel/NAME"
        raise click.BadParameter(message, param_hint=f"'{option}'")
    return {"ref": {"apiVersion": _KINDS[kind], "kind": kind.title(), "name": name}}


def _attribute(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        message = f"{text!r} is not NAME=VALUE"
        raise click.BadParameter(message, param_hint="'--filter'")
    return name, value
