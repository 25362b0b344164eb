"""Each message gets its outcome from the commit that has its record, and from no other."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError
from amqp_streams.storage.ports import Partition
from amqp_streams.streams.receipts import Part, Receipt
from amqp_streams.testing import MemoryStore

REFUSED = PeerError(names.DECODE_ERROR, "no message")


def _partitions(count: int, *, separate: bool) -> tuple[Partition, ...]:
    store = MemoryStore(separate=separate)
    return store.create("log", LogSettings(partitions=count), incarnation="i").partitions


def test_nothing_waits_if_nothing_was_stored() -> None:
    assert Receipt().waits() == []
    assert Receipt(refused=[(0, REFUSED)], settled=[1]).waits() == []


def test_all_messages_in_one_commit_wait_together_without_a_list_of_indices() -> None:
    first, second = _partitions(2, separate=False)
    parts = [Part(first, [0, 2], 2, 20, commit=5), Part(second, [1], 1, 10, commit=5)]
    (wait,) = Receipt(parts).waits()
    assert (wait.queue, wait.commit, wait.indices, list(wait.parts)) == (first.queue, 5, None, parts)


def test_an_invalid_batch_is_refused_for_its_first_invalid_event() -> None:
    receipt = Receipt(refused=[(7, REFUSED), (3, REFUSED)])
    assert receipt.spoil()
    assert (receipt.invalid, receipt.refused) == ((3, REFUSED), [])
    assert not Receipt().spoil()


@given(
    outcomes=st.lists(st.sampled_from(["0/4", "0/5", "1/4", "1/5", "refused", "settled"]), min_size=1),
    separate=st.booleans(),
)
def test_each_stored_message_waits_for_its_own_commit_and_for_no_other(
    outcomes: list[str], *, separate: bool
) -> None:
    partitions = _partitions(2, separate=separate)
    receipt = Receipt()
    indices = {outcome: [at for at, one in enumerate(outcomes) if one == outcome] for outcome in outcomes}
    receipt.refused = [(at, REFUSED) for at in indices.pop("refused", [])]
    receipt.settled = indices.pop("settled", [])
    for outcome, share in indices.items():
        partition, commit = map(int, outcome.split("/"))
        receipt.parts.append(Part(partitions[partition], share, len(share), 0, commit))
    found: dict[int, tuple[Partition, int]] = {}
    for wait in receipt.waits():
        everyone = range(len(outcomes)) if wait.indices is None else wait.indices
        for part in wait.parts:
            assert part.indices is not None
            assert (part.partition.queue, part.commit) == (wait.queue, wait.commit)
            for at in part.indices:
                assert everyone[at] not in found
                found[everyone[at]] = part.partition, part.commit
    assert found == {
        at: (partitions[int(outcome[0])], int(outcome[2]))
        for at, outcome in enumerate(outcomes)
        if "/" in outcome
    }
    waits = [(wait.queue, wait.commit) for wait in receipt.waits()]
    assert len(waits) == len(set(waits))
