"""The stage in memory: Proton's engine on both sides, a clock that is moved, no sockets."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import proton

from amqp_streams import names
from amqp_streams.config import GroupSettings
from amqp_streams.policy import Redirect
from amqp_streams.streams.redirects import Redirects
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, Receiving, Sending, Sent
from tests.amqp_streams.decoded import condition_info
from tests.scenarios.telling import ClientEvent

_STATES = {
    "accepted": proton.Delivery.ACCEPTED,
    "rejected": proton.Delivery.REJECTED,
    "released": proton.Delivery.RELEASED,
    "modified": proton.Delivery.MODIFIED,
}


class MemoryStage:
    """See `playing.Stage`."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}
        self._clients: dict[str, EnginePair] = {}
        self._links: dict[str, _Link] = {}
        self._told: list[ClientEvent] = []

    def start(self, logs: Mapping[str, int], settings: Mapping[str, str]) -> None:
        """See `Stage`."""
        groups = {
            name.removeprefix("groups."): value.split(",") if name == "groups.only" else value
            for name, value in settings.items()
        }
        self._settings = {"groups": GroupSettings.model_validate(groups)} if groups else {}
        self._node = InMemoryNode(logs, **self._settings)
        self._clients.clear()
        self._links.clear()
        self._told.clear()

    def restart(self) -> None:
        """See `Stage`."""
        store = self._node.store.reopened()
        clock = self._node.clock
        self._node = InMemoryNode(store=store, **self._settings)
        self._node.clock.now_ms = clock.now_ms
        self._told += [{"event": "disconnected", "connection": name} for name in self._clients]
        self._clients.clear()
        self._links.clear()

    def connect(self, connection: str) -> None:
        """See `Stage`."""
        client = self._clients[connection] = EnginePair(self._node, container=f"container-{connection}")
        offered = [str(each) for each in client.connection.remote_offered_capabilities]
        self._told.append({"event": "opened", "connection": connection, "offered": offered})

    def say(self, command: Mapping[str, Any]) -> None:
        """See `Stage`."""
        getattr(self, f"_{command['do']}")(command)
        self._node.run()

    def _attach(self, command: Mapping[str, Any]) -> None:
        client = self._clients[command["connection"]]
        options: dict[str, Any] = {
            "name": command["name"],
            "properties": {key: _value(each) for key, each in command["properties"].items()},
        }
        if command["role"] == "producer":
            link: Sending | Receiving = client.sender(command["address"], **options)
        else:
            if command["filters"]:
                options["filters"] = {name: _described(each) for name, each in command["filters"].items()}
            if command["durable"]:
                options["prepare"] = _durable
            if command["presettled"]:
                options["settle"] = (proton.Link.SND_SETTLED, proton.Link.RCV_FIRST)
            link = client.receiver(command["address"], **options)
        self._links[command["link"]] = _Link(command["link"], command["connection"], client, link)
        if command["credit"] and isinstance(link, Receiving):
            client.flow(link, command["credit"])

    def _send(self, command: Mapping[str, Any]) -> None:
        link = self._links[command["link"]]
        assert isinstance(link.inner, Sending)
        for place, body in enumerate(command["bodies"]):
            properties = {"n": int(command["n"])} if "n" in command else None
            message = proton.Message(body=body, properties=properties)
            instructions: dict[Any, Any] = {}
            if "target" in command:
                instructions[proton.symbol(names.TARGET_PARTITION)] = proton.symbol(command["target"])
            if "relayed-from" in command:
                instructions[proton.symbol(names.SOURCE_PARTITION)] = proton.symbol(command["relayed-from"])
            if "sequence" in command:
                instructions[proton.symbol(names.SEQUENCE)] = proton.ulong(command["sequence"] + place)
            message.instructions = instructions or None
            if "key" in command:
                message.annotations = {proton.symbol(names.GROUP_KEY): command["key"]}

            link.sent.append((body, link.inner.send(message)))

    def _settle(self, command: Mapping[str, Any]) -> None:
        link = self._links[command["link"]]
        assert isinstance(link.inner, Receiving)
        for body in command["bodies"]:
            arrived = next(
                each for each in link.inner.arrived if each.body == body and not each.delivery.settled
            )
            link.client.settle(arrived, _STATES[command["outcome"]])

    def _credit(self, command: Mapping[str, Any]) -> None:
        link = self._links[command["link"]]
        link.client.flow(link.inner, command["credit"])  # type: ignore[arg-type]  # a consumer's

    def _detach(self, command: Mapping[str, Any]) -> None:
        self._links.pop(command["link"]).inner.link.close()

    def _lose(self, command: Mapping[str, Any]) -> None:
        self._node.disconnect(self._clients.pop(command["connection"]))
        for name in [name for name, link in self._links.items() if link.connection == command["connection"]]:
            del self._links[name]

    def redirect(self, log: str, partitions: Sequence[int], host: str, port: int) -> None:
        """See `Stage`."""
        rules = [Redirect(log=log, partitions=tuple(partitions), host=host, port=port)] if partitions else []
        self._node.service.node.redirects = Redirects(rules)
        self._node.service.reassociate()
        self._node.run()

    def wait(self, ms: int) -> None:
        """See `Stage`."""
        self._node.advance(ms)

    def now_ms(self) -> int:
        """See `Stage`."""
        return self._node.clock.now_ms

    def heard(self, enough: Callable[[list[ClientEvent]], bool]) -> list[ClientEvent]:
        """See `Stage`: nothing is on its way in memory."""
        for _ in range(2):  # a link that the node closed is closed here, too, and that may bring more
            for link in list(self._links.values()):
                self._told += link.changes()
            self._node.run()
        told, self._told = self._told, []
        return told


class _Link:
    """A link, and which of its events were already reported."""

    def __init__(self, name: str, connection: str, client: EnginePair, inner: Sending | Receiving) -> None:
        self.name = name
        self.connection = connection
        self.client = client
        self.inner = inner
        self.sent: list[tuple[str, Sent]] = []
        self._attached = self._closed = False
        self._arrived = 0

    def changes(self) -> list[ClientEvent]:
        """Return what happened since the last call."""
        found: list[ClientEvent] = []
        link = self.inner.link
        if not self._attached and link.state & (
            proton.Endpoint.REMOTE_ACTIVE | proton.Endpoint.REMOTE_CLOSED
        ):
            self._attached = True
            found.append(self._terms())
        if isinstance(self.inner, Receiving):
            for arrived in self.inner.arrived[self._arrived :]:
                annotated: Mapping[Any, Any] = arrived.message.annotations or {}
                key = annotated.get(names.GROUP_KEY)
                annotations = {name: _plain(value) for name, value in arrived.annotations.items()}
                found.append(
                    {
                        "event": "delivery",
                        "link": self.name,
                        "body": arrived.body,
                        "annotations": annotations,
                        "key": key,
                    }
                )
            self._arrived = len(self.inner.arrived)
        for body, sent in [each for each in self.sent if each[1].outcome]:
            self.sent.remove((body, sent))
            found.append(
                {
                    "event": "outcome",
                    "link": self.name,
                    "body": body,
                    "outcome": sent.outcome,
                    "condition": sent.condition,
                }
            )
        if not self._closed and link.state & proton.Endpoint.REMOTE_CLOSED:
            self._closed = True
            found.append(self._end())
            link.close()
        return found

    def _terms(self) -> ClientEvent:
        link = self.inner.link
        own = link.remote_source if isinstance(self.inner, Receiving) else link.remote_target
        filters = (
            list(own.filter.get_object())
            if isinstance(self.inner, Receiving) and own.filter.next() is not None
            else []
        )
        return {
            "event": "attached",
            "link": self.name,
            "terminus": own.type != proton.Terminus.UNSPECIFIED,
            "properties": {str(key): value for key, value in (link.remote_properties or {}).items()},
            "filters": [str(name) for name in filters],
            "durable": own.durability != proton.Terminus.NONDURABLE
            and own.expiry_policy == proton.Terminus.EXPIRE_NEVER,
        }

    def _end(self) -> ClientEvent:
        condition = self.inner.link.remote_condition
        info = condition_info(self.inner.link) if condition and condition.info else {}
        return {
            "event": "detached",
            "link": self.name,
            "condition": condition.name if condition else None,
            "info": info,
        }


def _durable(link: proton.Receiver) -> None:
    link.source.durability = proton.Terminus.DELIVERIES
    link.source.expiry_policy = proton.Terminus.EXPIRE_NEVER


def _plain(value: Any) -> Any:
    return [str(each) for each in value.elements] if isinstance(value, proton.Array) else value


def _value(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    ((kind, value),) = given.items()
    return {"symbol": proton.symbol, "ulong": proton.ulong, "timestamp": proton.timestamp}[kind](value)


def _described(given: Mapping[str, Any]) -> proton.Described:
    descriptor = given["descriptor"]
    value = (
        given["text"]
        if "text" in given
        else {proton.symbol(key): _value(each) for key, each in given["map"].items()}
    )
    return proton.Described(
        proton.symbol(descriptor) if isinstance(descriptor, str) else proton.ulong(descriptor), value
    )
