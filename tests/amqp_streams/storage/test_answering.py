"""A store that waits for no other machine answers each question with its own methods."""

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.storage.answering import at_once
from amqp_streams.storage.questions import Create, Delete, Find, Refresh, Update
from amqp_streams.testing import MemoryStore


def test_each_question_is_answered() -> None:
    store = MemoryStore()
    log = at_once(store, Create("log", LogSettings(), "i"))
    assert log is not None
    assert log.incarnation == "i"
    assert at_once(store, Find("log")) is log
    assert at_once(store, Refresh("log", (0,))) is None
    changed = at_once(store, Update("log", LogSettings(retention_ms=5000)))
    assert changed is store.logs["log"] is not log
    assert at_once(store, Delete("log")) is None
    assert at_once(store, Find("log")) is None
    with pytest.raises(KeyError):
        at_once(store, Delete("log"))
