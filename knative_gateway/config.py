"""The settings of the gateway: frozen, checked when they are made. Pure.

Where they come from is in cli/settings.py; what each is for, in docs/gateway.md (a test compares the two).
Durations are seconds, sizes take units ("1MiB").
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, model_validator

from knative_gateway.access import Verb

_HOST_PORT: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:\s]+)):(?P<port>\d{1,5})")
_URL: Final = re.compile(r"https?://[^/?#\s]+(?:/[^?#\s]*)?")
_AMQP_URL: Final = re.compile(r"(?:amqps?|wss?)://\S+")

RETENTION_MAX_S: Final = 100 * 366 * 86_400
"""A century."""
Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Settings(BaseModel):
    """What all of them have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class Listener(Settings):
    """An address to listen on."""

    host: str
    port: int = Field(ge=0, le=65_535)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        found = _HOST_PORT.fullmatch(value.strip())
        if found is None:
            message = f"{value!r} is no HOST:PORT, such as 127.0.0.1:8080 or [::1]:0"
            raise ValueError(message)
        return {"host": found["v6"] or found["host"], "port": int(found["port"])}

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class TokenAlgorithm(StrEnum):
    """How a JWT may be signed (RFC 7518, RFC 8037); neither unsigned nor by a shared secret."""

    RS256 = "RS256"
    RS384 = "RS384"
    RS512 = "RS512"
    PS256 = "PS256"
    PS384 = "PS384"
    PS512 = "PS512"
    ES256 = "ES256"
    ES384 = "ES384"
    ES512 = "ES512"
    EDDSA = "EdDSA"


class JwtSettings(Settings):
    """Bearer tokens of an issuer. `keys`: its public keys, JWKS or PEM; `leeway`: seconds that clocks may differ."""

    issuer: str = Field(min_length=1, max_length=2048)
    audience: Texts = Field(min_length=1)
    keys: Path
    algorithms: Annotated[tuple[TokenAlgorithm, ...], BeforeValidator(_as_list), Field(min_length=1)] = (
        TokenAlgorithm.RS256,
        TokenAlgorithm.PS256,
        TokenAlgorithm.ES256,
        TokenAlgorithm.EDDSA,
    )
    user_claim: str = Field(default="sub", min_length=1, max_length=255)
    groups_claim: str = Field(default="groups", min_length=1, max_length=255)
    leeway: float = Field(default=30.0, ge=0, le=600)


class RuleSettings(Settings):
    """Who may what, where: users or groups (patterns with `*`), `read`, `write` or `send`, namespaces (patterns)."""

    users: Texts = ()
    groups: Texts = ()
    allow: Annotated[tuple[Verb, ...], BeforeValidator(_as_list), Field(min_length=1)]
    namespaces: Annotated[Texts, Field(min_length=1)] = ("*",)

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        if not self.users and not self.groups:
            message = "a rule needs users or groups"
            raise ValueError(message)
        return self


class LogFormat(StrEnum):
    """How log lines look: for people or for programs."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least serious log line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class TlsSettings(Settings):
    """HTTPS instead of HTTP; both are PEM files, read again on SIGHUP."""

    certificate: Path
    key: Path


class Limits(Settings):
    """Everything has a limit."""

    body: ByteSize = Field(default=ByteSize(1 << 20), ge=1024, le=64 << 20)
    batch_events: int = Field(default=1000, ge=1, le=100_000)
    request: Seconds = 30.0
    idle: Seconds = 75.0
    connections: int = Field(default=10_000, ge=1, le=1_000_000)
    pending_events: int = Field(default=20_000, ge=1, le=1_000_000)
    pending: ByteSize = Field(default=ByteSize(64 << 20), ge=1 << 20)
    append: Seconds = 5.0
    drain: Seconds = 20.0


class LogDefaults(Settings):
    """The log of a new Broker or Channel that says nothing. `retention`: seconds that events are kept; None: the node's default."""

    partitions: int = Field(default=4, ge=1, le=1024)
    retention: float | None = Field(default=None, gt=0, le=RETENTION_MAX_S)


class DestinationRules(Settings):
    """Where events may be pushed to: networks and host names. Nothing allowed: all that is not denied. `deny` replaces the default."""

    allow: Texts = ()
    deny: Texts | None = None


class SubscriberSettings(Settings):
    """Deliveries. `timeout`: of one request, where its delivery says nothing; `ca`: certificates trusted beside the system's.

    `certificate` and `key` are shown to those who ask for one. `connections`: to all subscribers at once, at most; of the limit of open
    files they get half. `look_ahead`: events of one subscriber and partition that are read and not completed; `held`: their bytes, in all
    partitions; `waiting`: those that wait for a retry. When one of these is reached, reading stops for that subscriber.
    `replies`: bytes of the replies of all subscribers that are received at once.
    """

    timeout: Seconds = 60.0
    connect_timeout: Seconds = 10.0
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    verify: bool = True
    look_ahead: int = Field(default=512, ge=1, le=10_000)
    in_flight: int = Field(default=256, ge=1, le=1024)
    connections: int = Field(default=10_000, ge=1, le=1_000_000)
    held: ByteSize = Field(default=ByteSize(8 << 20), ge=64 << 10, le=1 << 30)
    waiting: int = Field(default=1000, ge=1, le=100_000)
    replies: ByteSize = Field(default=ByteSize(64 << 20), ge=1 << 20)


class NamespaceRule(StrEnum):
    """What becomes of an object in a namespace that is not there: it is made, or the object is refused."""

    ON_DEMAND = "on-demand"
    REQUIRED = "required"


class GatewaySettings(Settings):
    """Everything about a gateway. `services`: `name.namespace` of a cluster's Services to the URLs where they are reached.

    `traces`: the collector that spans of events are sent to, OTLP over HTTP; None: only if OTEL_… variables say so.
    `shutdown_delay`: how many seconds a stopping gateway still serves while `/readyz` says no.
    """

    listen: Annotated[tuple[Listener, ...], BeforeValidator(_as_list)] = Field(
        default=(Listener(host="127.0.0.1", port=8080),), min_length=1
    )
    state_dir: Path = Path("knative-gateway-state")
    amqp: str | None = None
    amqp_listen: Listener = Listener(host="127.0.0.1", port=0)
    public_url: str | None = None
    tls: TlsSettings | None = None
    log_format: LogFormat = LogFormat.TEXT
    log_level: LogLevel = LogLevel.INFO
    store: str | None = Field(default=None, repr=False)
    resources: Path | None = None
    namespaces: NamespaceRule = NamespaceRule.ON_DEMAND
    traces: str | None = None
    tokens: Path | None = None
    jwt: JwtSettings | None = None
    rules: tuple[RuleSettings, ...] = Field(default=(), max_length=1000)
    logs: LogDefaults = LogDefaults()
    services: Mapping[str, str] = Field(default_factory=dict)
    destinations: DestinationRules = DestinationRules()
    subscribers: SubscriberSettings = SubscriberSettings()
    limits: Limits = Limits()
    shutdown_delay: float = Field(default=0.0, ge=0, le=3600)

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if self.amqp is not None and not _AMQP_URL.fullmatch(self.amqp):
            message = f"amqp: {self.amqp!r} is no amqp://, amqps://, ws:// or wss:// URL"
            raise ValueError(message)
        if self.amqp is not None and "amqp_listen" in self.model_fields_set:
            message = "amqp and amqp_listen: the one names a node that is there, the other is for the one that is started"
            raise ValueError(message)
        for name, url in (("public_url", self.public_url), ("traces", self.traces)):
            if url is not None and not _URL.fullmatch(url):
                message = f"{name}: {url!r} is no http:// or https:// URL"
                raise ValueError(message)
        if self.public_url is not None and "@" in self.public_url:
            message = "public_url: must not contain a user or password, because everybody can see it"
            raise ValueError(message)
        if self.rules and self.tokens is None and self.jwt is None:
            message = "rules: without tokens or jwt nobody can be told from anybody: they would allow everything"
            raise ValueError(message)
        return self
