"""A node as a whole, as `$management` reports it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from amqp_streams import names
from amqp_streams.client.management.cursors import listed

_RIGHTS: Final = frozenset({"send", "receive", "info", "manage"})


@dataclass(frozen=True, slots=True)
class Used:
    """How much of a limit is in use. A value is None if the node does not know it."""

    used: int | None
    limit: int | None


@dataclass(frozen=True, slots=True)
class NodeWarning:
    """What an operator should look at. `code`: a word for programs. `is_error`: something does not work."""

    code: str
    text: str
    remedy: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class NodeSetting:
    """A setting in force. `source`: a flag, a variable, a file, or `default`."""

    name: str
    value: object
    source: str


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What a user changed. `what`: the operation; `type`, `name`: of what. `user`: None: anonymous, or a
    signal of the operating system (`RELOAD`).
    """

    at_ms: int | None
    user: str | None
    what: str
    type: str
    name: str = ""
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node at one moment. A value is None if it does not apply, or was not asked for.

    `administers`: the user has the right `manage` on all logs, which all other values need. `log_rights`:
    those of `send`, `receive`, `info` and `manage` that the user has on the log that was named.
    `started_ms`, `now_ms`: since 1970, by the node's clock. `commit_p50_s`, `commit_p99_s`,
    `commit_max_s`: the time of the `commits` latest commits of the last five minutes. `limits`: by name, how
    much of each bound is in use. `changes`: newest first. `home_buckets`: for how many buckets of groups and
    cursors the node decides (Kafka), and how many exist.
    """

    administers: bool | None = None
    log_rights: frozenset[str] | None = None
    version: str = ""
    container: str = ""
    store: str = ""
    data_dir: str | None = None
    sync: str = ""
    started_ms: int | None = None
    now_ms: int | None = None
    ready: bool | None = None
    not_ready: str | None = None
    disk_free: int | None = None
    disk_size: int | None = None
    disk_reserve: int | None = None
    memory: int | None = None
    descriptors: Used = Used(None, None)
    commits: int = 0
    commit_p50_s: float | None = None
    commit_p99_s: float | None = None
    commit_max_s: float | None = None
    request_seconds: float | None = None
    logs: int | None = None
    producers: int | None = None
    consumers: int | None = None
    home_buckets: Used = Used(None, None)
    limits: Mapping[str, Used] = field(default_factory=dict)
    warnings: tuple[NodeWarning, ...] = ()
    settings: tuple[NodeSetting, ...] = ()
    changes: tuple[NodeChange, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)

    @property
    def uptime_ms(self) -> int | None:
        """How long the node has run."""
        known = self.now_ms is not None and self.started_ms is not None
        return max(0, (self.now_ms or 0) - (self.started_ms or 0)) if known else None


def node_info(answer: Mapping[str, object]) -> NodeInfo:
    """Convert the description of a node."""
    limits = answer.get(names.NODE_LIMITS)
    return NodeInfo(
        administers=_flag(answer.get(names.NODE_ADMINISTERS)),
        log_rights=_rights(answer.get(names.NODE_LOG_RIGHTS)),
        version=_text(answer.get(names.NODE_VERSION)) or "",
        container=_text(answer.get(names.NODE_CONTAINER)) or "",
        store=_text(answer.get(names.NODE_STORE)) or "",
        data_dir=_text(answer.get(names.NODE_DATA_DIR)),
        sync=_text(answer.get(names.INFO_SYNC)) or "",
        started_ms=_number(answer.get(names.NODE_STARTED)),
        now_ms=_number(answer.get(names.NODE_NOW)),
        ready=_flag(answer.get(names.NODE_READY)),
        not_ready=_text(answer.get(names.NODE_NOT_READY)),
        disk_free=_number(answer.get(names.NODE_DISK_FREE)),
        disk_size=_number(answer.get(names.NODE_DISK_SIZE)),
        disk_reserve=_number(answer.get(names.NODE_DISK_RESERVE)),
        memory=_number(answer.get(names.NODE_MEMORY)),
        descriptors=_used(answer.get(names.NODE_DESCRIPTORS)),
        commits=_number(answer.get(names.NODE_COMMITS)) or 0,
        commit_p50_s=_real(answer.get(names.NODE_COMMIT_P50)),
        commit_p99_s=_real(answer.get(names.NODE_COMMIT_P99)),
        commit_max_s=_real(answer.get(names.NODE_COMMIT_MOST)),
        request_seconds=_real(answer.get(names.NODE_REQUEST_SECONDS)),
        logs=_number(answer.get(names.NODE_LOGS)),
        producers=_number(answer.get(names.CONNECTION_PRODUCERS)),
        consumers=_number(answer.get(names.CONNECTION_CONSUMERS)),
        home_buckets=_used(answer.get(names.NODE_HOME_BUCKETS)),
        limits=({str(name): _used(use) for name, use in limits.items()} if isinstance(limits, dict) else {}),
        warnings=tuple(map(_warning, listed(answer, names.NODE_WARNINGS))),
        settings=tuple(map(_setting, listed(answer, names.NODE_SETTINGS))),
        changes=tuple(map(_change, listed(answer, names.NODE_CHANGES))),
        details=dict(answer),
    )


def _warning(entry: Mapping[str, object]) -> NodeWarning:
    return NodeWarning(
        str(entry.get(names.WARNING_CODE)),
        str(entry.get(names.WARNING_TEXT)),
        str(entry.get(names.WARNING_REMEDY)),
        entry.get(names.WARNING_ERROR) is True,
    )


def _setting(entry: Mapping[str, object]) -> NodeSetting:
    return NodeSetting(
        str(entry.get(names.NAME)), entry.get(names.SETTING_VALUE), str(entry.get(names.SETTING_SOURCE))
    )


def _change(entry: Mapping[str, object]) -> NodeChange:
    details = entry.get(names.CHANGE_DETAILS)
    return NodeChange(
        _number(entry.get(names.CHANGE_AT)),
        _text(entry.get(names.CURSOR_USER)),
        str(entry.get(names.CHANGE_WHAT)),
        str(entry.get(names.TYPE)),
        _text(entry.get(names.NAME)) or "",
        {str(key): str(value) for key, value in details.items()} if isinstance(details, dict) else {},
    )


def _used(value: object) -> Used:
    if not isinstance(value, dict):
        return Used(None, None)
    return Used(_number(value.get(names.NODE_USED)), _number(value.get(names.NODE_LIMIT)))


def _rights(value: object) -> frozenset[str] | None:
    """Rights that a later version adds are left out."""
    if not isinstance(value, list):
        return None
    found = frozenset(str(each) for each in value if isinstance(each, str)) & _RIGHTS
    return found if found or not value else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
