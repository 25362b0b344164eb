"""The program `knative-gateway`: its commands, and how every one of them ends.

One law: **stdout is data, stderr is words**; exit status 0 done, 1 failed, 2 misuse, 130 interrupted.
"""

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Final, NoReturn

import click

from amqp_streams.errors import AmqpStreamsError
from knative_gateway import __version__
from knative_gateway.errors import ConfigError, GatewayError

DONE: Final = 0
FAILED: Final = 1
MISUSE: Final = 2
INTERRUPTED: Final = 130

# Each command's module is imported when the command is asked for: name -> where it is, and what it does in a line.
_COMMANDS: Final = {
    "serve": ("knative_gateway.cli.serve:serve", "Run a gateway, and an event log node unless there is one."),
    "apply": ("knative_gateway.cli.resources:apply", "Create or change resources from files."),
    "get": ("knative_gateway.cli.resources:get", "Show resources."),
    "delete": ("knative_gateway.cli.resources:delete", "Delete resources."),
    "history": ("knative_gateway.cli.subscribers:history", "Show what lately went wrong with a Trigger or Subscription."),
    "pause": ("knative_gateway.cli.subscribers:pause", "Deliver nothing for now; events wait in the log."),
    "resume": ("knative_gateway.cli.subscribers:resume", "Go on after `pause`."),
    "replay": ("knative_gateway.cli.subscribers:replay", "Deliver again from an earlier place in the log."),
    "redrive": ("knative_gateway.cli.subscribers:redrive", "Deliver again what was given up."),
    "kubeconfig": ("knative_gateway.cli.kubeconfig:command", "Write a kubeconfig for kubectl and Kubernetes clients."),
}


class Program(click.Group):
    """The commands, imported when used, and one end for all of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature, here and below
        """The commands in the order in which a newcomer meets them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        where = _COMMANDS.get(cmd_name)
        if where is None:
            return None
        module, _, name = where[0].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest name for a command that does not exist."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], _COMMANDS, n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> NoReturn:
        """Run the command that was named, and end with its status; only misuse that click finds passes through to it."""
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Nobody reads stdout any more: what is buffered goes nowhere when the interpreter flushes it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = DONE
        except (GatewayError, AmqpStreamsError, OSError) as error:
            click.echo(f"knative-gateway: {str(error) or type(error).__doc__}", err=True)
            status = MISUSE if isinstance(error, ConfigError) else FAILED
        except (KeyboardInterrupt, click.Abort):
            status = INTERRUPTED
        ctx.exit(status if isinstance(status, int) else DONE)


@click.command(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="knative-gateway")
def main() -> None:
    """Knative Eventing without a cluster: Brokers, Triggers, Channels and Subscriptions over a durable event log.

    \b
    A first minute:
      knative-gateway serve
    """
