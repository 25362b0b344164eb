"""The section `kafka`: where the brokers are, how the node logs in, and how it uses topics."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from service_parts.settings.fields import Settings

SERVERS_MAX: Final = 100
TOPICS_MAX: Final = 1000

_SERVER: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:\[\],/]+):([0-9]{1,5})")


class StoreKind(StrEnum):
    """Where a node keeps the events: in a directory of its own, or in the topics of a Kafka cluster."""

    DIRECTORY = "directory"
    KAFKA = "kafka"


class KafkaLogin(StrEnum):
    """How the node proves its user to Kafka (SASL)."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


def _listed(value: object) -> object:
    return value.split(",") if isinstance(value, str) else value


def _servers(value: object) -> object:
    texts = _listed(value)
    if isinstance(texts, list | tuple):
        for text in texts:
            found = _SERVER.fullmatch(str(text))
            if found is None or not 1 <= int(found[1]) <= 65_535:
                message = f"{str(text)[:64]!r} is not a valid address of a broker: use HOST:PORT"
                raise ValueError(message)
    return texts


class KafkaSettings(Settings):
    """The Kafka cluster of a node with `store = "kafka"`. Nodes with the same `prefix` share the logs."""

    servers: Annotated[tuple[str, ...], BeforeValidator(_servers)] = Field(
        min_length=1,
        max_length=SERVERS_MAX,
        description="Brokers to begin with, `HOST:PORT` with commas. The node finds the other brokers.",
    )
    prefix: str = Field(default="amqp-streams", description="A log NAME is the topic `PREFIX.log.NAME`.")
    topics: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        default=(),
        max_length=TOPICS_MAX,
        description=(
            "Existing topics that are logs with the same names: their records are those of Kafka clients."
        ),
    )
    replicas: int = Field(
        default=3, ge=1, le=32, description="Replicas of the topics of logs that the node creates."
    )
    weak: bool = Field(
        default=False,
        description=(
            "Accept events for topics that can lose them when one broker is lost: fewer than 3 replicas,"
            " `min.insync.replicas` below 2, or unclean election."
        ),
    )
    readers: int = Field(
        default=8, ge=1, le=64, description="Consumers for older events, each with a thread."
    )
    numbered: int = Field(
        default=64,
        ge=1,
        le=1024,
        description=(
            "Idempotent producers that this node has at once, each with a transactional producer and its"
            " threads."
        ),
    )
    tls: bool = Field(default=False, description="Connect to the brokers with TLS.")
    ca: Path | None = Field(
        default=None,
        description="Authorities that sign the certificates of the brokers, PEM. Not set: the system's.",
    )
    certificate: Path | None = Field(
        default=None, description="The certificate that the node presents to the brokers, PEM."
    )
    key: Path | None = Field(default=None, description="The private key of that certificate, PEM.")
    login: KafkaLogin | None = Field(
        default=None, description="How the node logs in to the brokers. Not set: without a user."
    )
    user: str | None = Field(default=None, description="The user of the login.")
    password_file: Path | None = Field(
        default=None, description="A file with the password of the login, mode 0600."
    )

    @model_validator(mode="after")
    def _a_login_is_complete(self) -> Self:
        given = [self.login is not None, self.user is not None, self.password_file is not None]
        if any(given) and not all(given):
            message = "a login to Kafka needs login, user and password_file together"
            raise ValueError(message)
        if (self.certificate is None) != (self.key is None):
            message = "a certificate for Kafka needs certificate and key together"
            raise ValueError(message)
        if not self.tls and (self.ca is not None or self.certificate is not None):
            message = "ca and certificate are for TLS: set tls"
            raise ValueError(message)
        if self.login is KafkaLogin.PLAIN and not self.tls:
            message = "the login PLAIN sends the password as it is: set tls, or use SCRAM-SHA-512"
            raise ValueError(message)
        return self
