"""`knative-gateway send`: send one event to a Broker or Channel."""

import json
import mimetypes
import sys
import uuid
from datetime import UTC, datetime
from difflib import get_close_matches
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click

from knative_gateway.cli.client import Client, RefusedError
from knative_gateway.cli.commands.targets import names_of, one_kind
from knative_gateway.cli.completion import targets
from knative_gateway.cli.options import asks_gateway, namespace_option
from knative_gateway.cli.output import AS_JSON, report
from knative_gateway.errors import ConfigError

SOURCE: Final = "knative-gateway-cli"
_KINDS: Final = ("broker", "channel")
_STDIN: Final = "-"
_OWN: Final = frozenset({"specversion", "id", "type", "source", "subject", "time", "datacontenttype"})


@click.command(short_help="Send an event to a Broker or Channel.")
@click.argument("target", metavar="broker/NAME|channel/NAME", shell_complete=targets)
@click.option("--type", "type_", required=True, metavar="TYPE", help="The type of the event.")
@click.option("--source", default=SOURCE, show_default=True, metavar="URI", help="Its source.")
@click.option("--id", "id_", metavar="ID", help="Its id.  [default: a random UUID]")
@click.option("--subject", metavar="TEXT", help="Its subject.")
@click.option("--data", metavar="TEXT", help="Its data.")
@click.option("--data-file", metavar="FILE", help="A file with its data; - is stdin.")
@click.option(
    "--content-type",
    metavar="TYPE",
    help="The media type of the data.  [default: application/json if it is JSON, by name for a file]",
)
@click.option(
    "--extension",
    "extensions",
    multiple=True,
    metavar="NAME=VALUE",
    help="An extension attribute; may be repeated.",
)
@namespace_option
@AS_JSON
@asks_gateway
def send(
    *,
    client: Client,
    target: str,
    type_: str,
    source: str,
    id_: str | None,
    subject: str | None,
    data: str | None,
    data_file: str | None,
    content_type: str | None,
    extensions: tuple[str, ...],
    namespace: str | None,
    as_json: bool,
) -> int:
    """Send an event to a Broker or Channel, in HTTP's binary mode. Ends when the event is durable.

    \b
    Examples:
      knative-gateway send broker/weather --type temperature.measured --data '{"celsius": 20.5}'
      knative-gateway send channel/photos --type photo.taken --data-file roof.jpg --extension site=roof
    """
    kind, _, name = target.partition("/")
    if kind not in _KINDS or not name:
        message = f"{target!r} is not broker/NAME or channel/NAME"
        raise click.UsageError(message)
    if data is not None and data_file is not None:
        message = "--data and --data-file are alternatives: give one"
        raise click.UsageError(message)
    id_ = id_ or str(uuid.uuid4())
    attributes = {
        "specversion": "1.0",
        "id": id_,
        "type": type_,
        "source": source,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        **({"subject": subject} if subject else {}),
        **dict(map(_extension, extensions)),
    }
    body = _body(data, data_file)
    media = content_type or _media(body, data_file)
    headers = {f"ce-{attribute}": quote(value, safe=_UNQUOTED) for attribute, value in attributes.items()}
    path = "/".join(("", kind, quote(namespace or "default", safe=""), quote(name, safe="")))
    try:
        client.post_event(path, headers | ({"Content-Type": media} if body else {}), body)
    except RefusedError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        raise _missing(client, kind, name, namespace or "default", error) from None
    report(f"event {id_} accepted by {target}", as_json=as_json, accepted=id_, target=target)
    return 0


def _missing(client: Client, kind: str, name: str, space: str, error: RefusedError) -> RefusedError:
    """Return the error for a target that does not exist; the error of the ingress if it does."""
    resource = one_kind(client, kind)
    names = names_of(client, resource, space)
    if name in names:
        return error
    near = get_close_matches(name, names, n=1)
    advice = f"; did you mean {near[0]!r}?" if near else f"; see 'knative-gateway get {resource.plural}'"
    return RefusedError(f"no {resource.kind} named {name!r} in the namespace {space}{advice}", error.code)


_UNQUOTED: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""CloudEvents' HTTP binding, 3.1.3.2: other characters of an attribute are percent-encoded."""


def _extension(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not (name.isascii() and name.isalnum() and name == name.lower()) or name in _OWN:
        message = f"{text!r} is not NAME=VALUE with a name of lower-case letters and digits"
        raise click.BadParameter(message, param_hint="'--extension'")
    return name, value


def _body(data: str | None, file: str | None) -> bytes:
    if file is None:
        return (data or "").encode()
    try:
        return sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
    except OSError as error:
        message = f"--data-file: {file} cannot be read: {error.strerror}"
        raise ConfigError(message) from error


def _media(body: bytes, file: str | None) -> str:
    guessed = mimetypes.guess_type(file)[0] if file is not None else None
    if guessed is not None:
        return guessed
    try:
        json.loads(body)
    except ValueError:
        return "text/plain" if file is None else "application/octet-stream"
    return "application/json"
