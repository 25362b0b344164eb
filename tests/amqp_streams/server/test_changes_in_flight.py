"""Changes of logs while the disk pauses: others are served, and the changes of a log follow each other.

A change that has begun is completed with all that follows from it, also if its client leaves.
"""

from collections.abc import Callable
from typing import Any

import proton
import pytest
from structlog.testing import capture_logs

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.streams import info
from amqp_streams.testing import FaultyFiles, ManualLoop
from amqp_streams.testing_amqp import EnginePair, filter_of
from tests.amqp_streams.decoded import mapping
from tests.amqp_streams.storage.conftest import open_in_memory, open_inline
from tests.amqp_streams.storage.held import HeldStore
from tests.stores import StoreNode


class PausedNode(StoreNode):
    """A node whose disk pauses for everything but commits and states, until `resume`."""

    def __init__(self, files: FaultyFiles | None = None, **settings: Any) -> None:
        calls = ManualLoop()
        store = self.held = open_in_memory(HeldStore, files or FaultyFiles(), calls)
        for thread in (store.writer, store.keeper, store.states_writer):
            thread.at_once = True
        super().__init__({"temps": 1, "other": 1}, store=store, calls=calls, **settings)
        self.run()
        store.keeper.at_once = False

    def resume(self, tasks: int = 1 << 30) -> None:
        """The disk does this much of what waits for it."""
        self.held.keeper.at_once = tasks == 1 << 30
        self.held.keeper.run(tasks)
        self.run()


class Manager:
    """A connection that manages logs."""

    def __init__(self, node: StoreNode) -> None:
        self.pair = EnginePair(node)
        self.answers = self.pair.receiver(names.MANAGEMENT, prepare=_called_answers, credit=100)
        self.requests = self.pair.sender(names.MANAGEMENT)

    def ask(self, operation: str, name: str, **body: Any) -> None:
        """Send a request."""
        properties = {"operation": operation, "type": "event-log", "name": name}
        settings = {key.replace("_", "-"): value for key, value in body.items()}
        message = proton.Message(body=settings, id=1, reply_to="answers", properties=properties)
        self.pair.send(self.requests, bytes(message.encode()))

    def statuses(self) -> list[int]:
        """The status of each answer since the last call."""
        return [mapping(each.message.properties)["status-code"] for each in self.answers.take()]


def _called_answers(link: Any) -> None:
    link.target.address = "answers"


def refusal(link: Any) -> str | None:
    condition = link.link.remote_condition
    return None if condition is None else str(condition.name)


CHANGES: list[tuple[str, str, dict[str, Any], int]] = [
    ("CREATE", "new", {"partitions": 3}, 201),
    ("UPDATE", "temps", {"retention_ms": 5000}, 200),
    ("DELETE", "temps", {}, 204),
]


@pytest.mark.parametrize(("operation", "name", "body", "status"), CHANGES)
def test_a_change_of_a_log_delays_no_other_client_while_the_disk_pauses(
    operation: str, name: str, body: dict[str, Any], status: int
) -> None:
    node = PausedNode()
    manager, pair = Manager(node), EnginePair(node)
    sender, receiver = pair.sender("other"), pair.receiver("other", credit=10)
    manager.ask(operation, name, **body)
    for number in range(3):
        (sent,) = pair.send(sender, proton.Message(body=number))
        assert sent.outcome == "accepted"
        assert receiver.bodies[-1] == number
    others = Manager(node)
    others.ask("READ", "other")
    assert others.statuses() == [200]
    assert manager.statuses() == [], "the disk still pauses"
    node.resume()
    assert manager.statuses() == [status]


def test_the_limit_of_partitions_counts_logs_that_are_being_created() -> None:
    node = PausedNode(limits=Limits(partitions=10))
    managers = [Manager(node) for _ in range(3)]
    for manager, (name, partitions) in zip(managers, (("a", 5), ("b", 4), ("c", 3)), strict=True):
        manager.ask("CREATE", name, partitions=partitions)
    assert [manager.statuses() for manager in managers] == [[], [403], []]
    node.resume()
    assert [manager.statuses() for manager in managers] == [[201], [], [201]]
    assert sorted(node.store.logs) == ["a", "c", "other", "temps"]
    # Creations that have ended or failed do not count any more.
    managers[0].ask("DELETE", "a")
    managers[1].ask("CREATE", "b", partitions=5)
    assert (managers[0].statuses(), managers[1].statuses()) == ([204], [201])


def test_of_two_creations_of_a_log_one_is_refused() -> None:
    node = PausedNode()
    first, second = Manager(node), Manager(node)
    first.ask("CREATE", "new", partitions=2)
    second.ask("CREATE", "new", partitions=3)
    node.resume()
    assert (first.statuses(), second.statuses()) == ([201], [409])
    assert len(node.store.logs["new"].partitions) == 2


def test_updates_of_different_settings_at_once_lose_none() -> None:
    node = PausedNode()
    managers = [Manager(node) for _ in range(3)]
    managers[0].ask("UPDATE", "temps", retention_ms=5000)
    managers[1].ask("UPDATE", "temps", retention_bytes=1 << 20)
    managers[2].ask("UPDATE", "temps", retention_ms=6000)
    node.resume()
    assert [manager.statuses() for manager in managers] == [[200], [200], [200]]
    settings = node.store.logs["temps"].settings
    assert (settings.retention_ms, settings.retention_bytes) == (6000, 1 << 20)


def test_a_second_deletion_does_not_delete_a_later_log_of_the_name() -> None:
    node = PausedNode()
    managers = [Manager(node) for _ in range(4)]
    managers[0].ask("DELETE", "temps")
    managers[1].ask("DELETE", "temps")
    managers[2].ask("UPDATE", "temps", retention_ms=5000)
    managers[3].ask("CREATE", "temps")
    assert managers[3].statuses() == [409], "the log still exists"
    node.resume()
    assert [manager.statuses() for manager in managers[:3]] == [[204], [404], [404]]
    managers[3].ask("CREATE", "temps")
    assert managers[3].statuses() == [201]


Leave = Callable[[StoreNode, Manager], None]


def detach(_node: StoreNode, manager: Manager) -> None:
    manager.pair.detach(manager.requests)


def disconnect(node: StoreNode, manager: Manager) -> None:
    node.disconnect(manager.pair)
    node.run()


@pytest.mark.parametrize("leave", [detach, disconnect])
def test_a_deletion_is_completed_though_its_client_has_left(leave: Leave) -> None:
    node = PausedNode()
    pair, manager = EnginePair(node), Manager(node)
    kept = pair.receiver("temps", durable=True, credit=1)
    member = pair.receiver("temps", group="g", partition=0, epoch=3)
    sender = pair.sender("temps")
    manager.ask("DELETE", "temps")
    with capture_logs() as lines:
        leave(node, manager)
        assert "temps" in node.store.logs
        assert [line["event"] for line in lines if line["event"] == "managed"] == []
        node.resume()
    assert "temps" not in node.store.logs
    assert [refusal(link) for link in (kept, member, sender)] == [names.RESOURCE_DELETED] * 3
    assert "temps" not in node.service.node.counters
    assert node.store.states.items("") == []
    (managed,) = [line for line in lines if line["event"] == "managed"]
    assert (managed["operation"], managed["name"], managed["status"]) == ("DELETE", "temps", 204)


@pytest.mark.parametrize("leave", [detach, disconnect])
def test_a_change_is_audited_though_its_client_leaves_while_the_answer_is_made(leave: Leave) -> None:
    node = PausedNode()
    manager = Manager(node)
    manager.ask("CREATE", "wide", partitions=1024)
    node.held.keeper.at_once = True
    node.held.keeper.run()
    with capture_logs() as lines:
        while "wide" not in node.store.logs:
            node.turn()
        leave(node, manager)
    assert manager.statuses() == []
    assert [line["name"] for line in lines if line["event"] == "managed"] == ["wide"]


def test_a_fault_of_the_node_in_a_change_whose_link_has_ended_does_not_end_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("fault")

    node = PausedNode()
    manager = Manager(node)
    manager.ask("UPDATE", "temps", retention_ms=5000)
    monkeypatch.setattr(info, "log_info", broken)
    with capture_logs() as lines:
        detach(node, manager)
        node.resume()
    assert [line["event"] for line in lines if line["event"].endswith("failed")] == ["request_failed"]
    (sent,) = manager.pair.send(manager.pair.sender("other"), proton.Message(body=1))
    assert sent.outcome == "accepted"


@pytest.mark.parametrize("leave", [detach, disconnect])
def test_a_creation_is_completed_and_counted_though_its_client_has_left(leave: Leave) -> None:
    node = PausedNode(limits=Limits(partitions=10))
    manager, second = Manager(node), Manager(node)
    manager.ask("CREATE", "new", partitions=6)
    leave(node, manager)
    second.ask("CREATE", "more", partitions=6)
    assert second.statuses() == [403]
    node.resume()
    assert len(node.store.logs["new"].partitions) == 6


@pytest.mark.parametrize("leave", [detach, disconnect])
def test_a_change_that_waits_for_another_one_never_begins_if_its_client_leaves(leave: Leave) -> None:
    node = PausedNode()
    first, second, third = (Manager(node) for _ in range(3))
    first.ask("UPDATE", "temps", retention_ms=5000)
    second.ask("DELETE", "temps")
    third.ask("UPDATE", "temps", retention_bytes=1 << 20)
    leave(node, second)
    node.resume()
    assert (first.statuses(), third.statuses()) == ([200], [200])
    assert node.store.logs["temps"].settings.retention_bytes == 1 << 20


def test_attaches_to_a_log_that_is_being_created_wait_for_it() -> None:
    node = PausedNode(auto_create_partitions=2)
    pairs = [EnginePair(node) for _ in range(4)]
    senders = [pair.sender("made") for pair in pairs]
    pairs[0].detach(senders[0])
    pairs[1].detach(senders[1])
    assert "made" not in node.store.logs
    node.resume()
    assert [refusal(sender) for sender in senders] == [None] * 4
    for pair, sender in zip(pairs[2:], senders[2:], strict=True):
        (sent,) = pair.send(sender, proton.Message(body=1))
        assert sent.outcome == "accepted"


def test_many_attaches_to_a_log_that_is_being_created_take_no_stack() -> None:
    node = PausedNode(auto_create_partitions=1)
    pair = EnginePair(node)
    senders = [pair.sender("made") for _ in range(200)]
    node.resume()
    sent = [pair.send(sender, proton.Message(body=1))[0] for sender in senders[::20]]
    assert {each.outcome for each in sent} == {"accepted"}


def test_events_for_a_log_that_is_being_deleted_are_refused_and_other_logs_take_theirs() -> None:
    node = PausedNode()
    manager, pair = Manager(node), EnginePair(node)
    sender, other = pair.sender("temps"), pair.sender("other")
    receiver = pair.receiver("temps", filters=filter_of("@earliest"), credit=10)
    (before,) = pair.send(sender, proton.Message(body=1))
    manager.ask("DELETE", "temps")
    (during,) = pair.send(sender, proton.Message(body=2))
    (elsewhere,) = pair.send(other, proton.Message(body=3))
    assert (before.outcome, during.outcome, elsewhere.outcome) == ("accepted", "modified", "accepted")
    assert receiver.bodies == [1]
    node.resume(1)
    assert manager.statuses() == [204]
    assert [refusal(link) for link in (sender, receiver)] == [names.RESOURCE_DELETED] * 2


def test_a_log_whose_deletion_fails_continues() -> None:
    files = FaultyFiles()
    node = PausedNode(files)
    manager, pair = Manager(node), EnginePair(node)
    sender, receiver = pair.sender("temps"), pair.receiver("temps", credit=10)
    manager.ask("DELETE", "temps")
    files.fault = lambda operation, path: 5 if operation == "rename" and "trash" in path.parts else 0
    node.resume()
    files.fault = lambda operation, path: 0
    assert manager.statuses() == [500]
    (sent,) = pair.send(sender, proton.Message(body="still"))
    assert (sent.outcome, receiver.bodies) == ("accepted", ["still"])
    manager.ask("DELETE", "temps")
    assert manager.statuses() == [204]


@pytest.mark.parametrize(("operation", "name", "body", "status"), CHANGES)
def test_a_node_that_stops_completes_the_changes_in_flight(
    operation: str, name: str, body: dict[str, Any], status: int
) -> None:
    del status
    files = FaultyFiles()
    node = PausedNode(files)
    pair, manager = EnginePair(node), Manager(node)
    pair.receiver("temps", durable=True)
    manager.ask(operation, name, **body)
    disconnect(node, manager)
    assert node.store.close()
    again = open_inline(files).store
    expected = {"CREATE": ["new", "other", "temps"], "UPDATE": ["other", "temps"], "DELETE": ["other"]}
    assert sorted(again.logs) == expected[operation]
    assert bool(again.states.items("cursor")) == (operation != "DELETE")
    if operation == "UPDATE":
        assert again.logs["temps"].settings.retention_ms == 5000
