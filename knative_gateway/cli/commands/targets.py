"""The resources that the words of a command mean."""

import click

from knative_gateway.cli.client import Client, Resource


def one_kind(client: Client, kind: str, names: tuple[str, ...]) -> tuple[Resource, tuple[str, ...]]:
    """Return the kind and the names of `KIND NAME…` or `KIND/NAME`.

    Raises:
      click.UsageError: the word means several kinds.
      GatewayError: the gateway does not serve the kind.
    """
    written, _, name = kind.partition("/")
    [resource, *others] = client.named(written)
    if others:
        message = f"{written} means several kinds: name one of them"
        raise click.UsageError(message)
    return resource, (*([name] if name else []), *names)
