"""What the processes of a gateway know, together, and on its way from one to another."""

from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.health.facts import (
    DESCRIPTORS,
    About,
    Gathered,
    Known,
    Use,
    Vitals,
    packed,
    unpacked_known,
    unpacked_vitals,
)
from service_parts.health.changes import CHANGES_MAX, Change, Changes
from service_parts.settings.in_force import SettingsInForce
from service_parts.settings.showing import InForce

TEXTS = st.text(max_size=20)
NUMBERS = st.integers(0, 1 << 60)
CHANGE = st.builds(
    Change, NUMBERS, st.none() | TEXTS, TEXTS, TEXTS, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=2)
)
USE = st.builds(Use, NUMBERS, st.none() | NUMBERS)
VITALS = st.builds(
    Vitals, NUMBERS, NUMBERS, st.booleans(), st.none() | TEXTS, st.none() | NUMBERS,
    st.dictionaries(TEXTS, USE, max_size=3), st.none() | st.floats(0, 1e9),
    st.lists(CHANGE, max_size=3).map(tuple),
)  # fmt: skip
ROW = st.builds(InForce, TEXTS, st.none() | st.booleans() | NUMBERS | TEXTS, TEXTS)
KNOWN = st.builds(
    Known, NUMBERS, st.lists(ROW, max_size=3).map(tuple), st.none() | TEXTS, st.just(()), st.none() | NUMBERS,
    st.none() | NUMBERS, NUMBERS, st.lists(CHANGE, max_size=3).map(tuple),
)  # fmt: skip


def vitals(worker: int = 0, **more: object) -> Vitals:
    found: dict[str, object] = {"pid": 1, "leads": False, "not_ready": None, "memory": 10, "uses": {}}
    return Vitals(worker, **(found | more))  # type: ignore[arg-type]  # written by name


@given(VITALS)
def test_vitals_are_read_as_they_were_sent(sent: Vitals) -> None:
    assert unpacked_vitals(packed(sent)) == sent


@given(KNOWN)
def test_what_is_known_is_read_as_it_was_sent(sent: Known) -> None:
    found = unpacked_known(packed(sent))
    assert (found.started_ms, found.settings, found.changes) == (sent.started_ms, sent.settings, sent.changes)
    assert (found.memory, found.node_starts, found.restarts) == (sent.memory, sent.node_starts, sent.restarts)


def test_workers_are_one_gateway() -> None:
    both = [
        vitals(0, uses={"connections": Use(3, 50), DESCRIPTORS: Use(30, 1000)}, unstored_s=0.5),
        vitals(1, uses={"connections": Use(4, 50), DESCRIPTORS: Use(20, 1000)}, memory=None, unstored_s=7.0),
    ]
    found = Gathered(Known(1, (), memory=5), both)
    assert found.memory == 15
    assert found.uses == {"connections": Use(7, 100), DESCRIPTORS: Use(30, 1000)}
    assert found.unstored_s == 7.0


def test_nothing_is_made_up_about_a_system_that_does_not_say() -> None:
    found = Gathered(Known(1, ()), [vitals(memory=None, unstored_s=None)])
    assert found.memory is None
    assert found.unstored_s is None
    assert Gathered(Known(1, ()), []).uses == {}


def test_the_latest_changes_of_all_workers_are_kept() -> None:
    def change(at: int) -> Change:
        return Change(at, None, "CREATE", "Broker", f"b{at}")

    odd, even = (tuple(change(at) for at in range(first, 400, 2)) for first in (1, 0))
    found = Gathered(Known(1, (), changes=(change(1000),)), [vitals(changes=odd), vitals(changes=even)])
    assert [each.at_ms for each in found.changes] == [1000, *range(399, 400 - CHANGES_MAX, -1)]


def test_a_reload_is_a_change_and_forgets_the_failure_of_an_earlier_one() -> None:
    about = About(
        1, SettingsInForce(lambda: [InForce("tokens", "t", "--tokens")], {"tokens"}), Changes(lambda: 7)
    )
    about.not_reloaded("tokens: no such file")
    assert about.known().reload_failed == "tokens: no such file"
    assert not about.known().changes
    about.reloaded(["listen"])
    known = about.known(memory=1, node_starts=2, restarts=3)
    assert (known.reload_failed, known.restart_needed) == (None, ("listen",))
    assert (known.memory, known.node_starts, known.restarts) == (1, 2, 3)
    assert [(each.at_ms, each.user, each.what) for each in known.changes] == [(7, None, "RELOAD")]
    assert known.settings == (InForce("tokens", "t", "--tokens"),)
