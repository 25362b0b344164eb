"""Brokers, Channels and what receives their events, as rows of the map. Pure.

They are read from Tables of the API, which have no events and no answers of subscribers. All texts are cut.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from web_console.gateway import values

STATES: Final = {
    "": "all",
    "waiting": "not ready",
    "paused": "paused",
    "failing": "with lost or dead-lettered events",
    "behind": "with lag",
}
"""What a state of the search means."""
PLURALS: Final = {
    "broker": "apis/eventing.knative.dev/v1/{}brokers",
    "channel": "apis/messaging.knative.dev/v1/{}channels",
    "inmemorychannel": "apis/messaging.knative.dev/v1/{}inmemorychannels",
    "trigger": "apis/eventing.knative.dev/v1/{}triggers",
    "subscription": "apis/messaging.knative.dev/v1/{}subscriptions",
}
"""The path of a kind; `{}` is for the namespace."""
TITLES: Final = {
    "broker": "Broker",
    "channel": "Channel",
    "inmemorychannel": "InMemoryChannel",
    "trigger": "Trigger",
    "subscription": "Subscription",
}

Key = tuple[str, str, str]
"""Kind, namespace, name."""


@dataclass(frozen=True, slots=True)
class Source:
    """A Broker or Channel. `ready`: `True`, `False`, `Unknown`, or empty."""

    kind: str
    namespace: str
    name: str
    url: str
    ready: str
    reason: str

    @property
    def key(self) -> Key:
        """What identifies it."""
        return self.kind, self.namespace, self.name

    @property
    def title(self) -> str:
        """Its kind, in the spelling of the API."""
        return TITLES[self.kind]


@dataclass(frozen=True, slots=True)
class Receiver:
    """A Trigger or Subscription. A count is None if the gateway does not report it."""

    kind: str
    namespace: str
    name: str
    source: Key
    subscriber: str
    sink: str
    ready: str
    reason: str
    delivered: int | None
    failed: int | None
    dead_lettered: int | None
    dropped: int | None
    lag: int | None

    @property
    def key(self) -> Key:
        """What identifies it."""
        return self.kind, self.namespace, self.name

    @property
    def row(self) -> str:
        """The name of its row in a page."""
        return "/".join(self.key)

    @property
    def title(self) -> str:
        """Its kind, in the spelling of the API."""
        return TITLES[self.kind]

    @property
    def state(self) -> str:
        """Whether it delivers, in a word or two."""
        if self.ready == "True":
            return "paused" if self.reason == "Paused" else "ready"
        return f"not ready: {self.reason}" if self.reason else "not ready"

    def has(self, state: str) -> bool:
        """Whether it is in one of `STATES`."""
        match state:
            case "waiting":
                return self.ready != "True"
            case "paused":
                return self.reason == "Paused"
            case "failing":
                return bool(self.dead_lettered or self.dropped)
            case "behind":
                return bool(self.lag)
        return True


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the map: a source with one of its receivers, or with none.

    `source` None: it does not exist, or is not of one of the kinds above.
    """

    key: Key
    source: Source | None
    receiver: Receiver | None


def collection(kind: str, namespace: str) -> str:
    """Return the path of the objects of a kind. `namespace`: already quoted; empty: all."""
    return "/" + PLURALS[kind].format(f"namespaces/{namespace}/" if namespace else "")


def records(table: Mapping[str, Any], namespace: str) -> Iterable[dict[str, Any]]:
    """Yield the rows of a Table by the names of its columns in lower case, with `namespace`."""
    heads = [str(column.get("name", "")).lower() for column in _maps(table.get("columnDefinitions"))]
    for row in _maps(table.get("rows")):
        cells = row.get("cells")
        found = dict(zip(heads, cells if isinstance(cells, list) else (), strict=False))
        metadata = (row.get("object") or {}).get("metadata") or {}
        yield {**found, "namespace": namespace or values.text(metadata.get("namespace"))}


def source_of(kind: str, record: Mapping[str, Any]) -> Source:
    """Return the source of a row."""
    given = (values.text(record.get(name)) for name in ("namespace", "name", "url", "ready", "reason"))
    return Source(kind, *given)


def receiver_of(kind: str, record: Mapping[str, Any]) -> Receiver:
    """Return the receiver of a row."""
    namespace = values.text(record.get("namespace"))
    source = (
        ("broker", values.text(record.get("broker")))
        if kind == "trigger"
        else (values.text(record.get("channel_kind")).lower(), values.text(record.get("channel")))
    )
    names = ("subscriber_uri", "dead_letter_sink_uri", "ready", "reason")
    subscriber, sink, ready, reason = (values.text(record.get(name)) for name in names)
    return Receiver(
        kind,
        namespace,
        values.text(record.get("name")),
        (source[0], namespace, source[1]),
        subscriber or values.text(record.get("reply_uri")),
        sink,
        ready,
        reason,
        *(
            values.number(record.get(name))
            for name in ("delivered", "failed", "dead_lettered", "dropped", "lag")
        ),
    )


def lines(
    sources: Sequence[Source], receivers: Sequence[Receiver], *, find: str = "", state: str = ""
) -> list[Line]:
    """Return the lines of the map, by namespace, source and receiver.

    `find`: a part of a name, or of the URL of a subscriber, in any case. A state leaves out sources without a
    receiver in this state.
    """
    wanted = find.lower()
    known = {source.key: source for source in sources}
    found = [
        Line(one.source, known.get(one.source), one)
        for one in receivers
        if one.has(state) and _is_found(wanted, one.name, one.source[2], one.subscriber)
    ]
    if not state:
        fed = {one.source for one in receivers}
        found += [
            Line(one.key, one, None) for one in sources if one.key not in fed and _is_found(wanted, one.name)
        ]
    return sorted(found, key=_order)


def _order(line: Line) -> tuple[str, ...]:
    kind, namespace, name = line.key
    return namespace, kind, name, *(line.receiver.key[2:] if line.receiver else ("",))


def _is_found(wanted: str, *texts: str) -> bool:
    return any(wanted in text.lower() for text in texts)


def _maps(value: object) -> Iterable[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else ()
