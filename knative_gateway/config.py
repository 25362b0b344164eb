"""The settings of the gateway: frozen, and checked when they are created. Pure.

cli/settings.py reads them. `make reference` writes docs/reference/gateway-configuration.md from the
descriptions. Durations are seconds; sizes take units ("1MiB").
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, ByteSize, Field, model_validator

from amqp_streams.client.endpoints.address import parse_all
from knative_gateway.security.access import Verb
from service_parts.settings import consoles
from service_parts.settings.choices import LogFormat, LogLevel
from service_parts.settings.fields import Settings, TrustedProxy
from service_parts.settings.listeners import Listener
from service_parts.tokens.algorithms import PublicKeyAlgorithm

_URL: Final = re.compile(r"https?://[^/?#\s]+(?:/[^?#\s]*)?")
_AMQP_URL: Final = re.compile(r"(?:amqps?|wss?)://\S.*")

RETENTION_MIN_S: Final = 1.0
"""The smallest retention that the node accepts."""
RETENTION_MAX_S: Final = 100 * 366 * 86_400
"""A century."""
WORKERS_MAX: Final = 64
"""More workers than the cores of large machines only cost memory."""
Texts = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class JwtSettings(Settings):
    """Bearer tokens of an issuer (JWT)."""

    issuer: str = Field(min_length=1, max_length=2048, description="The `iss` of the tokens, exactly.")
    audience: Texts = Field(min_length=1, description="The `aud` of a token must contain one of these.")
    keys: Path = Field(
        description="File with the public keys of the issuer, JWKS or PEM. Read again on SIGHUP."
    )
    algorithms: Annotated[tuple[PublicKeyAlgorithm, ...], BeforeValidator(_as_list)] = Field(
        default=(
            PublicKeyAlgorithm.RS256,
            PublicKeyAlgorithm.PS256,
            PublicKeyAlgorithm.ES256,
            PublicKeyAlgorithm.EDDSA,
        ),
        min_length=1,
        description="How tokens may be signed.",
    )
    user_claim: str = Field(
        default="sub", min_length=1, max_length=255, description="The claim that names the user."
    )
    groups_claim: str = Field(
        default="groups", min_length=1, max_length=255, description="The claim that lists the user's groups."
    )
    leeway: float = Field(
        default=30.0, ge=0, le=600, description="Maximum difference between the clocks of issuer and gateway."
    )


class RuleSettings(Settings):
    """Permissions of users and groups in namespaces. A rule needs `users` or `groups`.

    Without `rules`, every token may do everything; with at least one rule, everything that no rule allows is
    refused.
    """

    users: Texts = Field(default=(), description="Users that the rule is for; `*` stands for any characters.")
    groups: Texts = Field(
        default=(), description="Groups that the rule is for; `*` stands for any characters."
    )
    allow: Annotated[tuple[Verb, ...], BeforeValidator(_as_list)] = Field(
        min_length=1, description="What the rule allows: `read` and `write` objects, `send` events."
    )
    namespaces: Texts = Field(
        default=("*",),
        min_length=1,
        description="The namespaces in which the rule allows it; `*` stands for any characters.",
    )

    @model_validator(mode="after")
    def _has_users(self) -> Self:
        if not self.users and not self.groups:
            message = "a rule needs users or groups"
            raise ValueError(message)
        return self


class TlsSettings(Settings):
    """HTTPS instead of HTTP."""

    certificate: Path = Field(description="Certificate chain, PEM. Read again on SIGHUP.")
    key: Path = Field(description="Private key of the certificate, PEM. Read again on SIGHUP.")


class ConsoleSettings(consoles.ConsoleSettings):
    """The web console, which the gateway runs in a process of its own. It needs the extra `console`."""

    trusted_proxies: Annotated[tuple[TrustedProxy, ...], BeforeValidator(_as_list)] = Field(
        default=(),
        description=(
            "Addresses and networks of proxies whose `X-Forwarded-…` headers the console trusts, in addition"
            " to this machine."
        ),
    )

    @model_validator(mode="after")
    def _has_http_url(self) -> Self:
        if self.url is not None and not _URL.fullmatch(self.url):
            message = f"url: {self.url!r} is not an http:// or https:// URL"
            raise ValueError(message)
        return self


class Limits(Settings):
    """Limits on resources that clients use."""

    body: ByteSize = Field(
        default=ByteSize(1 << 20),
        ge=1024,
        le=64 << 20,
        description="The largest body of a request, and of a subscriber's reply.",
    )
    batch_events: int = Field(default=1000, ge=1, le=100_000, description="Events in one batched request.")
    request: Seconds = Field(default=30.0, description="Time to receive one request.")
    idle: Seconds = Field(default=75.0, description="How long an idle connection is kept.")
    connections: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description=(
            "Connections to the gateway. At the limit, a new one replaces one without a request: the oldest "
            "from the address that has most of these. If all have requests, the new one is closed."
        ),
    )
    pending_events: int = Field(
        default=20_000,
        ge=1,
        le=1_000_000,
        description="Events that are received and not yet durable. If there are more, senders get 503.",
    )
    pending: ByteSize = Field(
        default=ByteSize(64 << 20),
        ge=1 << 20,
        description=(
            "Bytes of events that are received and not yet durable, and as many of requests that are not "
            "answered yet. If there are more, senders get 503: of the requests, the oldest of the address "
            "that has sent most of these bytes."
        ),
    )
    append: Seconds = Field(
        default=5.0, description="How long a sender waits until its event is durable; then it gets 503."
    )
    drain: Seconds = Field(
        default=20.0,
        description=(
            "How long deliveries and requests may take to finish at SIGTERM. Five seconds later all "
            "parts are stopped, "
            "and after another five the process ends."
        ),
    )


class LogDefaults(Settings):
    """The log of a new Broker or Channel that does not configure its log itself."""

    partitions: int = Field(default=4, ge=1, le=1024, description="Number of partitions.")
    retention: float | None = Field(
        default=None,
        ge=RETENTION_MIN_S,
        le=RETENTION_MAX_S,
        description="How long events are kept. Not set: the default of the node.",
    )


class DestinationRules(Settings):
    """Where events may be delivered to: networks (`10.0.0.0/8`), addresses, or host names with `*`.

    `deny` wins over `allow`.

    The gateway checks the address that it connects to, not only the host name.
    """

    allow: Texts = Field(default=(), description="Only these. Not set: everything that is not denied.")
    deny: Texts | None = Field(
        default=None,
        description=(
            "Never these; replaces the default: link-local, metadata, multicast and broadcast addresses."
        ),
    )


class SubscriberSettings(Settings):
    """Deliveries to subscribers.

    When `look_ahead`, `held` or `waiting` is reached, reading for that subscriber pauses.
    """

    timeout: Seconds = Field(
        default=60.0, description="Time for one request, if the object does not set `delivery.timeout`."
    )
    connect_timeout: Seconds = Field(default=10.0, description="Time to connect.")
    ca: Path | None = Field(
        default=None, description="Certificates that are trusted in addition to those of the system, PEM."
    )
    certificate: Path | None = Field(
        default=None, description="Certificate of the gateway for subscribers that require one, PEM."
    )
    key: Path | None = Field(default=None, description="Private key of `certificate`, PEM.")
    verify: bool = Field(default=True, description="`false` trusts every certificate: for tests only.")
    look_ahead: int = Field(
        default=512,
        ge=1,
        le=10_000,
        description="Events of one subscriber and partition that are read and not completed.",
    )
    in_flight: int = Field(default=256, ge=1, le=1024, description="Deliveries in flight to one subscriber.")
    connections: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Connections to all subscribers, and at most half of the limit of open files.",
    )
    held: ByteSize = Field(
        default=ByteSize(8 << 20),
        ge=64 << 10,
        le=1 << 30,
        description="Bytes of one subscriber's events that are read and not completed, in all partitions.",
    )
    waiting: int = Field(
        default=1000, ge=1, le=100_000, description="Events of one subscriber that wait for a retry."
    )
    replies: ByteSize = Field(
        default=ByteSize(64 << 20),
        ge=1 << 20,
        description=(
            "Bytes of all replies that are received at once. If there are more, further replies wait. "
            "One subscriber gets at most half. One reply may always be received."
        ),
    )


class NamespaceRule(StrEnum):
    """Whether an object in a namespace that does not exist creates the namespace, or is refused."""

    ON_DEMAND = "on-demand"
    REQUIRED = "required"


class GatewaySettings(Settings):
    """The settings of `knative-gateway serve`."""

    listen: Annotated[tuple[Listener, ...], BeforeValidator(_as_list)] = Field(
        default=(Listener(host="127.0.0.1", port=8080),),
        min_length=1,
        description="Addresses of the API and the ingress; port 0: any free port.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=WORKERS_MAX,
        description=(
            "Processes that accept and deliver events. They share the addresses, the partitions, and the "
            "limits: each gets an equal part of `limits.connections`, `limits.pending`, "
            "`limits.pending_events` and of `subscribers.connections`, `in_flight`, `held`, `waiting` and "
            "`replies`."
        ),
    )
    state_dir: Path = Field(
        default=Path("knative-gateway-state"),
        description="Directory of the resources, the cursors, and the events of the started node.",
    )
    amqp: str | None = Field(
        default=None,
        description=(
            "The event log node to use: `amqp://USER:PASSWORD@HOST:PORT`, `amqps://`, `ws://` or "
            "`wss://`. Several nodes of a cluster are separated by commas: `amqp://a:5672,b:5672`. Not set: "
            "the gateway starts a node."
        ),
    )
    amqp_listen: Listener = Field(
        default=Listener(host="127.0.0.1", port=0),
        description=(
            "Address of the started node for AMQP clients; port 0: any free port. Not together with `amqp`."
        ),
    )
    public_url: str | None = Field(
        default=None,
        description=(
            "How senders reach the gateway: the beginning of `status.address.url`, an http or https "
            "URL. Not set: the address "
            "that the gateway listens on."
        ),
    )
    console: ConsoleSettings | None = None
    tls: TlsSettings | None = None
    log_format: LogFormat = Field(
        default=LogFormat.TEXT, description="Log lines for people (`text`) or for programs (`json`)."
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO, description="The least severe log line that is written."
    )
    store: str | None = Field(
        default=None,
        repr=False,
        description=(
            "The database of resources and cursors for several gateways: `postgresql://…`. Not set: a file"
            " in `state_dir`."
        ),
    )
    resources: Path | None = Field(
        default=None, description="Directory of YAML files that are applied at start."
    )
    namespaces: NamespaceRule = Field(
        default=NamespaceRule.ON_DEMAND,
        description=(
            "What happens to an object in a namespace that does not exist: the namespace is created, or the"
            " object is refused."
        ),
    )
    traces: str | None = Field(
        default=None,
        description=(
            "URL of the OpenTelemetry collector for traces of events, OTLP over HTTP. Not set: `OTEL_…`"
            " variables decide."
        ),
    )
    tokens: Path | None = Field(
        default=None,
        description=(
            'File of bearer tokens, one on each line: `token,user,uid,"group1,group2"`. Read again on SIGHUP.'
        ),
    )
    jwt: JwtSettings | None = None
    rules: tuple[RuleSettings, ...] = Field(default=(), max_length=1000)
    logs: LogDefaults = LogDefaults()
    services: Mapping[str, str] = Field(
        default_factory=dict,
        description=(
            'The URL of each Service of a cluster: `"hello.default" = "http://10.0.0.5:8080"`. A '
            "`ref` to that Service is "
            "delivered there."
        ),
    )
    destinations: DestinationRules = DestinationRules()
    subscribers: SubscriberSettings = SubscriberSettings()
    limits: Limits = Limits()
    shutdown_delay: float = Field(
        default=0.0,
        ge=0,
        le=3600,
        description=(
            "How long a stopping gateway still serves while `/readyz` answers 503 and each response "
            "closes its connection: as long "
            "as a load balancer needs to notice."
        ),
    )

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if self.amqp is not None:
            _require_endpoints(self.amqp)
        if self.amqp is not None and "amqp_listen" in self.model_fields_set:
            message = (
                "amqp and amqp_listen exclude each other: amqp names a running node, amqp_listen is for a"
                " node that the gateway starts"
            )
            raise ValueError(message)
        for name, url in (("public_url", self.public_url), ("traces", self.traces)):
            if url is not None and not _URL.fullmatch(url):
                message = f"{name}: {url!r} is not an http:// or https:// URL"
                raise ValueError(message)
        if self.public_url is not None and "@" in self.public_url:
            message = "public_url must not contain a user or password, because it is public"
            raise ValueError(message)
        if self.console is not None and self.console.url is None and self.tls is not None:
            message = "the listeners use TLS: set console.url to a URL with the name in the certificate"
            raise ValueError(message)
        if self.rules and self.tokens is None and self.jwt is None:
            message = "rules need tokens or jwt: without them the gateway cannot distinguish users"
            raise ValueError(message)
        return self


def _require_endpoints(amqp: str) -> None:
    # The message has no part of the value: it may contain a password.
    if not _AMQP_URL.fullmatch(amqp):
        message = (
            "amqp must be an amqp://, amqps://, ws:// or wss:// URL, or several with commas between them"
        )
        raise ValueError(message)
    try:
        parse_all(amqp)
    except ValueError as error:
        message = f"amqp: {error}"
        raise ValueError(message) from None
