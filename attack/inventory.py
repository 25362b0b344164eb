"""What can be attacked, read from the code of the product: requests, resources, timers, listeners, remotes.

Each entry is a short text that an attack names in `covers`. Nothing is written here that the code already
has: a new setting, operation, path or constant is a new entry.
"""

import ast
import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from starlette.routing import Route, WebSocketRoute

from amqp_streams import config as node_config
from amqp_streams import kafka_settings, policy
from amqp_streams.server.listening import admin
from amqp_streams.streams import attach
from amqp_streams.testing_amqp import InMemoryNode
from amqp_streams.wire import frames
from knative_gateway import config as gateway_config
from knative_gateway.api import actions, reviews
from knative_gateway.api.describing import documents
from knative_gateway.http import web
from knative_gateway.resources.kinds import BUILT_IN, Kind

ROOT: Final = Path(__file__).parent.parent
PEER_FACING: Final = (
    "amqp_streams/homes",
    "amqp_streams/kafka/numbered",
    "amqp_streams/node",
    "amqp_streams/server",
    "knative_gateway/api",
    "knative_gateway/dispatcher/posting",
    "knative_gateway/engine",
    "knative_gateway/http",
    "knative_gateway/ingress",
    "knative_gateway/running",
    "knative_gateway/security",
    "knative_gateway/store",
)
"""Where constants are limits of what a peer may use, or of how long the product waits for one."""

VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
CONTENT_MODES: Final = ("binary", "structured", "batch")
_LIMIT: Final = re.compile(r"_?[A-Z][A-Z0-9_]*_MAX")
_TIME: Final = re.compile(r"_?[A-Z][A-Z0-9_]*_(?:S|MS|S_MAX|MS_MAX)")


class Stranger(StrEnum):
    """A client that may not do what it asks for, by the reason."""

    NO_LOGIN = "no login"
    BAD_CREDENTIALS = "bad credentials"
    EXPIRED = "expired token"
    REVOKED = "revoked"
    WRONG_TENANT = "wrong tenant"


class Listener(StrEnum):
    """Each way in."""

    AMQP = "AMQP"
    AMQP_TLS = "AMQP over TLS"
    WEBSOCKET = "AMQP over WebSocket"
    ADMIN = "admin HTTP"
    HTTP = "gateway HTTP"
    HTTPS = "gateway HTTPS"
    NODES = "listener for nodes"


class Abuse(StrEnum):
    """What a client does to a listener."""

    GARBAGE = "garbage"
    HALF_REQUESTS = "half requests"
    FLOOD = "a flood of small requests"
    UNREAD = "unread replies"
    SLOW_BODY = "a slow body"


class Remote(StrEnum):
    """What the product depends on."""

    SUBSCRIBER = "subscriber"
    DNS = "DNS"
    SQLITE = "database file"
    POSTGRESQL = "PostgreSQL"
    KEYS = "keys of tokens"
    NODE = "log node"
    HOME = "home at another node"
    DISK = "disk"


class Failure(StrEnum):
    """How a remote fails."""

    SILENT = "silent"
    SLOW = "slow"
    REFUSING = "refusing"
    LYING = "lying"


@cache
def requests() -> frozenset[str]:
    """Everything that a client can ask for."""
    types: dict[str, Any] = InMemoryNode({}).service.node.types
    found = {f"$management {type_} {operation}" for type_, known in types.items() for operation in known}
    found |= {f"attach {grant.__name__}" for grant in (*get_args(attach.Grant), attach.Pending)}
    found |= {f"performative {name}" for name in frames.NAMES.values()}
    found |= {f"node GET {path}" for path in _admin_paths()}
    found |= {f"gateway {kind} {verb}" for kind in map(kind_name, BUILT_IN.kinds) for verb in VERBS}
    found |= {f"gateway document {path}" for path in documents.PATHS}
    found |= {f"gateway action {name}" for name in (actions.DELIVERIES, *actions.POSTED)}
    found |= {f"gateway review {path.rpartition('/')[2]}" for path in reviews.PATHS}
    found |= {f"gateway POST {path} {mode}" for path in web.EVENTS for mode in CONTENT_MODES}
    return frozenset(found)


def kind_name(kind: Kind) -> str:
    """As in a path."""
    return f"{kind.group or 'core'}/{kind.version}/{kind.plural}"


def _admin_paths() -> Iterator[str]:
    routes = admin.AdminServer._app(_NoServer()).routes  # type: ignore[arg-type]  # only its paths are read
    for route in routes:
        if isinstance(route, Route | WebSocketRoute) and "{" not in route.path:
            yield route.path


class _NoServer:
    """Has a handler for every path, and calls none of them."""

    def __getattr__(self, name: str) -> Any:
        async def handler(*_: object) -> None:
            return None

        handler.__name__ = name
        return handler


@cache
def resources() -> frozenset[str]:
    """Everything that has a limit: numbers and sizes in the settings."""
    return frozenset(name for name, field in _fields() if not _is_time(name, field))


@cache
def timers() -> frozenset[str]:
    """Every time in the settings."""
    return frozenset(name for name, field in _fields() if _is_time(name, field))


def _fields() -> Iterator[tuple[str, FieldInfo]]:
    models: dict[str, type[BaseModel]] = {
        "node limits": node_config.Limits,
        "node quotas": policy.Quota,
        "node groups": node_config.GroupSettings,
        "node producers": node_config.ProducerSettings,
        "node logs": node_config.LogSettings,
        "node kafka": kafka_settings.KafkaSettings,
        "gateway limits": gateway_config.Limits,
        "gateway subscribers": gateway_config.SubscriberSettings,
        "gateway logs": gateway_config.LogDefaults,
    }
    for section, model in models.items():
        for name, field in model.model_fields.items():
            if field.annotation in {int, float, int | None, float | None} or _is_size(field):
                yield f"{section}: {name}", field
    for product, settings in (
        ("node", node_config.NodeSettings),
        ("gateway", gateway_config.GatewaySettings),
    ):
        yield f"{product}: shutdown_delay", settings.model_fields[_named(settings, "shutdown_delay")]


def _named(settings: type[BaseModel], name: str) -> str:
    return next(field for field in settings.model_fields if field.startswith(name))


def _is_size(field: FieldInfo) -> bool:
    return "ByteSize" in str(field.annotation) or "int" in str(field.annotation)


def _is_time(name: str, field: FieldInfo) -> bool:
    return name.endswith("_ms") or "delay" in name or field.annotation in {float, float | None}


@cache
def constants() -> dict[str, str]:
    """Every constant that is a limit or a time, in the modules that face peers: `module:NAME` and
    its line.
    """
    found = {}
    for folder in PEER_FACING:
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = str(path.relative_to(ROOT)).removesuffix(".py").replace("/", ".")
            source = path.read_text()
            for node in ast.parse(source).body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    name = node.target.id
                    if _LIMIT.fullmatch(name) or _TIME.fullmatch(name):
                        found[f"{module}:{name}"] = source.splitlines()[node.lineno - 1].strip()
    return found


def listeners() -> frozenset[str]:
    """Each listener under each abuse."""
    return frozenset(f"{listener}: {abuse}" for listener in Listener for abuse in Abuse)


def remotes() -> frozenset[str]:
    """Each remote in each kind of failure."""
    return frozenset(f"{remote}: {failure}" for remote in Remote for failure in Failure)


def strangers() -> frozenset[str]:
    """Each kind of stranger at each product."""
    return frozenset(f"{product}: {stranger}" for product in ("node", "gateway") for stranger in Stranger)
