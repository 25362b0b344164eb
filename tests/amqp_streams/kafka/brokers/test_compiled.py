"""The compiled loop that takes records, over messages that the test makes: as columns made in Python."""

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.kafka.brokers import compiled
from amqp_streams.kafka.brokers.compiled import Columns, CompiledTaker, consumed_columns
from amqp_streams.kafka.brokers.taking import Place, consumed, sorted_out
from amqp_streams.kafka.records.chunks import Consumed, joined
from tests.amqp_streams.kafka.brokers.library import ERROR_TEXT, Library, Made

pytestmark = pytest.mark.skipif(
    compiled.loaded is None, reason=f"the loop is not built here, or {compiled.PURE_VARIABLE} is set"
)
END = KafkaError._PARTITION_EOF
T = Place("t", 0)


def plain(records: Consumed) -> tuple[list[int], list[int], list[bytes | None]]:
    """Arrays and buffers as lists."""
    return list(records.offsets), list(records.times_ms), list(records.values)


def in_python(made: Sequence[Made]) -> dict[Place, Consumed]:
    """What confluent-kafka's messages become."""
    messages = [
        Message(
            topic=each.topic,
            partition=each.partition,
            offset=each.offset,
            value=each.value,
            error=KafkaError(each.error) if each.error else None,
            timestamp=(2, each.time_ms),
        )
        for each in made
    ]
    found, _ = sorted_out(messages)
    return {place: consumed(records, plain=False) for place, records in found.items()}


def in_c(runs: Sequence[tuple[object, ...]]) -> dict[Place, Consumed]:
    """What the compiled loop has brought."""
    found: dict[Place, list[Consumed]] = {}
    for columns in map(Columns._make, runs):
        found.setdefault(Place(columns.topic, columns.partition), []).append(consumed_columns(columns))
    return {place: joined(parts) for place, parts in found.items()}


MESSAGES = st.builds(
    Made,
    topic=st.sampled_from(["t", "other", "wörter"]),
    partition=st.integers(0, 1),
    offset=st.integers(0, (1 << 63) - 1),
    value=st.one_of(st.none(), st.binary(max_size=20), st.just(b"alike")),
    time_ms=st.integers(0, 1 << 50),
    error=st.sampled_from([0, 0, 0, 0, END, KafkaError._TRANSPORT, KafkaError.OFFSET_OUT_OF_RANGE]),
)


@given(
    st.lists(MESSAGES, max_size=60),
    st.integers(1, 12),
    st.one_of(st.just(5000), st.integers(1, 70)),
    st.one_of(st.just(1 << 20), st.integers(1, 300)),
)
def test_it_brings_the_same_as_the_columns_in_python(
    made: list[Made], at_once: int, count: int, bytes_max: int
) -> None:
    with Library(made, at_once) as library:
        runs, others = library.take(count, bytes_max)
    taken = made[: sum(library.steps)]
    assert {place: plain(some) for place, some in in_c(runs).items()} == {
        place: plain(some) for place, some in in_python(taken).items()
    }
    assert others == [
        (each.topic, each.partition, each.offset, each.error, ERROR_TEXT.decode())
        for each in taken
        if each.error
    ]
    assert library.destroyed == [each.offset for each in taken], "each is given back once"
    sizes = [0 if each.error or each.value is None else len(each.value) for each in taken]
    last = library.steps[-1]
    assert len(taken) <= count
    assert sum(sizes[: len(sizes) - last]) < bytes_max, "none was asked for when there were enough"
    assert last == 0 or len(taken) == count or sum(sizes) >= bytes_max, "nor did it stop before"


def test_it_waits_for_the_first_message_only_and_asks_for_about_as_many_as_are_missing() -> None:
    made = [Made("t", 0, number, bytes(100)) for number in range(3000)]
    with Library(made) as library:
        library.take(5000, 100_000)
    assert library.waits == [7, *[0] * (len(library.waits) - 1)]
    assert library.steps == [1, 500, 500]
    with Library([]) as library:
        assert library.take() == ([], [])
    assert library.waits == [7]


def test_wrong_arguments_are_refused() -> None:
    assert compiled.loaded is not None
    take, bind = compiled.loaded.module.take, compiled.loaded.module.bind
    for arguments in ((0, 0, 1, 1), (1, -1, 1, 1), (1, 0, 0, 1), (1, 0, 1, 0), (1, 0, 100_001, 1)):
        with pytest.raises(ValueError, match="take needs a queue"):
            take(*arguments)
    with pytest.raises(TypeError):
        take("queue", 0, 1, 1)
    with pytest.raises(ValueError, match=f"bind needs {len(compiled.FUNCTIONS)} addresses"):
        bind(b"too few")


def test_records_without_a_value_and_of_many_sizes_become_columns() -> None:
    made = [Made(*T, 4, b"one", 40), Made(*T, 6, None, 41), Made(*T, 7, b"", 42), Made(*T, 9, b"three", 43)]
    with Library(made) as library:
        runs, others = library.take()
    assert plain(in_c(runs)[T]) == ([4, 6, 7, 9], [40, 41, 42, 43], [b"one", None, b"", b"three"])
    assert others == []


def test_a_setting_that_the_library_refuses_is_an_error() -> None:
    assert compiled.loaded is not None
    with pytest.raises(KafkaException, match="No such configuration property"):
        CompiledTaker({"group.id": "g", "no.such.setting": 1}, compiled.loaded)
    with pytest.raises(KafkaException, match=r"ssl\.ca\.location failed"):
        CompiledTaker(
            {"group.id": "g", "security.protocol": "SSL", "ssl.ca.location": "/nowhere"}, compiled.loaded
        )


@pytest.mark.parametrize(("pure", "kind"), [("", "compiled"), ("1", "python")])
def test_an_environment_variable_disables_the_compiled_loop(pure: str, kind: str) -> None:
    program = "from amqp_streams.kafka.brokers import compiled; print(compiled.KIND)"
    environment = {**os.environ, compiled.PURE_VARIABLE: pure}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == kind
