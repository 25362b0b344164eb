"""The program `knative-gateway`: its commands and its errors."""

from typing import Final

import click

from amqp_streams.errors import AmqpStreamsError
from knative_gateway import __version__
from knative_gateway.errors import ConfigError, GatewayError
from service_parts.command_line.program import CONTEXT, Entry, Faults, Program
from service_parts.command_line.wording import json_line, plain_sentence

_COMMANDS: Final = {
    name: Entry(where, summary, "gateway")
    for name, where, summary in (
        (
            "serve",
            "knative_gateway.cli.commands.serve:serve",
            "Run a gateway, and an event log node unless --amqp names one.",
        ),
        (
            "config",
            "knative_gateway.cli.commands.config:config",
            "Show settings and their sources.",
        ),
        (
            "status",
            "knative_gateway.cli.commands.status:status",
            "Show whether a gateway is up and ready, and what it serves.",
        ),
        ("apply", "knative_gateway.cli.commands.resources:apply", "Create or change resources from files."),
        ("get", "knative_gateway.cli.commands.resources:get", "Show resources."),
        (
            "describe",
            "knative_gateway.cli.commands.describing:describe",
            "Show all about resources: settings, conditions, Events, failures.",
        ),
        ("create", "knative_gateway.cli.commands.creating:create", "Create a Broker or a Trigger."),
        ("delete", "knative_gateway.cli.commands.resources:delete", "Delete resources."),
        (
            "wait",
            "knative_gateway.cli.commands.waiting:wait",
            "Wait until resources have a condition, or are deleted.",
        ),
        ("send", "knative_gateway.cli.commands.sending:send", "Send an event to a Broker or Channel."),
        (
            "history",
            "knative_gateway.cli.commands.subscribers:history",
            "Show the latest failed deliveries of a Trigger or Subscription.",
        ),
        (
            "trace",
            "knative_gateway.cli.commands.tracing:trace",
            "Show who gets an event, why the others do not, and how far it is.",
        ),
        (
            "pause",
            "knative_gateway.cli.commands.subscribers:pause",
            "Stop deliveries; events wait in the log.",
        ),
        ("resume", "knative_gateway.cli.commands.subscribers:resume", "Continue after `pause`."),
        (
            "replay",
            "knative_gateway.cli.commands.subscribers:replay",
            "Deliver again from an earlier start in the log.",
        ),
        ("redrive", "knative_gateway.cli.commands.subscribers:redrive", "Deliver failed events again."),
        (
            "backup",
            "knative_gateway.cli.commands.backup:backup",
            "Copy the state database while the gateway runs.",
        ),
        (
            "context",
            "knative_gateway.cli.contexts:context",
            "Store connections under names, and choose one.",
        ),
        (
            "kubeconfig",
            "knative_gateway.cli.commands.kubeconfig:command",
            "Write a kubeconfig for kubectl and Kubernetes clients.",
        ),
    )
} | {"console": Entry("web_console.gateway.command:console", "Run a web console for a gateway.", "console")}


def _complain(error: Exception, as_json: bool) -> None:  # as `Faults` calls it
    words = plain_sentence(error)
    click.echo(
        json_line(words, getattr(error, "code", None)) if as_json else f"knative-gateway: {words}", err=True
    )


@click.command(
    cls=Program,
    table=_COMMANDS,
    faults=Faults(failures=(GatewayError, AmqpStreamsError), usage_errors=(ConfigError,), complain=_complain),
    context_settings=dict(CONTEXT),
)
@click.version_option(__version__, prog_name="knative-gateway")
def main() -> None:
    """Knative Eventing without a cluster: Brokers, Triggers, Channels and Subscriptions over a durable event
    log.

    \b
    A first minute:
      knative-gateway serve
      knative-gateway apply -f temps.yaml
      knative-gateway get brokers,triggers

    All commands but 'serve' connect to the gateway in --server or KNATIVE_GATEWAY_URL, or of a context
    ('knative-gateway context'); otherwise to http://127.0.0.1:8080.
    """
