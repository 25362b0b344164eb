"""Answers of a store that waits for nothing, or of a caller that cannot wait."""

from typing import assert_never

from amqp_streams.storage.ports import Store, StoredLog
from amqp_streams.storage.questions import Create, Delete, Find, OpenProducer, Question, Refresh, Update


def at_once(store: Store, question: Question) -> StoredLog | None:
    """The answer to a question; raises like `Store.ask`."""
    match question:
        case Create(name, settings, incarnation):
            return store.create(name, settings, incarnation=incarnation)
        case Update(name, settings):
            return store.update(name, settings)
        case Delete(name):
            store.delete(name)
            return None
        case Find(name):
            return store.logs.get(name)
        case Refresh():
            return None  # the store moves starts and ends itself
        case OpenProducer():
            return None  # the store belongs to one node
        case _:
            assert_never(question)
