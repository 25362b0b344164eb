"""`knative-gateway apply`, `get`, `delete`: resources without kubectl."""

from dataclasses import dataclass
from typing import Any, Final

import click

from knative_gateway.cli.client import APPLY, JSON, MANAGER, TABLE, Client, RefusedError, Resource
from knative_gateway.cli.commands.targets import Named, by_kind, suggesting
from knative_gateway.cli.completion import kinds as kinds_of
from knative_gateway.cli.completion import names_of_kind
from knative_gateway.cli.files import read_files
from knative_gateway.cli.options import asks_gateway, namespace_option
from knative_gateway.cli.output import AS_JSON, complain, report
from knative_gateway.cli.tables import table
from knative_gateway.cli.watches import Shape, follow
from knative_gateway.errors import GatewayError
from knative_gateway.resources.documents.manifests import written_yaml
from knative_gateway.resources.objects import Object, entries, name_of, namespace_of, text
from service_parts.command_line.wording import printable_json

FAILED: Final = 1
_files = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="A YAML file, a directory of YAML files, or - for stdin.",
)


@click.command(short_help="Create or change resources from files.")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="A YAML file, a directory of YAML files, or - for stdin.",
)
@namespace_option
@click.option("--dry-run", is_flag=True, help="Let the gateway check the resources, and change nothing.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the resulting objects as JSON, one on each line."
)
@asks_gateway
def apply(
    *, client: Client, files: tuple[str, ...], namespace: str | None, dry_run: bool, as_json: bool
) -> int:
    """Create or change resources from files: fields that a file sets are set, and fields that it set
    before and no longer sets are removed.

    \b
    Examples:
      knative-gateway apply -f temps.yaml
      knative-gateway apply -f resources/ --dry-run
    """
    failed = False
    for object_ in read_files(files):
        try:
            resource, path, name = _target(client, object_, namespace)
            before = _version(client, path)
            query = {
                "fieldManager": MANAGER,
                "force": "true",
                "fieldValidation": "Strict",
                **({"dryRun": "All"} if dry_run else {}),
            }
            code, written = client.ask("PATCH", path, object_, type_=APPLY, query=query)
        except RefusedError as error:
            complain(f"{text(object_, 'kind')} {name_of(object_)}", error, as_json=as_json)
            failed = True
            continue
        if as_json:
            click.echo(printable_json(written))
            continue
        done = (
            "created"
            if code == 201
            else "unchanged"
            if text(written, "metadata", "resourceVersion") == before and not dry_run
            else "configured"
        )
        click.echo(f"{resource.full_name}/{name} {done}{' (dry run)' if dry_run else ''}")
    return FAILED if failed else 0


@click.command(short_help="Show resources.")
@click.argument("kinds", metavar="KIND[,KIND…]", shell_complete=kinds_of)
@click.argument("names", nargs=-1, metavar="[NAME…]", shell_complete=names_of_kind)
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Show the resources of all namespaces.")
@click.option(
    "-l", "--selector", metavar="LABELS", help="Show only resources with these labels: app=x,tier!=y."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["wide", "json", "yaml"]),
    help="All columns, or whole objects: JSON lines or YAML documents.",
)
@click.option("--wide", is_flag=True, help="The same as -o wide.")
@click.option("-w", "--watch", is_flag=True, help="Then show each change, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
@asks_gateway
def get(
    *,
    client: Client,
    kinds: str,
    names: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    selector: str | None,
    output: str | None,
    wide: bool,
    watch: bool,
    as_json: bool,
) -> int:
    """Show resources as tables, or whole.

    KIND is the plural, the singular or the short name of a kind, `all` for all of Knative's, or KIND/NAME.

    \b
    Examples:
      knative-gateway get triggers --all-namespaces
      knative-gateway get trigger/measured broker/weather -o yaml
      knative-gateway get brokers,triggers --selector team=weather
      knative-gateway get triggers --watch
    """
    named: list[Named] = (
        by_kind(client, kinds, names)
        if any("/" in word for word in (kinds, *names))
        else [(resource, names) for kind in kinds.split(",") for resource in client.named(kind)]
    )
    space = "" if all_namespaces else namespace or "default"
    requests = Requests(client, space, {"labelSelector": selector} if selector else {})
    if watch:
        if len(named) > 1 or len(named[0][1]) > 1:
            message = "--watch shows one kind, or one resource of it"
            raise click.UsageError(message)
        shape = Shape("json" if as_json else output or "text", wide=wide or output == "wide")
        follow(client, named[0][0], space, "".join(named[0][1]), requests.query, shape=shape)
        return 0
    if as_json or output in {"json", "yaml"}:
        click.echo(_whole(requests, named, as_yaml=output == "yaml"), nl=False)
        return 0
    shown = _tables(requests, named, wide=wide or output == "wide")
    click.echo("\n".join(shown), nl=False)
    if not shown:
        click.echo(f"no {kinds} {'anywhere' if all_namespaces else f'in the namespace {space}'}", err=True)
    return 0


@click.command(short_help="Delete resources.")
@click.argument("kind", required=False, metavar="[KIND", shell_complete=kinds_of)
@click.argument("names", nargs=-1, metavar="NAME…]", shell_complete=names_of_kind)
@_files
@namespace_option
@click.option("--ignore-not-found", is_flag=True, help="A resource that does not exist is not an error.")
@AS_JSON
@asks_gateway
def delete(
    *,
    client: Client,
    kind: str | None,
    names: tuple[str, ...],
    files: tuple[str, ...],
    namespace: str | None,
    ignore_not_found: bool,
    as_json: bool,
) -> int:
    """Delete resources by kind and name, or all resources of files.

    \b
    Examples:
      knative-gateway delete trigger measured
      knative-gateway delete trigger/measured broker/weather
      knative-gateway delete -f temps.yaml
    """
    if bool(kind) == bool(files) or (kind and not names and "/" not in kind):
        message = "give either KIND and NAMEs, or -f FILE"
        raise click.UsageError(message)
    targets = (
        _named(client, kind, names, namespace)
        if kind
        else [_target(client, object_, namespace) for object_ in read_files(files)]
    )
    failed = False
    for resource, path, name in targets:
        try:
            with suggesting(client, resource, namespace or "default", name):
                client.ask("DELETE", path)
        except RefusedError as error:
            if error.code == 404 and ignore_not_found:
                continue
            complain(f"{resource.full_name} {name}", error, as_json=as_json)
            failed = True
        else:
            done = f"{resource.full_name}/{name}"
            report(f"{done} deleted", as_json=as_json, deleted=done)
    return FAILED if failed else 0


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one `get`."""

    client: Client
    namespace: str
    """Empty: all namespaces."""
    query: dict[str, str]

    def answers(self, named: Named, accept: str = JSON) -> list[dict[str, Any]]:
        """Ask for the named resources of a kind, one by one, or for the list of all of them."""
        resource, names = named
        found = []
        for name in names or [""]:
            path = resource.path(self.namespace, name)
            with suggesting(self.client, resource, self.namespace, name):
                found.append(self.client.ask("GET", path, query=self.query, accept=accept)[1])
        return found


def _whole(requests: Requests, all_named: list[Named], *, as_yaml: bool) -> str:
    """Return the resources as JSON, one a line, or as YAML documents."""
    found = [
        each
        for named in all_named
        for answer in requests.answers(named)
        for each in (entries(answer, "items") if "items" in answer else [answer])
    ]
    if as_yaml:
        return "---\n".join(map(written_yaml, found))
    return "".join(f"{printable_json(each)}\n" for each in found)


def _tables(requests: Requests, all_named: list[Named], *, wide: bool) -> list[str]:
    """Return a table for each kind of which a resource exists, with the columns that the gateway names."""
    shown: list[str] = []
    for resource, names in all_named:
        tables = requests.answers((resource, names), TABLE)
        rows = [row for table in tables for row in table["rows"]]
        prefix = f"{resource.full_name}/" if len(all_named) > 1 else ""
        if rows:
            spaces = not requests.namespace and resource.namespaced
            columns = tables[0]["columnDefinitions"]
            shown.append(table(columns, rows, wide=wide, spaces=spaces, prefix=prefix))
    return shown


def _named(
    client: Client, kind: str, names: tuple[str, ...], namespace: str | None
) -> list[tuple[Resource, str, str]]:
    return [
        (resource, resource.path(namespace or "default", each), each)
        for resource, all_names in by_kind(client, kind, names)
        for each in all_names
    ]


def _target(client: Client, object_: Object, namespace: str | None) -> tuple[Resource, str, str]:
    """Return an object's kind, path and name.

    Raises:
      GatewayError: the gateway does not serve the kind, or the object does not have a name.
    """
    resource, name = client.kind_of(object_), name_of(object_)
    if not name:
        message = f"a {resource.kind} has no metadata.name"
        raise GatewayError(message)
    own = namespace_of(object_)
    if namespace and own and namespace != own:
        message = f"{resource.kind} {name} is in the namespace {own}, not {namespace}"
        raise GatewayError(message)
    return resource, resource.path(own or namespace or "default", name), name


def _version(client: Client, path: str) -> str:
    try:
        return text(client.ask("GET", path)[1], "metadata", "resourceVersion")
    except RefusedError as error:
        if error.code != 404:
            raise
        return ""
