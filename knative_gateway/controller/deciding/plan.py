"""Inputs and results of reconciling. Values only."""

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

    - `base_url`: the URL at which senders reach the ingress, without a slash at its end.
    - `partitions`, `retention_ms`: of a new log.
    - `inward`: which namespaces may send to Brokers and Channels of other namespaces; None: all.
    - `delete_logs`: delete a log with its Broker or Channel. Must be False with several replicas: a slow
      replica could delete the log of a successor with the same name.
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
    """The data plane's counters of a subscriber, and its latest failures, the newest first."""

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
    """A Kubernetes Event about an object. `type`: Normal or Warning."""

    about: Object
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Write:
    """An object to store. `object` has the resourceVersion from which it was computed; `before` is the stored
    object.
    """

    key: Key
    before: Object
    object: Object


@dataclass(frozen=True, slots=True)
class Problem:
    """An exception while the gateway reconciled an object."""

    key: Key
    error: Exception
