"""`knative-gateway kubeconfig`: a file with which kubectl and Kubernetes clients connect to this gateway."""

import base64
from pathlib import Path

import click

from knative_gateway.cli.options import server_options
from knative_gateway.errors import ConfigError
from knative_gateway.resources.documents.manifests import written_yaml
from service_parts.command_line.wording import printable_json

NAME = "knative-gateway"


def kubeconfig(
    server: str,
    *,
    namespace: str = "default",
    token: str | None = None,
    authority: bytes | None = None,
    as_json: bool = False,
) -> str:
    """Return the text of a kubeconfig file.

    `authority` is the PEM bundle of certificate authorities of the server; None means those of the system.
    """
    cluster: dict[str, object] = {"server": server}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token} if token else {}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
        "current-context": NAME,
    }
    return printable_json(document, indent=2) + "\n" if as_json else written_yaml(document)


@click.command(short_help="Write a kubeconfig for kubectl and Kubernetes clients.")
@server_options
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="The namespace of objects without one.  [default: default]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to this file, readable for its owner only, instead of stdout.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of YAML.")
def command(
    server: str,
    token: str | None,
    ca: Path | None,
    namespace: str | None,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    """Write a kubeconfig for kubectl and Kubernetes clients.

    \b
    Examples:
      knative-gateway kubeconfig --output gateway.kubeconfig
      kubectl --kubeconfig gateway.kubeconfig get triggers --all-namespaces
    """
    if token and server.startswith("http://"):
        click.echo("knative-gateway: warning: kubectl sends a token only over https", err=True)
    try:
        written = kubeconfig(
            server,
            namespace=namespace or "default",
            token=token,
            authority=ca.read_bytes() if ca else None,
            as_json=as_json,
        )
        if output is None:
            click.echo(written, nl=False)
            return
        # A new file instead of the old one: the old one may be readable for others, and a mode is set only
        # when a file is created.
        output.unlink(missing_ok=True)
        output.touch(mode=0o600)
        output.write_text(written, encoding="utf-8")
    except OSError as error:
        message = f"{error.filename}: {error.strerror}"
        raise ConfigError(message) from None
