"""The order of pumps: new events before old ones, and a share for everybody."""

from collections import Counter
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.server.links.link import Pumped
from amqp_streams.server.pumping import NEW_IN_A_ROW, Pumps


class Link:
    """A link by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scheduled = False


def waiting(*links: Link, new: bool, pumps: Pumps | None = None) -> Pumps:
    made = Pumps() if pumps is None else pumps
    for link in links:
        made.add(cast("Pumped", link), new=new)
    return made


def taken(pumps: Pumps, count: int | None = None) -> list[str]:
    return [pumps.take().name for _ in range(len(pumps) if count is None else count)]


def test_links_of_one_kind_take_turns() -> None:
    for new in (False, True):
        assert taken(waiting(*map(Link, "abc"), new=new)) == ["a", "b", "c"]


def test_a_link_waits_once() -> None:
    link = Link("a")
    pumps = waiting(link, link, new=True)
    waiting(link, new=False, pumps=pumps)
    assert taken(pumps) == ["a"]
    assert taken(waiting(link, new=False, pumps=pumps)) == ["a"]


def test_new_events_do_not_wait_for_old_ones() -> None:
    pumps = waiting(*(Link(f"old{number}") for number in range(200)), new=False)
    taken(pumps, 7)
    waiting(Link("new"), new=True, pumps=pumps)
    assert taken(pumps, 2) == ["new", "old7"]


def test_what_is_pumped_at_a_commit_is_not_old() -> None:
    pumps = waiting(Link("new"), new=True, pumps=waiting(Link("old"), new=False))
    assert pumps.take_new().name == "new"
    assert not pumps.new
    assert taken(pumps) == ["old"]


@given(old=st.integers(1, 50), new=st.integers(0, 50), rounds=st.integers(1, 20))
def test_readers_of_old_events_have_equal_shares_however_many_are_new(
    old: int, new: int, rounds: int
) -> None:
    """Each link waits again as soon as it was pumped, which is the most that it can ask for."""
    pumps = waiting(*(Link(f"new{number}") for number in range(new)), new=True)
    waiting(*(Link(f"old{number}") for number in range(old)), new=False, pumps=pumps)
    shares: Counter[str] = Counter()
    for _ in range(rounds * old * (NEW_IN_A_ROW + 1)):
        link = pumps.take()
        shares[link.name] += 1
        pumps.add(link, new=link.name.startswith("new"))
    of_old = [shares[f"old{number}"] for number in range(old)]
    assert min(of_old) >= rounds if new else min(of_old) > 0
    assert max(of_old) - min(of_old) <= 1
    of_new = [shares[f"new{number}"] for number in range(new)]
    assert not of_new or max(of_new) - min(of_new) <= 1
