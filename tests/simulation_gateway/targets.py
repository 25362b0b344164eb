"""The subscribers of a run, as their owners want them, and the events that logs have stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from knative_gateway.ports import Delivery
from tests.simulation_gateway.filters import Filter


class Role(StrEnum):
    """What a subscriber is for. Nothing ever changes a subscriber that has a role."""

    ORDINARY = "ordinary"
    HEALTHY = "healthy"
    """Its site answers well."""
    PICKY = "picky"
    """Its site always refuses a few events, and answers well to all others."""
    HANGING = "hanging"
    """Its site never answers. Its dead letter sink answers well."""
    LATE = "late"
    """Its site accepts each connection just before the attempt times out, and closes it after the answer."""


@dataclass(eq=False)
class Event:
    """One stored event. `attributes` None: the message is not a CloudEvent."""

    log: str
    incarnation: str
    partition: int
    offset: str
    at_ms: int
    id: str = ""
    attributes: Mapping[str, Any] | None = None
    data: bytes = b""


@dataclass(eq=False)
class Version:
    """A filter that a Trigger had. `settled_ms`: when its status promised that no earlier filter is used."""

    filter: Filter
    settled_ms: int | None = None


@dataclass(eq=False)
class Target:
    """A Trigger or Subscription, as its owner wants it.

    `ready_ms`: since when its status has promised that it gets all events. `generation`: that the status is
    to have observed; 0: it has. `replays`: requests for a replay that are not answered yet. `disturbed`: when
    something happened after which deliveries may begin again. `changes`: those of them that a user requested.
    `role`: see `Role`. `picked`: the events that its site always refuses. `is_unclear`: a change was not
    answered. `is_restless`: deliveries may begin again at any time.
    """

    tag: str
    kind: str
    name: str
    log: str
    site: str
    delivery: Delivery
    order: str
    created_ms: int
    filters: list[Version]
    role: Role = Role.ORDINARY
    picked: set[str] = field(default_factory=set)
    is_unclear: bool = False
    generation: int = 0
    replays: int = 0
    retry_max: int = 0
    replies_to: str = ""
    uid: str = ""
    ready_ms: int | None = None
    deleted_ms: int | None = None
    disturbed: list[int] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)
    is_restless: bool = False

    @property
    def is_changing(self) -> bool:
        """Whether deliveries may be ended and begun again now, because a user changes it."""
        return bool(self.generation or self.replays)

    @property
    def is_prompt(self) -> bool:
        """Whether it gets each event at once, apart from those that its site refuses."""
        return self.role in {Role.HEALTHY, Role.PICKY}

    def matches_always(self, event: Event) -> bool:
        """Whether every filter that was used since the event was stored matches it."""
        assert event.attributes is not None
        used = [self.filters[-1]]
        for version, following in zip(self.filters, self.filters[1:], strict=False):
            if following.settled_ms is None or following.settled_ms >= event.at_ms:
                used.append(version)
        return all(each.filter.matches(event.attributes) for each in used)

    def matches_ever(self, event: Event) -> bool:
        assert event.attributes is not None
        return any(each.filter.matches(event.attributes) for each in self.filters)

    def settled(self, now_ms: int) -> None:
        """Its status promises that it gets all events from now on, in its present form."""
        if self.ready_ms is None:
            self.ready_ms = now_ms
        if self.generation:
            self.generation = 0
            self.disturbed.append(now_ms)
            self.changes.append(now_ms)
        if self.filters[-1].settled_ms is None:
            self.filters[-1].settled_ms = now_ms
