"""What reconciling is given, and what it gives: values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from knative_gateway.addressing import ServiceMap
from knative_gateway.destinations import Destinations
from knative_gateway.ports import Failure, Key, Routes
from knative_gateway.resources.defaults import Defaults
from knative_gateway.resources.objects import Object

NO_ROUTES = Routes(0, {})


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator decided. `base_url`: how senders reach the ingress, without a slash at its end. `partitions`: of a new log.

    `delete_logs`: a Broker's or Channel's log goes with it. Of several replicas a late one could delete its successor's: then False.
    """

    base_url: str
    services: ServiceMap = field(default_factory=ServiceMap)
    allowed: Destinations | None = None
    defaults: Defaults = field(default_factory=Defaults)
    partitions: int = 4
    retention_ms: int | None = None
    delete_logs: bool = True


@dataclass(frozen=True, slots=True)
class Figures:
    """What the data plane counted for a subscriber, and its latest failures, the newest first."""

    counters: Mapping[str, int] = field(default_factory=dict)
    history: Sequence[Failure] = ()


@dataclass(frozen=True, slots=True)
class State:
    """What the data plane has done so far.

    `logs`: for each log None if it is there, else why it is not. `applied`: the latest routes that it serves; every subscriber
    in them has its place, but those in `failing`, which could not be set up, by uid, and why. `figures`: by uid.
    """

    logs: Mapping[str, str | None] = field(default_factory=dict)
    applied: Routes = NO_ROUTES
    failing: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Figures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogNeed:
    """A log that must be there."""

    log: str
    partitions: int
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Happening:
    """What an Event object will tell of an object. `type`: Normal or Warning."""

    about: Object
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done. `writes`: objects as they should be, with the resourceVersion that they were read with."""

    writes: Mapping[Key, Object]
    routes: Routes
    logs: Sequence[LogNeed]
    happenings: Sequence[Happening]
