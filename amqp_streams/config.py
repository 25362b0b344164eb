"""The configuration of an event log node: frozen values, validated when built, with the unit in each name.

`cli/settings.py` builds them once from flags, environment, file and defaults, in this order. The core
receives plain values. Users may leave out `_ms` (`retention = "7d"`); both names are accepted. `policy.py`
has the settings for access rules and quotas.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, AliasChoices, Field, model_validator

from amqp_streams.authentication import EXTERNAL_RULES_MAX, ExternalRule, OAuthSettings, TlsSettings
from amqp_streams.kafka_settings import KafkaSettings, StoreKind
from amqp_streams.log_settings import BY_FIELD, PARTITIONS_MAX, Compression, log_name
from amqp_streams.peering_settings import PeeringSettings
from amqp_streams.policy import ACCESS_RULES_MAX, AccessRule, GroupName, Quota, Redirect, UserName
from service_parts.settings.choices import AnonymousAccess, LogFormat, LogLevel
from service_parts.settings.consoles import ConsoleSettings
from service_parts.settings.fields import Bytes, Milliseconds, Settings, TrustedProxy
from service_parts.settings.listeners import Listener as Address

PRODUCERS_MAX: Final = 100_000

LogName = Annotated[str, AfterValidator(log_name)]


def _from_table(field: str) -> Any:  # pydantic's Field returns Any, to stand as a default of any type
    """Returns the field of a log setting, with the default, limits and text of its row in `log_settings`."""
    row = BY_FIELD[field]
    alias = AliasChoices(row.short.replace("-", "_"), field) if row.short else None
    if row.choices:
        return Field(default=Compression(str(row.default)), description=row.meaning)
    return Field(
        default=row.default, ge=row.least, le=row.most, description=row.meaning, validation_alias=alias
    )


class LogSettings(Settings):
    """A log that is created if it does not exist. Retention deletes whole segments, oldest first, and never
    the segment that is being written.
    """

    partitions: int = _from_table("partitions")
    retention_ms: Milliseconds | None = _from_table("retention_ms")
    retention_bytes: Bytes | None = _from_table("retention_bytes")
    segment_bytes: Bytes = _from_table("segment_bytes")
    segment_ms: Milliseconds = _from_table("segment_ms")
    compression: Compression = _from_table("compression")


class SyncMode(StrEnum):
    """When an event is on the disk: before it is accepted (always), every `interval_ms`, or when the
    operating system writes it (never).
    """

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class Sync(Settings):
    """What `accepted` promises. Written as `always`, `interval:MS` or `never`."""

    mode: SyncMode = SyncMode.ALWAYS
    interval_ms: int = 0

    @model_validator(mode="after")
    def _interval_needs_milliseconds(self) -> Self:
        allowed = range(1, 60_001) if self.mode is SyncMode.INTERVAL else range(1)
        if self.interval_ms not in allowed:
            message = "sync must be 'always', 'never', or 'interval:MS' with MS from 1 to 60000"
            raise ValueError(message)
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `always`, `never` or `interval:MS`.

        Raises:
            ValueError: the text has another form.
        """
        mode, _, interval = text.partition(":")
        if mode not in set(SyncMode) or (interval and not interval.isdecimal()):
            message = (
                f"{text!r} is not a valid sync mode: use 'always', 'never', or 'interval:MS' with MS from 1"
                " to 60000"
            )
            raise ValueError(message)
        return cls(mode=SyncMode(mode), interval_ms=int(interval or 0))

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return dict(cls.parse(value)) if isinstance(value, str) else value

    def __str__(self) -> str:
        return f"{self.mode}:{self.interval_ms}" if self.mode is SyncMode.INTERVAL else str(self.mode)


class Limits(Settings):
    """The limits for everything that a client can make grow."""

    connections: int = Field(
        default=10_000,
        ge=1,
        description=(
            "Connections. At the limit, a new one replaces one that has not logged in: the oldest from the"
            " address that has most of these. If all have logged in, the new one is closed."
        ),
    )
    sessions: int = Field(
        default=64, ge=1, le=65_535, description="Sessions of one connection (channel-max + 1)."
    )
    links: int = Field(default=1024, ge=1, description="Links of one connection.")
    partitions: int = Field(default=10_000, ge=1, description="Partitions of all logs together.")
    groups: int = Field(default=1000, ge=1, description="Consumer groups of one log.")
    cursors: int = Field(
        default=10_000, ge=1, description="Cursors of subscriptions and groups, of all logs together."
    )
    cursor_positions: int = Field(
        default=2_000_000,
        ge=1,
        description="Positions of all cursors: one for each partition of each, about 150 bytes of memory.",
    )
    link_partitions: int = Field(
        default=4 << 20,
        ge=1,
        description=(
            "Partitions that all consumer links read, about 25 bytes of memory each. A link without a"
            " partition reads all partitions of its log."
        ),
    )
    producers: int = Field(
        default=10_000,
        ge=1,
        le=PRODUCERS_MAX,
        description=(
            "Idempotent producers that one partition knows. A new one replaces the one that is idle for"
            " longest."
        ),
    )
    group_waiting: int = Field(default=1024, ge=1, description="Attaches held pending in one consumer group.")
    frame_bytes: Bytes = Field(
        default=256 << 10, ge=512, le=1 << 20, description="The largest frame (max-frame-size)."
    )
    message_bytes: Bytes = Field(
        default=16 << 20,
        ge=1024,
        le=256 << 20,
        description="The largest message (max-message-size); a larger one ends its link.",
    )
    batch_events: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Events of one batch that a producer sends. A larger batch is rejected.",
    )
    uncompressed_bytes: Bytes = Field(
        default=4 << 20,
        ge=64 << 10,
        le=64 << 20,
        description="A compressed batch of a producer, after decompression. A larger batch is rejected.",
    )
    filter_bytes: Bytes = Field(default=16 << 10, ge=256, description="All filters of one source, encoded.")
    unsettled: int = Field(
        default=8192, ge=1, description="Deliveries that a consumer link may leave unsettled."
    )
    credit: int = Field(
        default=2000, ge=1, le=100_000, description="Transfers granted to a producer link at a time."
    )
    pending_bytes: Bytes = Field(
        default=64 << 20,
        ge=1 << 20,
        description=(
            "Bytes received and not yet durable; beyond it, or beyond a quarter of it for a partition on "
            "Kafka, the node withholds credit. The same bound for unfinished messages; beyond it the user "
            "that holds most loses the link with its oldest one."
        ),
    )
    connection_pending_bytes: Bytes = Field(
        default=1 << 20,
        ge=64 << 10,
        description="Bytes written for one peer that reads slowly; beyond it the peer waits.",
    )
    unauthenticated_ms: Milliseconds = Field(
        default=10_000,
        ge=100,
        description="Time that a peer has from its connect to its open.",
        validation_alias=AliasChoices("unauthenticated", "unauthenticated_ms"),
    )
    login_failures: int = Field(default=20, ge=1, description="Failed logins in a row from one address.")
    user_login_failures: int = Field(
        default=10,
        ge=1,
        description=(
            "Failed logins in a row for one user; where the user has logged in before, for each address."
        ),
    )
    login_interval_ms: Milliseconds = Field(
        default=6000,
        ge=1,
        description="After each interval, one more failed login is allowed.",
        validation_alias=AliasChoices("login_interval", "login_interval_ms"),
    )
    password_checks: int = Field(
        default=100, ge=1, description="Passwords waiting for a check, half from one address."
    )
    idle_timeout_ms: Milliseconds = Field(
        default=60_000,
        ge=1000,
        description=(
            "Silence after which the node closes a connection, or a link with an unfinished message. Time in"
            " which the node itself does not read is not counted."
        ),
        validation_alias=AliasChoices("idle_timeout", "idle_timeout_ms"),
    )
    drain_ms: Milliseconds = Field(
        default=5000,
        ge=0,
        description="How long a stopping node waits for deliveries in flight.",
        validation_alias=AliasChoices("drain", "drain_ms"),
    )


class GroupSettings(Settings):
    """Consumer groups and cursors: which groups may exist, and how partitions move between members."""

    only: tuple[str, ...] = Field(
        default=(),
        description=(
            "Names of the groups that may exist; `*` and `?` are allowed. Not set: any. A group is "
            "created when its first member attaches."
        ),
    )
    wait_ms: Milliseconds = Field(
        default=30_000,
        ge=0,
        description="How long an attach waits while no partition is free. 0: it is refused at once.",
        validation_alias=AliasChoices("wait", "wait_ms"),
    )
    pause_ms: Milliseconds = Field(
        default=3000,
        ge=0,
        description=(
            "How long a member waits before a member with more partitions is asked for one, and the shortest "
            "time between two such moves."
        ),
        validation_alias=AliasChoices("pause", "pause_ms"),
    )
    handover_ms: Milliseconds = Field(
        default=10_000,
        ge=0,
        description=(
            "How long a consumer may take to settle its deliveries before its link is closed and the"
            " partition moves."
        ),
        validation_alias=AliasChoices("handover", "handover_ms"),
    )
    cursor_flush_ms: Milliseconds = Field(
        default=200,
        ge=1,
        description=(
            "How often cursors that moved are written. After a kill -9, what was settled since then is"
            " delivered again."
        ),
        validation_alias=AliasChoices("cursor_flush", "cursor_flush_ms"),
    )


class ProducerSettings(Settings):
    """Producers that number their events, so that each event is stored once."""

    expiry_ms: Milliseconds = Field(
        default=7 * 24 * 3600 * 1000,
        ge=1000,
        description=(
            "A producer without a link that stored nothing for this long may be forgotten when the limit of"
            " producers is reached."
        ),
        validation_alias=AliasChoices("expiry", "expiry_ms"),
    )


class Listener(Address):
    """One address to listen on: `127.0.0.1:5672`, `[::1]:5672`, `0.0.0.0:5671` with tls."""

    tls: bool = False


class NodeSettings(Settings):
    """The settings of `amqp-streams serve`."""

    data_dir: Path | None = Field(
        default=None,
        description=(
            "Directory of the events. Created if it does not exist; locked while the node runs. Required"
            " unless `store` is `kafka`."
        ),
    )
    store: StoreKind = Field(default=StoreKind.DIRECTORY, description="Where the events are kept.")
    kafka: KafkaSettings | None = None
    node: PeeringSettings | None = None
    listen: tuple[Listener, ...] = Field(
        default=(Listener(host="127.0.0.1", port=5672),),
        description=(
            "Addresses to listen on; port 0: any free port. `[::]:5672` is IPv6 only: add `0.0.0.0:5672` for"
            " IPv4."
        ),
    )
    admin_listen: Listener | None = Field(
        default=None,
        description=(
            "Address of the admin listener: `/healthz`, `/readyz`, `/metrics`, and AMQP over WebSocket at `/`"
            " and `/amqp`."
        ),
    )
    console: ConsoleSettings | None = None
    tls: TlsSettings | None = None
    users_file: Path | None = Field(
        default=None,
        description="Who may connect with a password: a file that `amqp-streams user add` writes, mode 0600.",
        validation_alias=AliasChoices("users", "users_file"),
    )
    anonymous: AnonymousAccess = Field(
        default=AnonymousAccess.LOOPBACK, description="From where connections without a user are accepted."
    )
    plain_without_tls: bool = Field(
        default=False,
        description="Accept passwords and tokens on unencrypted connections from other machines.",
    )
    external: tuple[ExternalRule, ...] = Field(default=(), max_length=EXTERNAL_RULES_MAX)
    oauth: OAuthSettings | None = None
    container_id: str = Field(
        default="amqp-streams", min_length=1, max_length=255, description="The AMQP container-id of the node."
    )
    logs: dict[LogName, LogSettings] = Field(default_factory=dict)
    auto_create_partitions: int = Field(
        default=0,
        ge=0,
        le=PARTITIONS_MAX,
        description=(
            "Create unknown logs on first use, with this number of partitions. 0: refuse unknown addresses."
        ),
        validation_alias=AliasChoices("auto_create", "auto_create_partitions"),
    )
    sync: Sync = Field(
        default=Sync(),
        description=(
            "When an event is on the disk: `always` (before it is accepted), `interval:MS` (a power "
            "loss takes at most the last "
            "MS milliseconds, 1 to 60,000), or `never` (when the operating system writes it)."
        ),
    )
    limits: Limits = Limits()
    groups: GroupSettings = GroupSettings()
    producers: ProducerSettings = ProducerSettings()
    user_groups: dict[GroupName, tuple[UserName, ...]] = Field(
        default_factory=dict, description="Users of each group that access rules name as `group:NAME`."
    )
    access: tuple[AccessRule, ...] = Field(default=(), max_length=ACCESS_RULES_MAX)
    quotas: dict[UserName, Quota] = Field(default_factory=dict)
    redirects: tuple[Redirect, ...] = Field(
        default=(), validation_alias=AliasChoices("redirect", "redirects")
    )
    trusted_proxies: tuple[TrustedProxy, ...] = Field(
        default=(),
        description=(
            "Addresses and networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` the admin"
            " listener trusts."
        ),
    )
    shutdown_delay_ms: Milliseconds = Field(
        default=0,
        ge=0,
        description=(
            "How long a stopping node still accepts connections while `/readyz` answers 503: as "
            "long as a load balancer needs to notice."
        ),
        validation_alias=AliasChoices("shutdown_delay", "shutdown_delay_ms"),
    )
    log_format: LogFormat = Field(
        default=LogFormat.TEXT, description="Log lines for people (`text`) or for programs (`json`)."
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO, description="The least severe log line that is written."
    )

    @model_validator(mode="after")
    def _a_store_has_its_settings(self) -> Self:
        if (self.store is StoreKind.KAFKA) != (self.kafka is not None):
            message = "set --store kafka and --kafka-servers together"
            raise ValueError(message)
        if (self.store is StoreKind.DIRECTORY) != (self.data_dir is not None):
            message = "set data_dir with the store 'directory' (the default), and only with it"
            raise ValueError(message)
        if self.node is not None and self.kafka is None:
            message = "the section node is for the store 'kafka': the logs of other nodes are other logs"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _external_rules_need_certificates(self) -> Self:
        if self.external and (self.tls is None or self.tls.client_ca is None):
            message = "external rules need verified client certificates: set tls.client_ca"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _tls_listeners_need_a_certificate(self) -> Self:
        if self.tls is None and any(
            listener.tls for listener in (*self.listen, *filter(None, [self.admin_listen]))
        ):
            message = "a listener uses TLS but no certificate is set: set --tls-certificate and --tls-key"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _the_console_can_connect(self) -> Self:
        if self.console is not None and self.console.url is None and all(one.tls for one in self.listen):
            message = "all listeners use TLS: set console.url to a URL with the name in the certificate"
            raise ValueError(message)
        return self
