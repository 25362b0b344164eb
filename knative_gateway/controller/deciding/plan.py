"""The inputs and results of reconciling. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from knative_gateway.addressing import ServiceMap
from knative_gateway.ports import Failure, Key, Routes
from knative_gateway.resources.defaults import Defaults
from knative_gateway.resources.objects import Object
from knative_gateway.security.destinations import Destinations
from knative_gateway.security.inward import Inward

NO_ROUTES = Routes(0, {})


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings.

    `base_url`: the URL at which senders reach the ingress, without a slash at its end. `partitions`: of a new
    log. `inward`: which namespaces may send to Brokers and Channels of others; None: all. `delete_logs`:
    delete the log with its Broker or Channel; must be False with several replicas, because a late one could
    delete the log of a successor.
    """

    base_url: str
    services: ServiceMap = field(default_factory=ServiceMap)
    allowed: Destinations | None = None
    inward: Inward | None = None
    defaults: Defaults = field(default_factory=Defaults)
    partitions: int = 4
    retention_ms: int | None = None
    delete_logs: bool = True


@dataclass(frozen=True, slots=True)
class Figures:
    """The data plane's counters for a subscriber, and its latest failures, the newest first."""

    counters: Mapping[str, int] = field(default_factory=dict)
    history: Sequence[Failure] = ()


@dataclass(frozen=True, slots=True)
class LogNeed:
    """A log that must exist. `owner`: the uid of its Broker or Channel."""

    log: str
    partitions: int
    retention_ms: int | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """What a Kubernetes Event reports about an object. `type`: Normal or Warning."""

    about: Object
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Write:
    """`object`: the object to store, with the resourceVersion that it was decided from. `before`: the object
    as it was.
    """

    key: Key
    before: Object
    object: Object


@dataclass(frozen=True, slots=True)
class Problem:
    """An exception while an object was reconciled."""

    key: Key
    error: Exception
