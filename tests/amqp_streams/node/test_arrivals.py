"""Attaches and requests on a store that answers later, and whose logs other nodes use as well."""

from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.policy import AccessRule, Right
from amqp_streams.server.links.control import INFO_INTERVAL_MS
from amqp_streams.storage.ports import StoredLog
from amqp_streams.storage.questions import Question, Refresh
from amqp_streams.testing import Lateness, MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, filter_of
from tests.amqp_streams.decoded import mapping

NOW = 1_700_000_000_000
EARLIEST = filter_of("@earliest")


class Network:
    """A node, and what it asks its store. `held`: answers wait for `answer`."""

    def __init__(self, **settings: Any) -> None:
        self.held = False
        self.broken: str | None = None
        """Why the store cannot answer questions."""
        self.questions: list[Question] = []
        self._calls: list[Any] = []
        self.store = MemoryStore(late=Lateness(self._defer))
        ask = self.store.ask

        def asked(question: Question, request: Any) -> Any:
            if request.pending is None:
                self.questions.append(question)
            if self.broken is not None:
                raise StorageError(self.broken)
            return ask(question, request)

        self.store.ask = asked  # type: ignore[method-assign]
        self.node = InMemoryNode({"temps": 1}, store=self.store, **settings)

    def _defer(self, call: Any) -> None:
        if self.held:
            self._calls.append(call)
        else:
            self.node.loop.call_soon(call)

    def answer(self) -> None:
        """Give the answers that are held."""
        calls, self._calls = self._calls, []
        for call in calls:
            call()
        self.node.run()

    def elsewhere(self, name: str, *messages: bytes) -> StoredLog:
        """A log that another node has created and written to."""
        log = self.store.create_elsewhere(name, LogSettings(), incarnation=name)
        if messages:
            self.store.append_elsewhere(log.partitions[0], messages, NOW)
        return log


def data(text: bytes) -> bytes:
    return bytes(proton.Message(body=text).encode())


def condition(link: Any) -> str | None:
    found = link.link.remote_condition
    return None if found is None else str(found.name)


def test_a_log_of_another_node_is_found_by_readers_and_writers() -> None:
    network = Network()
    network.elsewhere("theirs", data(b"a"), data(b"b"))
    pair = EnginePair(network.node)
    receiver = pair.receiver("theirs", filters=EARLIEST, credit=10)
    assert [each.message.body for each in receiver.arrived] == [b"a", b"b"]
    sender = pair.sender("theirs")
    pair.send(sender, data(b"c"))
    assert [each.message.body for each in receiver.arrived] == [b"a", b"b", b"c"]
    network.elsewhere("more")
    info = pair.receiver("more/$info", credit=1)
    assert mapping(info.take()[0].message.body)[names.INFO_LOG] == "more"


def test_the_latest_event_is_the_latest_of_all_nodes() -> None:
    network = Network()
    partition = network.store.logs["temps"].partitions[0]
    network.store.append_elsewhere(partition, [data(b"before")], NOW)
    pair = EnginePair(network.node)
    receiver = pair.receiver("temps", credit=10)
    pair.send(pair.sender("temps"), data(b"after"))
    assert [each.message.body for each in receiver.arrived] == [b"after"]


def test_each_information_message_is_as_new_as_its_credit() -> None:
    network = Network()
    partition = network.store.logs["temps"].partitions[0]
    pair = EnginePair(network.node)
    info = pair.receiver("temps/$info")
    assert network.questions == []
    for number in range(3):
        network.store.append_elsewhere(partition, [data(b"x")], NOW)
        network.held = number == 1
        pair.flow(info, 1)
        network.held = False
        # More credit while the store is asked must not bring more questions or messages.
        pair.flow(info, 0)
        network.answer()
        (entry,) = mapping(info.take()[0].message.body)["partitions"]
        assert entry["latest-offset"] == f"{number:016d}"
        network.node.advance(INFO_INTERVAL_MS)
    assert network.questions == [Refresh("temps", (0,))] * 3
    assert info.arrived == []


def test_an_information_link_closes_with_words_if_the_store_cannot_answer() -> None:
    network = Network()
    pair = EnginePair(network.node)
    info = pair.receiver("temps/$info")
    network.broken = "no partition answers"
    pair.flow(info, 1)
    assert condition(info) == names.INTERNAL_ERROR
    assert info.arrived == []


def test_an_attach_that_waits_delays_no_other_link() -> None:
    network = Network()
    pair = EnginePair(network.node)
    sender = pair.sender("temps")
    network.held = True
    receiver = pair.receiver("missing", filters=EARLIEST, credit=10)
    pair.send(sender, data(b"a"))
    assert network.store.logs["temps"].partitions[0].end == 1
    assert condition(receiver) is None
    network.answer()
    assert condition(receiver) == names.NOT_FOUND


@pytest.mark.parametrize("left_before", [True, False])
def test_a_client_that_leaves_while_its_attach_waits_leaves_nothing(*, left_before: bool) -> None:
    network = Network()
    network.elsewhere("theirs", data(b"a"))
    pair = EnginePair(network.node)
    network.held = True
    receiver = pair.receiver("theirs", filters=EARLIEST, credit=10)
    if left_before:
        network.answer()
    pair.detach(receiver)
    network.held = False
    network.answer()
    assert not receiver.arrived
    assert not list(network.node.service.node.consumers())
    again = pair.receiver("theirs", filters=EARLIEST, credit=10)
    assert len(again.arrived) == 1


def test_attaches_that_create_the_same_log_get_the_same_log() -> None:
    network = Network(auto_create_partitions=2)
    pair, other = EnginePair(network.node), EnginePair(network.node)
    network.held = True
    one, two = pair.receiver("new", filters=EARLIEST, credit=10), other.sender("new")
    network.held = False
    network.answer()
    assert len(network.store.logs["new"].partitions) == 2
    other.send(two, data(b"a"))
    assert len(one.arrived) == 1


def test_a_client_without_the_right_causes_no_question() -> None:
    network = Network(
        access=(AccessRule(users=("*",), logs=("temps",), allow=(Right.RECEIVE,)),), auto_create_partitions=1
    )
    network.elsewhere("theirs")
    receiver = EnginePair(network.node).receiver("theirs", filters=EARLIEST, credit=10)
    assert condition(receiver) == names.UNAUTHORIZED_ACCESS
    assert network.questions == []


def test_a_member_of_a_group_waits_for_the_store_and_then_for_its_partition() -> None:
    network = Network()
    pair = EnginePair(network.node)
    pair.send(pair.sender("temps"), data(b"a"))
    group = {names.CONSUMER_GROUP: "g"}
    first = pair.receiver("temps", properties=group, filters=EARLIEST, credit=10)
    second = pair.receiver("temps", properties=group, filters=EARLIEST, credit=10)
    assert (len(first.arrived), len(second.arrived)) == (1, 0)
    pair.detach(first)
    network.node.run()
    assert len(second.arrived) == 1


def test_requests_wait_for_the_store() -> None:
    network = Network()
    network.elsewhere("theirs", data(b"a"))
    pair = EnginePair(network.node)

    def answers_link(link: Any) -> None:
        link.target.address = "answers"

    answers, sender = (
        pair.receiver("$management", prepare=answers_link, credit=10),
        pair.sender("$management"),
    )

    def ask(operation: str, name: str, body: Any = None) -> tuple[int, Any]:
        properties = {"operation": operation, "type": names.LOG_TYPE, "name": name}
        message = proton.Message(body=body, id=1, reply_to="answers", properties=properties)
        pair.send(sender, bytes(message.encode()))
        message = answers.take()[0].message
        return mapping(message.properties)["statusCode"], message.body

    assert ask("CREATE", "new", {"partitions": proton.int32(3)})[0] == 201
    assert len(network.store.logs["new"].partitions) == 3
    network.elsewhere("taken")
    status, body = ask("READ", "theirs")
    assert (status, body["partitions"][0][names.INFO_EVENTS]) == (200, 1)
    assert ask("UPDATE", "new", {"retention-ms": proton.ulong(5000)})[0] == 200
    assert network.store.logs["new"].settings.retention_ms == 5000
    assert ask("DELETE", "taken")[0] == 204
    assert ask("DELETE", "taken")[0] == 404
    partition = network.store.logs["theirs"].partitions[0]
    network.store.append_elsewhere(partition, [data(b"b")], NOW + 5)
    status, body = ask(names.EXTENTS, "theirs", {"timestamp": proton.timestamp(NOW + 1)})
    (extent,) = body["logs"][0]["partitions"]
    assert (status, extent[names.EXTENT_FOUND], extent[names.EXTENT_NEXT]) == (200, 1, 2)
