"""One connection with Qpid Proton's own client: told what to do in JSON lines on stdin, tells what happens on
stdout. See ../README.md.
"""

import json
import sys
import threading
from typing import Any

from proton import (
    Array,
    Delivery,
    Described,
    Endpoint,
    Link,
    Message,
    Terminus,
    int32,
    symbol,
    timestamp,
    ulong,
)
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector, LinkOption

TYPES = {"symbol": symbol, "ulong": ulong, "timestamp": timestamp}
OUTCOMES = {
    "accepted": Delivery.ACCEPTED,
    "rejected": Delivery.REJECTED,
    "released": Delivery.RELEASED,
    "modified": Delivery.MODIFIED,
}
SAID = {int(state): name for name, state in OUTCOMES.items()}


def value(given: Any) -> Any:
    """A value as it was written in JSON."""
    if not isinstance(given, dict):
        return given
    ((kind, inner),) = given.items()
    return TYPES[kind](inner)


def filter_of(given: dict[str, Any]) -> Described:
    """A filter: a text or a map, described by a symbol or by a code."""
    descriptor = given["descriptor"]
    content = (
        given["text"]
        if "text" in given
        else {symbol(key): value(inner) for key, inner in given["map"].items()}
    )
    return Described(symbol(descriptor) if isinstance(descriptor, str) else ulong(descriptor), content)


class Terms(LinkOption):
    """What a link asks for."""

    def __init__(self, command: dict[str, Any]) -> None:
        self.command = command

    def apply(self, link: Link) -> None:
        """See LinkOption."""
        properties = self.command["properties"]
        if properties:
            link.properties = {symbol(key): value(inner) for key, inner in properties.items()}
        if link.is_sender:
            return
        if self.command["filters"]:
            link.source.filter.put_object(
                {symbol(name): filter_of(inner) for name, inner in self.command["filters"].items()}
            )
        if self.command["durable"]:
            link.source.durability, link.source.expiry_policy = Terminus.DELIVERIES, Terminus.EXPIRE_NEVER
        if self.command["presettled"]:
            link.snd_settle_mode = Link.SND_SETTLED


class Scenario(MessagingHandler):  # type: ignore[misc]  # it has no types
    """Does what it is told, tells what happens."""

    def __init__(self, url: str, container: str) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=True)
        self.url, self.container_id = url, container
        self.links: dict[str, Link] = {}
        self.names: dict[Link, str] = {}
        self.arrived: dict[tuple[str, str], Delivery] = {}
        self.sent: dict[str, str] = {}
        self.waiting: list[dict[str, Any]] = []

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.injector = EventInjector()
        self.container.selectable(self.injector)
        self.connection = self.container.connect(self.url, reconnect=False)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self.injector.trigger(ApplicationEvent("command", subject=json.loads(line)))

    def on_command(self, event: Any) -> None:
        getattr(self, event.subject["do"])(event.subject)

    # -- what it is told

    def attach(self, command: dict[str, Any]) -> None:
        create = (
            self.container.create_sender if command["role"] == "producer" else self.container.create_receiver
        )
        link = create(self.connection, command["address"], name=command["name"], options=[Terms(command)])
        self.links[command["link"]], self.names[link] = link, command["link"]
        if command["credit"]:
            link.flow(command["credit"])

    def send(self, command: dict[str, Any]) -> None:
        link = self.links[command["link"]]
        for place, body in enumerate(command["bodies"]):
            message = Message(body=body)
            hints = {
                "target": "event-streams-target-partition",
                "relayed-from": "event-streams-source-partition",
            }
            instructions: dict[symbol, Any] = {
                symbol(name): symbol(command[hint]) for hint, name in hints.items() if hint in command
            }
            if "sequence" in command:
                instructions[symbol("x-opt-amqp-streams-sequence")] = ulong(command["sequence"] + place)
            message.instructions = instructions or None
            if "key" in command:
                message.annotations = {symbol("event-streams-group-key"): command["key"]}
            if "n" in command:
                message.properties = {"n": int32(int(command["n"]))}
            self.sent[f"{link.name} {link.send(message).tag}"] = body

    def settle(self, command: dict[str, Any]) -> None:
        for body in command["bodies"]:
            delivery = self.arrived.pop((command["link"], body))
            delivery.update(OUTCOMES[command["outcome"]])
            delivery.settle()

    def credit(self, command: dict[str, Any]) -> None:
        self.links[command["link"]].flow(command["credit"])

    def detach(self, command: dict[str, Any]) -> None:
        self.links.pop(command["link"]).close()

    # -- what happens

    def on_connection_opened(self, event: Any) -> None:
        tell("opened", offered=[str(each) for each in event.connection.remote_offered_capabilities or []])

    def on_link_opened(self, event: Any) -> None:
        link = event.link
        own = link.remote_target if link.is_sender else link.remote_source
        filters = list(own.filter.get_object()) if link.is_receiver and own.filter.next() is not None else []
        tell(
            "attached",
            link=self.names[link],
            terminus=own.type != Terminus.UNSPECIFIED,
            properties={str(key): inner for key, inner in (link.remote_properties or {}).items()},
            filters=[str(each) for each in filters],
            durable=own.durability != Terminus.NONDURABLE and own.expiry_policy == Terminus.EXPIRE_NEVER,
        )

    def on_link_error(self, event: Any) -> None:
        self._ended(event.link)

    def on_link_closing(self, event: Any) -> None:
        self._ended(event.link)

    def _ended(self, link: Link) -> None:
        condition = link.remote_condition
        info = {str(key): inner for key, inner in (condition.info or {}).items()} if condition else {}
        tell("detached", link=self.names[link], condition=condition.name if condition else None, info=info)
        if link.state & Endpoint.LOCAL_ACTIVE:
            link.close()

    def on_message(self, event: Any) -> None:
        name, message = self.names[event.link], event.message
        if event.link.state & Endpoint.LOCAL_CLOSED:
            return
        if not event.delivery.settled:
            self.arrived[name, str(message.body)] = event.delivery
        annotations = {str(key): plain(inner) for key, inner in (message.instructions or {}).items()}
        key = (message.annotations or {}).get("event-streams-group-key")
        tell("delivery", link=name, body=message.body, annotations=annotations, key=key)

    def on_accepted(self, event: Any) -> None:
        self._outcome(event)

    def on_rejected(self, event: Any) -> None:
        self._outcome(event)

    def on_released(self, event: Any) -> None:
        self._outcome(event)

    def _outcome(self, event: Any) -> None:
        condition = event.delivery.remote.condition
        body = self.sent.pop(f"{event.link.name} {event.delivery.tag}")
        outcome = SAID[int(event.delivery.remote_state)]
        tell(
            "outcome",
            link=self.names[event.link],
            body=body,
            outcome=outcome,
            condition=condition.name if condition else None,
        )

    def on_transport_closed(self, _event: Any) -> None:
        tell("disconnected")


def plain(given: Any) -> Any:
    """Arrays as lists, numbers as numbers."""
    return list(given.elements) if isinstance(given, Array) else given


def tell(what: str, **fields: Any) -> None:
    """One line."""
    print(json.dumps({"event": what} | fields), flush=True)


if __name__ == "__main__":
    scenario = Scenario(sys.argv[1], sys.argv[2])
    container = Container(scenario)
    container.container_id = sys.argv[2]
    container.run()
