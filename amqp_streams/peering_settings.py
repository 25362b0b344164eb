"""The section `node`: where a node on Kafka listens for other nodes, and how both sides prove who they are.

Law: what travels between machines is encrypted, and both sides are authenticated. Without TLS, a node
listens on and connects to loopback addresses only.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from service_parts.networks import EVERYWHERE, is_this_machine
from service_parts.settings.fields import Settings
from service_parts.settings.listeners import Listener as Address


def _advertised(text: str) -> str:
    address = Address.parse(text)
    if address.port == 0 or address.host in EVERYWHERE:
        message = (
            f"{text!r} is not an address to connect to: use HOST:PORT by which other nodes reach this one"
        )
        raise ValueError(message)
    return str(address)


class PeeringSettings(Settings):
    """How the nodes with the same logs on Kafka reach each other. Groups and cursors need it."""

    listen: Address = Field(
        description="Address to listen on for other nodes; port 0: any free port. Clients do not use it."
    )
    advertise: Annotated[str, AfterValidator(_advertised)] | None = Field(
        default=None,
        description="`HOST:PORT` by which other nodes reach this node. Not set: the address of `listen`.",
    )
    secret_file: Path | None = Field(
        default=None,
        description=(
            "A file with the secret that all nodes have, mode 0600: a line of at least 32 characters. Two"
            " lines: the node proves the first, and accepts both."
        ),
    )
    certificate: Path | None = Field(
        default=None,
        description="The certificate that the node presents to other nodes, on both sides of TLS, PEM.",
    )
    key: Path | None = Field(default=None, description="The private key of that certificate, PEM.")
    ca: Path | None = Field(
        default=None,
        description=(
            "Authorities that sign the certificates of nodes, PEM. Without a secret, each certificate of"
            " these authorities is a node."
        ),
    )
    certificate_name: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        default=None,
        description=(
            "The name that the certificates of all nodes have. Not set: the certificate of a node names the"
            " host of its `advertise`."
        ),
    )

    @property
    def tls(self) -> bool:
        """Whether nodes connect with TLS."""
        return self.certificate is not None

    @model_validator(mode="after")
    def _both_sides_are_authenticated(self) -> Self:
        given = [self.certificate is not None, self.key is not None, self.ca is not None]
        if any(given) and not all(given):
            message = "TLS between nodes needs certificate, key and ca together"
            raise ValueError(message)
        if self.certificate_name is not None and not self.tls:
            message = "certificate_name needs certificate, key and ca"
            raise ValueError(message)
        hosts = [self.listen.host] if self.advertise is None else [self.listen.host, self.advertised_host]
        for host in hosts:
            if not self.tls and not is_this_machine(host):
                message = (
                    f"{host} is not a loopback address: set certificate, key and ca, so that nodes use TLS"
                )
                raise ValueError(message)
        if not self.tls and self.secret_file is None:
            message = "set secret_file, or certificate, key and ca: nodes must prove that they are nodes"
            raise ValueError(message)
        if self.advertise is None and self.listen.host in EVERYWHERE:
            message = f"other nodes cannot connect to {self.listen.host}: set advertise"
            raise ValueError(message)
        return self

    @property
    def advertised_host(self) -> str:
        """The host by which other nodes reach this node."""
        return self.listen.host if self.advertise is None else Address.parse(self.advertise).host
