"""The resources that the words of a command mean."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from http import HTTPStatus
from typing import Final

import click

from knative_gateway.cli.client import Client, RefusedError, Resource
from knative_gateway.errors import GatewayError
from knative_gateway.resources.objects import child, entries, name_of

Named = tuple[Resource, tuple[str, ...]]
_EVENTING: Final = frozenset({"Broker", "Trigger", "Channel", "InMemoryChannel", "Subscription"})
"""Kinds of which a name may have been meant."""


def one_kind(client: Client, written: str) -> Resource:
    """Return the kind that a word means.

    Raises:
      click.UsageError: the word means several kinds.
      GatewayError: the gateway does not serve the kind.
    """
    [resource, *others] = client.named(written)
    if others:
        message = f"{written} means several kinds: name one of them"
        raise click.UsageError(message)
    return resource


def by_kind(client: Client, kind: str, names: Sequence[str]) -> list[Named]:
    """Return the kinds and names of `KIND NAME…` or `KIND/NAME [KIND/NAME…]`, in the order of the kinds.

    A NAME without a kind is of the first kind. A kind without names means all its resources.

    Raises:
      click.UsageError: a word means several kinds, or KIND/NAME has no name.
      GatewayError: the gateway does not serve the kind.
    """
    first, slash, name = kind.partition("/")
    found: dict[Resource, list[str]] = {one_kind(client, first): []}
    for word in ([kind] if slash else []) + list(names):
        written, slash, name = word.rpartition("/")
        if not name:
            message = f"{word!r} has no name: write KIND/NAME"
            raise click.UsageError(message)
        found.setdefault(one_kind(client, written if slash else first), []).append(name)
    return [(resource, tuple(listed)) for resource, listed in found.items()]


def path_of(client: Client, written: str, namespace: str | None, action: str, kinds: Collection[str]) -> str:
    """Return the path of an action on a resource. See `resource_of`."""
    resource, name = resource_of(client, written, namespace, kinds)
    return resource.path(namespace or "default", name, action)


def resource_of(
    client: Client, written: str, namespace: str | None, kinds: Collection[str]
) -> tuple[Resource, str]:
    """Return the kind and the name of `KIND/NAME`, or of NAME if only one of the kinds has it.

    Raises:
      click.UsageError: the kind is wrong, or several kinds have the name.
      GatewayError: none of the kinds has the name.
    """
    kind, slash, name = written.rpartition("/")
    resources = (
        [resource for resource in client.named(kind) if resource.kind in kinds]
        if slash
        else _having(client, name, namespace or "default", kinds)
    )
    if len(resources) != 1 or not name:
        message = f"{written!r} is not {' or '.join(f'{each.lower()}/NAME' for each in kinds)}"
        if len(resources) > 1:
            article = " and of a ".join(each.kind for each in resources)
            choices = " or ".join(f"{each.singular}/{name}" for each in resources)
            message = f"{name!r} is the name of a {article}: write {choices}"
        raise click.UsageError(message)
    return resources[0], name


@contextmanager
def suggesting(client: Client, resource: Resource, namespace: str, name: str) -> Iterator[None]:
    """Add the nearest name to the error of a resource that does not exist."""
    try:
        yield
    except RefusedError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        near = get_close_matches(name, names_of(client, resource, namespace), n=1)
        if not near or near[0] == name:
            raise
        message = f"{error}; did you mean {near[0]!r}?"
        raise RefusedError(message, error.code) from None


def names_of(client: Client, resource: Resource, namespace: str) -> list[str]:
    """Return the names of a kind in a namespace; none if they cannot be listed."""
    try:
        return _listed(client, resource, namespace)
    except GatewayError:
        return []


def _listed(client: Client, resource: Resource, namespace: str) -> list[str]:
    _, answer = client.ask("GET", resource.path(namespace))
    return [name_of(child(each)) for each in entries(answer, "items")]


def _having(client: Client, name: str, namespace: str, kinds: Collection[str]) -> list[Resource]:
    """Return the kinds that have an object with this name."""
    resources = [resource for resource in client.resources() if resource.kind in kinds]
    names = {resource: _listed(client, resource, namespace) for resource in resources}
    found = [resource for resource in resources if name in names[resource]]
    if found:
        return found
    others = [
        resource.kind
        for resource in client.resources()
        if resource.kind in _EVENTING.difference(kinds) and name in names_of(client, resource, namespace)
    ]
    near = get_close_matches(name, [one for each in names.values() for one in each], n=1)
    advice = f"; did you mean {near[0]!r}?" if near else ""
    if others:
        advice = f"; it is the name of a {' and of a '.join(others)}"
    message = f"no {' or '.join(kinds)} named {name!r} in the namespace {namespace}{advice}"
    raise GatewayError(message)
