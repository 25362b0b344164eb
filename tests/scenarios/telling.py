"""What happened, in lines: the same for every client, whatever the order in which independent things arrived.

Lines are ordered by link, in the order of their attaches; of one link: the attach, what it reads, events by
partition, outcomes, the end. Opaque things are shown as they are; times only as before or after a mark.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from amqp_streams import names

ClientEvent = Mapping[str, Any]
"""The events as clients report them. `event` is opened, attached, detached, delivery, outcome or
disconnected, with the fields used here.
"""

_TERMS: Final = (
    ("partition", names.PARTITION),
    ("group", names.CONSUMER_GROUP),
    ("epoch", names.EPOCH),
    ("producer", names.PRODUCER_ID),
    ("sequence", names.PRODUCER_SEQUENCE),
)
_ORDER: Final = ("opened", "attached", "delivery", "outcome", "detached", "disconnected")


class Teller:
    """Lines for one scenario: it knows the links and the marks."""

    def __init__(self) -> None:
        self.marks: dict[str, int] = {}
        self.offsets: dict[str, str] = {}
        self._links: list[str] = []
        self._refused: set[str] = set()

    def attaching(self, link: str) -> None:
        """A link is about to attach."""
        if link in self._links:
            self._links.remove(link)
        self._links.append(link)

    def lines(self, client_events: Iterable[ClientEvent]) -> list[str]:
        """Return the lines for these events. The lines do not depend on the order of arrival, except within a
        partition.
        """
        lines: list[tuple[tuple[int, int, int, str], str]] = []
        for client_event in client_events:
            subject = str(client_event.get("link") or client_event["connection"])
            place = self._links.index(subject) if subject in self._links else -1
            kind = _ORDER.index(client_event["event"])
            for minor, line in self._told(subject, client_event):
                lines.append(((place, kind, minor, "" if place >= 0 else subject), line))
        return [line for _, line in sorted(lines, key=lambda each: each[0])]

    # One for each event.
    def _told(self, subject: str, client_event: ClientEvent) -> list[tuple[int, str]]:  # noqa: PLR0911
        match client_event["event"]:
            case "opened":
                wanted = [each for each in client_event["offered"] if each.startswith("AMQP_EVENT_STREAMS")]
                return [(0, f"{subject} is offered {', '.join(wanted)}")]
            case "attached" if client_event["terminus"]:
                return [(0, f"{subject} attached{self._terms(client_event)}")]
            case "attached":
                self._refused.add(subject)
                return []
            case "detached":
                how = "refused" if subject in self._refused else "closed"
                self._refused.discard(subject)
                return [(0, f"{subject} {how}{_condition(client_event)}")]
            case "delivery":
                return self._delivered(subject, client_event)
            case "outcome":
                condition = f" {client_event['condition']}" if client_event.get("condition") else ""
                return [(0, f"{subject}: {client_event['body']} {client_event['outcome']}{condition}")]
            case _:
                return [(0, f"{subject} disconnected")]

    def _terms(self, client_event: ClientEvent) -> str:
        properties = client_event["properties"]
        terms = [f"{word} {_number(properties[name])}" for word, name in _TERMS if name in properties]
        terms += [f"filter {name}" for name in sorted(client_event.get("filters") or ())]
        terms += ["durable"] if client_event.get("durable") else []
        return "".join(f", {term}" for term in terms)

    def _delivered(self, subject: str, client_event: ClientEvent) -> list[tuple[int, str]]:
        body, annotations = client_event["body"], client_event["annotations"]
        if isinstance(body, dict):
            return [
                (0, f"{subject} reads: partition {each['partition']}, {_span(each)}")
                for each in body["partitions"]
            ]
        partition, offset, moment = (
            annotations[names.SOURCE_PARTITION],
            annotations[names.OFFSET],
            int(annotations[names.TIMESTAMP]),
        )
        self.offsets[body] = offset
        marks = [f", {'after' if moment > mark else 'before'} {name}" for name, mark in self.marks.items()]
        others = sorted(
            set(annotations)
            - {names.SOURCE_PARTITION, names.OFFSET, names.TIMESTAMP, names.ASSOCIATED_PARTITIONS}
        )
        key = client_event.get("key")
        words = f"{subject} gets {body}, partition {partition}, offset {offset}{''.join(marks)}"
        words += (f", key {key}" if key is not None else "") + "".join(
            f", {name} {annotations[name]}" for name in others
        )
        minor = int(partition)
        told: list[tuple[int, str]] = []
        if names.ASSOCIATED_PARTITIONS in annotations:
            told.append(
                (-1, f"{subject} reads partitions {' '.join(annotations[names.ASSOCIATED_PARTITIONS])}")
            )
        return [*told, (minor, words)]


def _number(value: object) -> object:
    """Return a number. Proton's numbers carry their AMQP types."""
    return int(value) if isinstance(value, int) else value


def _span(entry: Mapping[str, Any]) -> str:
    earliest, latest = entry[names.INFO_EARLIEST_OFFSET], entry[names.INFO_LATEST_OFFSET]
    return "empty" if earliest is None and latest is None else f"{earliest} to {latest}"


def _condition(client_event: ClientEvent) -> str:
    condition = client_event.get("condition")
    if not condition:
        return ""
    info = client_event.get("info") or {}
    place = (
        f" {info['network-host']}:{_number(info['port'])} {info['address']}"
        if condition == names.LINK_REDIRECT
        else ""
    )
    filters = (
        f" ({info['filter']}, position {info['position']})" if "filter" in info and "position" in info else ""
    )
    return f" {condition}{place}{filters}"
