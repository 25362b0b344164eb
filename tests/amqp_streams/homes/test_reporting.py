"""What a node reports, and until when it may send."""

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.homes.messages import Answer, Ends, Leaves, Owns, Report, Stored, Verdict
from amqp_streams.homes.protocol.reports import REPORT_BYTES_MAX, parts
from amqp_streams.homes.records import HomeRecord
from amqp_streams.homes.reporting import (
    Closed,
    Denied,
    Durable,
    Effect,
    Granted,
    Leave,
    Reporting,
    Send,
)
from tests.amqp_streams.homes.stage import TIMES, wanted

ERROR = PeerError(names.LINK_STOLEN, "taken")


class Node:
    """A node with one link, and the home of its bucket."""

    def __init__(self, term: int = 1) -> None:
        self.reporting = Reporting("n.1", TIMES)
        self.now = 100_000
        self.reports: list[Report] = []
        self.reporting.home(0, HomeRecord(term, "h.1", "h"), self.now)
        self.link = self.reporting.attach(wanted("m", 0), 0, self.now)

    def taken(self) -> list[Effect]:
        effects = self.reporting.take_effects()
        self.reports += [each.report for each in effects if isinstance(each, Send)]
        return [each for each in effects if not isinstance(each, Send)]

    def later(self, ms: int) -> None:
        self.now += ms
        self.reporting.tick(self.now)
        self.taken()

    def answer(self, *verdicts: Verdict, term: int = 1, remaining: int = 3000, number: int = 0) -> None:
        self.taken()
        answered = number or self.reports[-1].number
        answer = Answer(0, term, answered, processed=True, remaining_ms=remaining, verdicts=verdicts)
        self.reporting.answer(answer, self.now)

    def owns(self, term: int = 1) -> Owns:
        return Owns(self.link, (term, 1), 0, 0, ((0, 5),))

    def sends(self) -> bool:
        return self.reporting.may_send(self.link, self.now)


def test_a_grant_is_counted_from_the_moment_at_which_the_report_was_sent() -> None:
    node = Node()
    sent = node.now
    node.later(400)
    node.answer(node.owns(), remaining=1000, number=1)
    assert Granted(node.link, 0, 0, ((0, 5),)) in node.taken()
    assert node.sends()
    node.now = sent + 999
    assert node.sends()
    node.now = sent + 1000
    assert not node.sends()


def test_a_link_pauses_when_its_grant_is_over_and_continues_with_the_next_answer() -> None:
    node = Node()
    node.answer(node.owns(), remaining=1000)
    node.later(2000)
    assert not node.sends()
    node.answer()
    assert node.sends()
    assert not any(isinstance(each, Closed) for each in node.taken())


def test_a_late_answer_grants_nothing() -> None:
    node = Node()
    node.taken()
    node.now += 3000
    node.answer(node.owns(), remaining=3000)
    assert not node.taken()
    assert not node.sends()


def test_an_answer_of_an_earlier_home_changes_nothing() -> None:
    node = Node()
    node.answer(node.owns(), remaining=500)
    node.reporting.home(0, HomeRecord(2, "g.1", "g"), node.now)
    node.now += 100
    node.answer(Ends(node.link, ERROR), remaining=3000, number=1)
    node.now += 400
    assert not node.sends()
    assert not any(isinstance(each, Closed) for each in node.taken())


def test_a_new_home_renews_a_grant_only_by_a_grant_of_its_own() -> None:
    node = Node()
    node.answer(node.owns(), remaining=500)
    node.reporting.home(0, HomeRecord(2, "g.1", "g"), node.now)
    node.later(600)
    assert node.reports[-1].term == 2
    assert node.reports[-1].links[0].serial == (1, 1)
    node.answer(term=2)
    assert not node.sends()
    node.answer(node.owns(term=2), term=2)
    assert node.sends()
    assert not any(isinstance(each, Granted) for each in node.taken())


def test_a_home_that_leaves_gets_its_grants_back() -> None:
    node = Node()
    node.answer(node.owns())
    node.later(50)
    node.reporting.answer(
        Answer(0, 1, node.reports[-1].number, processed=True, remaining_ms=0, withdrawn=True), node.now
    )
    assert not node.sends()
    node.later(50)
    assert node.reports[-1].yielded
    node.answer()
    assert not node.sends()


def test_a_link_that_is_asked_to_leave_gets_nothing_more_and_reports_its_last_positions() -> None:
    node = Node()
    node.answer(node.owns())
    node.taken()
    node.answer(Leaves(node.link, ERROR, 700))
    assert Leave(node.link, ERROR, 700) in node.taken()
    assert not node.sends()
    node.reporting.moved(node.link, ((0, 8),), node.now)
    node.reporting.detach(node.link, node.now)
    node.later(50)
    (link,) = node.reports[-1].links
    assert (link.gone, link.positions) == (True, ((0, 8),))
    node.answer(number=1)
    assert node.reporting.busy
    node.answer()
    assert not node.reporting.busy


def test_a_link_is_refused_before_its_grant_and_closed_after_it() -> None:
    node = Node()
    node.answer(Ends(node.link, ERROR))
    assert node.taken() == [Denied(node.link, ERROR)]
    other = Node()
    other.answer(other.owns())
    other.taken()
    other.answer(Ends(other.link, ERROR))
    assert other.taken() == [Closed(other.link, ERROR)]
    assert not other.sends()


def test_a_write_that_ended_after_its_grant_closes_the_link() -> None:
    node = Node()
    node.answer(node.owns(), remaining=1000)
    node.taken()
    node.reporting.wrote(node.link, node.now)
    assert not node.taken()
    node.now += 1000
    node.reporting.wrote(node.link, node.now)
    assert [type(each) for each in node.taken()] == [Closed]


def test_a_grant_that_ended_before_it_is_carried_out_ends_the_link() -> None:
    node = Node()
    node.answer(node.owns(), remaining=1000)
    assert [type(each) for each in node.taken()] == [Granted]
    assert node.reporting.may_grant(node.link, node.now + 999)
    assert not node.taken()
    assert not node.reporting.may_grant(node.link, node.now + 1000)
    assert [type(each) for each in node.taken()] == [Closed]
    assert not node.reporting.may_grant(node.link, node.now), "it has ended"
    assert not node.taken()


def test_a_receiver_that_waits_learns_which_positions_are_durable() -> None:
    node = Node()
    node.answer(node.owns())
    node.later(50)
    node.reporting.moved(node.link, ((0, 7),), node.now, urgent=True)
    node.later(50)
    assert node.reports[-1].links[0].urgent
    node.answer(Stored(node.link, ((0, 7),)))
    assert Durable(node.link, ((0, 7),)) in node.taken()
    node.later(TIMES.renew_ms)
    assert not node.reports[-1].links[0].urgent


def test_links_without_a_home_are_closed_after_the_bound() -> None:
    node = Node()
    node.answer(node.owns())
    node.taken()
    waiting = node.reporting.attach(wanted("n", 1), 0, node.now)
    node.now += TIMES.paused_ms + TIMES.lease_ms
    node.reporting.tick(node.now)
    kinds = {each.number: type(each) for each in node.taken() if isinstance(each, Closed | Denied)}
    assert kinds == {node.link: Closed, waiting: Denied}
    node.later(TIMES.paused_ms)
    assert not node.reporting.busy


def test_changes_within_a_moment_are_one_report() -> None:
    node = Node()
    node.taken()
    for number in range(100):
        node.reporting.attach(wanted(f"m{number}"), 0, node.now)
    node.taken()
    assert len(node.reports) == 1
    node.later(TIMES.report_gap_ms)
    assert len(node.reports) == 2
    assert len(node.reports[-1].links) == 101


def test_a_node_that_stops_reports_at_once_that_all_links_have_ended() -> None:
    node = Node()
    node.answer(node.owns())
    node.taken()
    node.reporting.stop(node.now)
    node.taken()
    assert all(link.gone for link in node.reports[-1].links)
    assert node.reporting.busy
    node.answer()
    assert not node.reporting.busy


def test_links_that_do_not_fit_in_a_report_are_refused_and_the_others_go_on() -> None:
    node = Node()
    node.answer(node.owns())
    count, denied = 1, None
    while denied is None:
        number = node.reporting.attach(wanted(f"m{count}" + "x" * 2000), 0, node.now)
        denied = next((each for each in node.taken() if isinstance(each, Denied)), None)
        count += 1
        assert count < 10_000
    assert denied.number == number
    assert denied.error.condition == names.RESOURCE_LIMIT_EXCEEDED
    assert "would need more than 983040 bytes" in denied.error.description
    assert node.sends()
    node.later(2000)
    assert number not in [each.number for each in node.reports[-1].links]
    assert sum(map(len, parts(node.reports[-1]))) <= REPORT_BYTES_MAX
    # Another bucket has another report, and a link that has ended gives its place back.
    node.reporting.attach(wanted("m"), 1, node.now)
    node.reporting.detach(number - 1, node.now)
    node.reporting.attach(wanted(f"m{count}" + "x" * 2000), 0, node.now)
    assert not [each for each in node.taken() if isinstance(each, Denied)]


def test_a_grant_lasts_also_for_a_link_that_leaves() -> None:
    node = Node()
    sent = node.now
    assert not node.reporting.holds(node.link, sent), "it is not granted"
    node.answer(node.owns(), Leaves(node.link, ERROR, 500), remaining=1000, number=1)
    assert not node.sends()
    assert node.reporting.holds(node.link, sent + 999)
    assert not node.reporting.holds(node.link, sent + 1000)
    node.reporting.detach(node.link, node.now)
    assert not node.reporting.holds(node.link, sent)
