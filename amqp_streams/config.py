"""The configuration of an event log node: frozen values, validated when built, each with its unit in its name.

`cli/settings.py` builds them once from flags, environment, file and defaults (in that order); the core receives plain values.
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

LOG_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253}[A-Za-z0-9])?")
PARTITIONS_MAX: Final = 1024


def log_name(name: str) -> str:
    """Check the name of an event log: it is an AMQP address and a folder's name.

    Raises:
        ValueError: it is empty, too long, or has a character other than letters, digits, dot, hyphen, underscore.
    """
    if not LOG_NAME.fullmatch(name):
        message = f"{name!r} is no name of a log: 1 to 255 letters, digits, '.', '-' and '_', the first and the last a letter or a digit"
        raise ValueError(message)
    return name


LogName = Annotated[str, AfterValidator(log_name)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LogSettings(_Settings):
    """What is fixed when a log is created (partitions) and what may change later (retention)."""

    partitions: int = Field(default=1, ge=1, le=PARTITIONS_MAX)
    retention_ms: int | None = Field(default=None, ge=1000, description="events older than this may go; none: kept for ever")
    retention_bytes: int | None = Field(default=None, ge=1 << 20, description="per partition; none: no bound")
    segment_bytes: int = Field(default=128 << 20, ge=64 << 10, le=1 << 31, description="a segment is closed at this size")
    segment_ms: int = Field(default=24 * 3600 * 1000, ge=1000, description="and at this age, so that retention by age can act")


class SyncMode(StrEnum):
    """When an event is on the disk: before `accepted` (always), every `interval_ms`, or when the system likes (never)."""

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class Sync(_Settings):
    """The promise behind `accepted`. Written `always`, `interval:MS` or `never`."""

    mode: SyncMode = SyncMode.ALWAYS
    interval_ms: int = 0

    @model_validator(mode="after")
    def _interval_needs_milliseconds(self) -> Self:
        allowed = range(1, 60_001) if self.mode is SyncMode.INTERVAL else range(1)
        if self.interval_ms not in allowed:
            message = "sync is 'always', 'never', or 'interval:MS' with MS from 1 to 60000"
            raise ValueError(message)
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `always`, `never`, `interval:MS`.

        Raises:
            ValueError: anything else.
        """
        mode, _, interval = text.partition(":")
        if mode not in set(SyncMode) or (interval and not interval.isdecimal()):
            message = f"{text!r} is no sync mode: 'always', 'never', or 'interval:MS' with MS from 1 to 60000"
            raise ValueError(message)
        return cls(mode=SyncMode(mode), interval_ms=int(interval or 0))

    def __str__(self) -> str:
        return f"{self.mode}:{self.interval_ms}" if self.mode is SyncMode.INTERVAL else str(self.mode)


class Limits(_Settings):
    """Everything a peer could make grow, with its bound."""

    connections: int = Field(default=10_000, ge=1)
    sessions: int = Field(default=64, ge=1, le=65_535, description="per connection (AMQP channel-max + 1)")
    links: int = Field(default=1024, ge=1, description="per connection")
    frame_bytes: int = Field(default=256 << 10, ge=512, le=1 << 20, description="max-frame-size offered")
    message_bytes: int = Field(default=16 << 20, ge=1024, le=256 << 20, description="max-message-size offered on attach")
    filter_bytes: int = Field(default=16 << 10, ge=256, description="all filters of one source, encoded")
    unsettled: int = Field(default=8192, ge=1, description="deliveries a consumer link may leave unsettled")
    credit: int = Field(default=2000, ge=1, le=100_000, description="transfers granted to a producer link")
    pending_bytes: int = Field(default=64 << 20, ge=1 << 20, description="received, not yet durable; beyond it credit is withheld")
    connection_pending_bytes: int = Field(default=4 << 20, ge=64 << 10, description="written towards one slow peer")
    unauthenticated_ms: int = Field(default=10_000, ge=100, description="from connect to open")
    idle_timeout_ms: int = Field(default=60_000, ge=1000, description="silence after which a peer counts as dead")
    drain_ms: int = Field(default=5000, ge=0, description="how long a stopping server waits for its peers")


class TlsSettings(_Settings):
    """A listener's certificate; with `client_ca`, clients must present a certificate signed by it."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class AnonymousAccess(StrEnum):
    """Where a connection without a user is let in."""

    LOOPBACK = "loopback"
    ALWAYS = "always"
    NEVER = "never"


class Listener(_Settings):
    """One address to listen on: `127.0.0.1:5672`, `[::1]:5672`, `0.0.0.0:5671` with tls."""

    host: str
    port: int = Field(ge=0, le=65_535)
    tls: bool = False


class NodeSettings(_Settings):
    """Everything `amqp-streams serve` needs to know."""

    data_dir: Path
    listen: tuple[Listener, ...] = (Listener(host="127.0.0.1", port=5672),)
    admin_listen: Listener | None = None
    tls: TlsSettings | None = None
    users_file: Path | None = None
    anonymous: AnonymousAccess = AnonymousAccess.LOOPBACK
    plain_without_tls: bool = False
    container_id: str = Field(default="amqp-streams", min_length=1, max_length=255)
    logs: dict[LogName, LogSettings] = Field(default_factory=dict)
    auto_create_partitions: int = Field(default=0, ge=0, le=PARTITIONS_MAX, description="0: unknown addresses are refused")
    sync: Sync = Sync()
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _tls_listeners_need_a_certificate(self) -> Self:
        if self.tls is None and any(listener.tls for listener in (*self.listen, *filter(None, [self.admin_listen]))):
            message = "a listener asks for TLS but no certificate is set: give --tls-certificate and --tls-key"
            raise ValueError(message)
        return self
