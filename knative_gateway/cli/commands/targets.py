"""The resources that the words of a command mean."""

from collections.abc import Collection
from difflib import get_close_matches

import click

from knative_gateway.cli.client import Client, Resource
from knative_gateway.errors import GatewayError
from knative_gateway.resources.objects import child, entries, name_of


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


def path_of(client: Client, written: str, namespace: str | None, action: str, kinds: Collection[str]) -> str:
    """Return the path of an action on `KIND/NAME`, or on NAME if only one of the kinds has it.

    Raises:
      click.UsageError: the kind is wrong, or several kinds have the name.
      GatewayError: none of the kinds has the name.
    """
    space = namespace or "default"
    kind, slash, name = written.rpartition("/")
    resources = (
        [resource for resource in client.named(kind) if resource.kind in kinds]
        if slash
        else _having(client, name, space, kinds)
    )
    if len(resources) != 1 or not name:
        message = f"{written!r} is not {' or '.join(f'{each.lower()}/NAME' for each in kinds)}"
        if len(resources) > 1:
            article = " and of a ".join(each.kind for each in resources)
            choices = " or ".join(f"{each.singular}/{name}" for each in resources)
            message = f"{name!r} is the name of a {article}: write {choices}"
        raise click.UsageError(message)
    return resources[0].path(space, name, action)


def _having(client: Client, name: str, namespace: str, kinds: Collection[str]) -> list[Resource]:
    """Return the kinds that have an object with this name."""
    resources = [resource for resource in client.resources() if resource.kind in kinds]
    names = {
        resource: [
            name_of(child(each)) for each in entries(client.ask("GET", resource.path(namespace))[1], "items")
        ]
        for resource in resources
    }
    found = [resource for resource in resources if name in names[resource]]
    if not found:
        near = get_close_matches(name, [one for each in names.values() for one in each], n=1)
        advice = f"; did you mean {near[0]!r}?" if near else ""
        message = f"no {' or '.join(kinds)} named {name!r} in the namespace {namespace}{advice}"
        raise GatewayError(message)
    return found
