"""[io] Shows the changes of resources as they happen."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from knative_gateway.cli.client import JSON, TABLE, Client, RefusedError, Resource
from knative_gateway.cli.tables import table
from knative_gateway.resources.documents.manifests import written_yaml
from knative_gateway.resources.objects import Object, child, entries, text
from service_parts.command_line.wording import printable_json

WATCH_S: Final = 600
"""The gateway ends a watch after this time, and the command continues with a new one."""
_GONE: Final = 410


@dataclass(frozen=True, slots=True)
class Shape:
    """How changes are printed: `output` is `text`, `wide`, `json` or `yaml`."""

    output: str
    wide: bool = False


def changes(
    client: Client,
    resource: Resource,
    namespace: str,
    name: str,
    query: Mapping[str, str],
    *,
    accept: str = JSON,
    timeout_s: int | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the existing resources as `ADDED`, then their changes.

    `namespace`, `name`: empty for all. `timeout_s`: the end, or None to continue without end.

    Raises:
      GatewayError: the gateway does not answer, or refuses the request.
    """
    path = resource.path(namespace)
    only = {"fieldSelector": f"metadata.name={name}"} if name else {}
    wanted = {**query, **only, "includeObject": "Object"}
    version = ""
    while True:
        # From the version of the last change: nothing is missed, and nothing comes twice.
        begin = {"resourceVersion": version} if version else {}
        try:
            for type_, found in client.watch(
                path, query={**wanted, **begin}, accept=accept, timeout_s=timeout_s or WATCH_S
            ):
                version = _version(found) or version
                yield type_, found
        except RefusedError as error:
            if error.code != _GONE:
                raise
            # The gateway does not have the changes since that version any more.
            version = ""
        if timeout_s is not None:
            return


def follow(
    client: Client, resource: Resource, namespace: str, name: str, query: Mapping[str, str], *, shape: Shape
) -> None:
    """Print the resources and then each change, until the process is interrupted."""
    plain = shape.output in {"json", "yaml"}
    if name:
        # A name that does not exist is an error now, not a wait without end.
        client.ask("GET", resource.path(namespace, name))
    first = True
    for type_, found in changes(client, resource, namespace, name, query, accept=JSON if plain else TABLE):
        if shape.output == "json":
            click.echo(printable_json({"type": type_, "object": found}))
        elif shape.output == "yaml":
            click.echo(("" if first else "---\n") + written_yaml(found), nl=False)
        else:
            _print_rows(found, type_, shape, spaces=not namespace and resource.namespaced, head=first)
        first = False


def _print_rows(found: Mapping[str, Any], type_: str, shape: Shape, *, spaces: bool, head: bool) -> None:
    lines = table(
        found["columnDefinitions"], found["rows"], wide=shape.wide, spaces=spaces, prefix=""
    ).splitlines()
    marked = [f"{line}   (deleted)" if type_ == "DELETED" else line for line in lines[1:]]
    click.echo("\n".join([*lines[:1], *marked] if head else marked))


def _version(found: Object) -> str:
    """Return the version of an object, or of the object in a table of one row."""
    rows = entries(found, "rows")
    return text(child(rows[0], "object") if rows else found, "metadata", "resourceVersion")
