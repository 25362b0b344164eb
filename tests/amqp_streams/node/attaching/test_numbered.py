"""Links of idempotent producers on logs that several nodes share: opened before they are granted."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node import Node
from amqp_streams.node.attaching.numbered import taken
from amqp_streams.storage.ports import LATER, Later, Partition, ReadRequest, StoredLog
from amqp_streams.storage.questions import OpenProducer, Others, Question
from amqp_streams.streams.attach import AttachRequest, Closed, Decided, Denied, Pending, Producing
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.types import Symbol


class SharedStore(MemoryStore):
    """A store whose logs other nodes have as well. It opens producers when the test says so."""

    def __init__(self) -> None:
        super().__init__(auto=True)
        self.shared: Others[Partition, StoredLog] = Others()
        self.shared.attached, self.shared.detached = self._attached, self._detached
        vars(self)["others"] = self.shared
        self.asked: list[tuple[OpenProducer, Callable[[], None]]] = []
        self.error: StorageError | PeerError | None = None
        self.links: list[StoredLog] = []
        self.ready = False

    def ask(self, question: Question, request: ReadRequest) -> StoredLog | Later | None:
        """See `Store.ask`."""
        if not isinstance(question, OpenProducer):
            return super().ask(question, request)
        if not self.ready:
            self.asked.append((question, request.ready))
            return LATER
        if self.error is not None:
            raise self.error
        return None

    def answer(self, error: StorageError | PeerError | None = None) -> OpenProducer:
        self.ready, self.error = True, error
        question, ready = self.asked.pop()
        ready()
        return question

    def _attached(self, log: StoredLog, _producer: str) -> tuple[StoredLog, int]:
        view = replace(log, partitions=tuple(log.partitions))
        self.links.append(view)
        return view, 1

    def _detached(self, view: StoredLog) -> None:
        self.links.remove(view)


class Stage:
    """A node with a log that another node has as well."""

    def __init__(self) -> None:
        self.store = SharedStore()
        self.store.create("log", LogSettings(partitions=2), incarnation="i")
        self.node = Node(self.store, sync="each", new_id=lambda: "id")
        self.count = 0
        self.node.lookups.on_answer = lambda: self.node.lookups.proceed(0)

    def attach(self, **given: Any) -> Any:
        properties = {names.PRODUCER_ID: "p", **given.pop("properties", {})}
        self.count += 1
        fields = {"consumer": False, "address": "log", "user": "u", "connection": 1, **given}
        return self.node.attach(AttachRequest(f"l{self.count}", "c", properties=properties, **fields), 0)

    def effect(self) -> Any:
        (effect,) = self.node.take_effects()
        return effect


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_producer_is_opened_before_its_link_is_granted(stage: Stage) -> None:
    pending = stage.attach()
    assert isinstance(pending, Pending)
    question = stage.store.answer()
    assert (question.log, question.producer) == ("log", "u\x1fp")
    decided = stage.effect()
    assert isinstance(decided, Decided)
    grant = decided.grant
    assert isinstance(grant, Producing)
    assert grant.numbered is not None
    # The store knows the home of a producer that stored events before.
    assert grant.numbered.home == 1
    assert grant.log is stage.store.links[0]
    stage.node.detach(grant, 0)
    stage.node.detach(grant, 0)
    assert stage.store.links == []


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (StorageError("reasons"), names.INTERNAL_ERROR),
        (PeerError(names.RESOURCE_LIMIT_EXCEEDED, "reasons"), names.RESOURCE_LIMIT_EXCEEDED),
    ],
)
def test_an_attach_whose_producer_cannot_be_opened_is_refused(
    stage: Stage, error: StorageError | PeerError, condition: str
) -> None:
    stage.attach()
    stage.store.answer(error)
    denied = stage.effect()
    assert isinstance(denied, Denied)
    assert (denied.error.condition, denied.error.description) == (condition, "reasons")


def test_an_id_that_is_not_valid_and_a_log_that_refuses_producers_open_nothing(stage: Stage) -> None:
    with pytest.raises(PeerError) as refused:
        stage.attach(properties={names.PRODUCER_ID: ""})
    assert refused.value.condition == names.INVALID_FIELD
    stage.store._logs["log"] = replace(stage.store.logs["log"], refusal="its topic is weak")
    with pytest.raises(PeerError, match="its topic is weak"):
        stage.attach()
    assert stage.store.asked == []


def test_a_bound_link_is_bound_to_the_partition_of_its_producer(stage: Stage) -> None:
    stage.store.ready = True
    grant = stage.attach(properties={names.PARTITION: Symbol("0")})
    assert isinstance(grant, Producing)
    assert grant.numbered is not None
    assert grant.numbered.home == 0
    assert grant.partition is grant.log.partitions[0]


@pytest.mark.parametrize("stolen", [True, False])
def test_the_links_of_a_producer_that_is_not_here_any_more_are_closed(stage: Stage, stolen: bool) -> None:
    stage.store.ready = True
    first, second = stage.attach(), stage.attach(properties={names.PRODUCER_ID: "other"})
    assert isinstance(first, Producing)
    # In this store the partitions of both are those of the log.
    assert list(taken([first, second], first.log.partitions)) == [first, second]
    stage.node.taken(first.log, "reasons", stolen=stolen, now_ms=0)
    condition = names.LINK_STOLEN if stolen else names.LINK_DETACH_FORCED
    closed = [effect for effect in stage.node.take_effects() if isinstance(effect, Closed)]
    assert [(each.grant, each.error.condition) for each in closed] == [
        (first, condition),
        (second, condition),
    ]
    assert stage.store.links == []
