"""What a node asks other homes for a list or a description: what is sent, when, and how it ends."""

from collections.abc import Iterable

import pytest

from amqp_streams.homes.describing.inquiring import (
    AGAIN_MS,
    OPEN_A_CONNECTION_MAX,
    OPEN_A_HOME_MAX,
    OPEN_A_USER_MAX,
    OPEN_MAX,
    UNREACHED_MS,
    WITHIN_MS,
    Inquiring,
    Search,
)
from amqp_streams.homes.messages import Described, Description, Inquiry, Named, Subject
from amqp_streams.homes.protocol.descriptions import SUBJECTS_MAX
from amqp_streams.homes.records import HomeRecord


class Elsewhere:
    """Other nodes that are homes: bucket N is at `b:N % 3`. `inquired`: what their connections got."""

    def __init__(self) -> None:
        self.homes = {bucket: HomeRecord(1, f"node {bucket % 3}", f"b:{bucket % 3}") for bucket in range(16)}
        self.here: set[int] = set()
        self.problems: dict[str, str] = {}
        self.earlier: set[str] = set()
        self.inquired: list[tuple[str, Inquiry]] = []
        self.forgotten: list[tuple[str, int]] = []
        self.now_ms = 1000
        self.inquiring = Inquiring("me", self)

    def record(self, bucket: int) -> HomeRecord | None:
        return self.homes.get(bucket)

    def is_current(self, bucket: int) -> bool:
        return bucket in self.here

    def inquire(self, address: str, inquiry: Inquiry) -> bool:
        if address in self.earlier:
            self.inquiring.not_taken(address, inquiry.number)
        self.inquired.append((address, inquiry))
        return address != "mine:1"

    def forget_inquiry(self, address: str, number: int) -> None:
        self.forgotten.append((address, number))

    def unreached(self, address: str) -> str | None:
        return self.problems.get(address)

    def begin(
        self, *buckets: int, unnamed: Iterable[int] = (), connection: int = 1, user: str = "alice"
    ) -> Search:
        subjects = [Subject(bucket, "i", f"g{bucket}") for bucket in buckets]
        return self.inquiring.begin(subjects, unnamed, connection, user=user, now_ms=self.now_ms)

    def answer(self, at: int = -1, *, leave: int = 0) -> None:
        """The home describes all subjects of an inquiry, or leaves some out."""
        address, inquiry = self.inquired[at]
        described = [Described(index, True) for index in range(len(inquiry.subjects) - leave)]
        named = () if leave else inquiry.named
        items: tuple[Described | Named, ...] = tuple(described)
        items += tuple(Named(bucket, "i", "linked") for bucket in named)
        self.inquiring.answered(address, Description(inquiry.number, named, items))

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.inquiring.tick(self.now_ms)


@pytest.fixture
def other() -> Elsewhere:
    return Elsewhere()


def test_each_home_gets_one_inquiry_with_all_of_its_subjects(other: Elsewhere) -> None:
    search = other.begin(*range(12), unnamed=(1, 13))
    assert [address for address, _ in other.inquired] == ["b:0", "b:1", "b:2"]
    assert [each.bucket for each in other.inquired[1][1].subjects] == [1, 4, 7, 10]
    assert other.inquired[1][1].named == (1, 13)
    for at in range(3):
        assert not search.over.over
        other.answer(at)
    assert search.over.over
    assert len(search.found) == 12
    assert search.named == {1: [Named(1, "i", "linked")], 13: [Named(13, "i", "linked")]}
    assert (search.reasons, len(other.inquiring)) == ({}, 0)
    assert other.inquiring.outcomes == {"described": 1, "in part": 0, "refused": 0}


def test_a_bucket_whose_home_is_here_by_now_is_not_asked_for(other: Elsewhere) -> None:
    other.here = {0}
    assert other.begin(0).over.over
    assert other.inquired == []
    search = other.begin(1)
    other.here = {1}
    other.answer(leave=1)
    other.pass_ms(AGAIN_MS)
    assert search.over.over
    assert len(other.inquired) == 1


def test_what_was_not_described_is_asked_for_again_and_at_the_new_home(other: Elsewhere) -> None:
    search = other.begin(0, 3)
    other.answer(leave=2)
    other.pass_ms(AGAIN_MS - 1)
    assert len(other.inquired) == 1
    other.homes[3] = HomeRecord(2, "new", "b:new")
    other.pass_ms(1)
    assert [address for address, _ in other.inquired[1:]] == ["b:0", "b:new"]
    other.answer(1)
    other.answer(2)
    assert search.over.over
    assert not search.reasons


def test_an_answer_without_room_is_continued_at_once(other: Elsewhere) -> None:
    subjects = [Subject(0, "i", f"g{number}") for number in range(5)]
    search = other.inquiring.begin(subjects, (), 1, user=None, now_ms=other.now_ms)
    other.answer(leave=2)
    assert other.inquired[1][1].subjects == tuple(subjects[3:])
    other.answer()
    assert search.over.over


def test_a_search_ends_in_time_and_says_what_each_home_did(other: Elsewhere) -> None:
    other.homes[1] = HomeRecord(2, "node 1", "b:1", let_go=True)
    del other.homes[2]
    other.homes[4] = HomeRecord(2, "me", "mine:1")
    other.homes[5] = HomeRecord(2, "node 5", "mine:1")
    search = other.begin(0, 1, 2, 4, 5)
    other.pass_ms(WITHIN_MS - 1)
    assert not search.over.over
    other.pass_ms(1)
    assert search.over.over
    nobody = "no node decides about it at the moment"
    assert search.reasons == {
        0: "the home b:0 did not answer in 2 s",
        1: nobody,
        2: nobody,
        4: nobody,
        5: "the home mine:1 did not describe it in 2 s",
    }
    assert ("b:0", 1) in other.forgotten
    other.answer(0)  # too late
    assert search.found == {}
    assert other.inquiring.outcomes["in part"] == 1


def test_a_home_that_is_not_reached_costs_only_its_buckets_and_little_time(other: Elsewhere) -> None:
    other.problems["b:0"] = "Connect call failed"
    search = other.begin(0, 1)
    other.answer(1)
    other.pass_ms(UNREACHED_MS - 1)
    assert not search.over.over
    other.pass_ms(1)
    assert search.over.over
    assert search.reasons == {0: "the home b:0 is not reached: Connect call failed"}
    assert len(search.found) == 1


def test_a_home_that_did_not_answer_costs_the_next_searches_little_time_until_it_answers(
    other: Elsewhere,
) -> None:
    other.begin(0)
    other.pass_ms(WITHIN_MS)
    second = other.begin(0, 1)
    other.answer()
    other.pass_ms(UNREACHED_MS)
    assert second.over.over
    assert second.reasons == {0: "the home b:0 did not answer in 2 s"}
    third = other.begin(0)
    other.answer(0)  # the first inquiry, late
    other.pass_ms(UNREACHED_MS)
    assert not third.over.over
    other.pass_ms(WITHIN_MS)
    # Another node is the home: the one that was silent does not count any more.
    other.homes = {0: HomeRecord(2, "new", "b:new")}
    other.pass_ms(1)
    other.homes = {0: HomeRecord(3, "node 0", "b:0")}
    fourth = other.begin(0)
    other.pass_ms(UNREACHED_MS)
    assert not fourth.over.over
    assert third.over.over


def test_a_home_of_an_earlier_version_is_a_reason_and_not_an_error(other: Elsewhere) -> None:
    other.earlier = {"b:0"}
    search = other.begin(0)
    assert search.over.over
    assert search.reasons == {0: "the home b:0 is of an earlier version: upgrade it"}


def test_a_lost_connection_is_made_again(other: Elsewhere) -> None:
    search = other.begin(0)
    other.inquiring.lost("b:0", 1)
    other.pass_ms(AGAIN_MS)
    assert [inquiry.number for _, inquiry in other.inquired] == [1, 2]
    other.answer()
    assert search.over.over
    other.inquiring.lost("b:0", 99)


def test_only_the_node_that_was_asked_can_answer_and_only_what_was_asked(other: Elsewhere) -> None:
    search = other.begin(0)
    other.inquiring.answered("b:1", Description(1, (), (Described(0, True),)))
    assert search.found == {}
    other.inquiring.answered("b:0", Description(1, (), (Described(7, True), Named(3, "i", "g"))))
    assert (search.found, search.named) == ({}, {})


def test_one_home_has_a_few_inquiries_and_the_others_wait(other: Elsewhere) -> None:
    searches = [other.begin(0, connection=number) for number in range(OPEN_A_HOME_MAX + 2)]
    assert len(other.inquired) == OPEN_A_HOME_MAX
    # Another home is not kept from answering.
    elsewhere = other.begin(1, connection=99)
    other.answer()
    assert elsewhere.over.over
    other.answer(0)
    assert len(other.inquired) == OPEN_A_HOME_MAX + 2
    for at in range(1, len(other.inquired)):
        other.answer(at)
    other.answer()
    assert all(each.over.over for each in searches)


def test_the_searches_of_one_connection_are_carried_out_one_after_the_other(other: Elsewhere) -> None:
    """So one client with many links does not use up what a home answers."""
    searches = [other.begin(0) for _ in range(OPEN_A_CONNECTION_MAX)]
    assert len(other.inquired) == 1
    refused = other.begin(0)
    assert refused.over.over
    assert refused.reasons == {0: "more than 8 requests wait for nodes that know the members"}
    another = other.begin(0, connection=2)
    other.answer()
    assert another.over.over
    for at in range(OPEN_A_CONNECTION_MAX):
        other.answer(0 if at == 0 else -1)
    assert all(each.over.over for each in searches)


def test_a_node_has_a_largest_number_of_searches(other: Elsewhere) -> None:
    for number in range(OPEN_MAX):
        other.begin(0, connection=number, user=str(number % 3))
    assert len(other.inquiring) == OPEN_MAX
    refused = other.begin(0, connection=OPEN_MAX)
    assert refused.reasons == {0: "more than 64 requests wait for nodes that know the members"}
    assert other.inquiring.outcomes["refused"] == 1


def test_one_user_leaves_half_of_the_searches_to_others(other: Elsewhere) -> None:
    for number in range(OPEN_A_USER_MAX):
        other.begin(0, connection=number)
    refused = other.begin(0, connection=99)
    assert refused.reasons == {0: "more than 32 requests wait for nodes that know the members"}
    assert not other.begin(1, connection=100, user="bob").over.over


def test_an_inquiry_has_a_largest_number_of_subjects(other: Elsewhere) -> None:
    subjects = [Subject(0, "i", f"g{number}") for number in range(SUBJECTS_MAX + 5)]
    search = other.inquiring.begin(subjects, (), 1, user=None, now_ms=other.now_ms)
    other.answer()
    assert [len(inquiry.subjects) for _, inquiry in other.inquired] == [SUBJECTS_MAX, 5]
    other.answer()
    assert search.over.over


def test_a_search_that_nobody_waits_for_is_forgotten(other: Elsewhere) -> None:
    search = other.begin(0)
    other.inquiring.forget(search)
    assert other.forgotten == [("b:0", 1)]
    assert len(other.inquiring) == 0
    other.inquiring.forget(search)
    other.pass_ms(WITHIN_MS)
    assert len(other.inquired) == 1
