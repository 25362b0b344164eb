"""What a home says about its groups and cursors."""

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.homes.describing import describing
from amqp_streams.homes.describing.describing import GROUPS_A_STEP, NAMED_MAX, described, description, names
from amqp_streams.homes.messages import Described, Description, Inquiry, Named, Reported, Subject
from amqp_streams.homes.serving import Serving
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.groups.claims import Claim, Wanted
from amqp_streams.streams.steps import finish
from amqp_streams.testing import MemoryStore
from tests.amqp_streams.homes.stage import LOG, Stage, log_of, own_cursor, wanted

WIDE: StoredLog = MemoryStore().create("wide", LogSettings(partitions=1000), incarnation="w")


class Homes:
    """The homes of buckets 3 and 4 are here."""

    def __init__(self) -> None:
        self.stages = {3: Stage(), 4: Stage()}

    def current(self, bucket: int) -> Serving | None:
        return self.stages[bucket].serving if bucket in self.stages else None

    def describe(self, *subjects: Subject, named: tuple[int, ...] = ()) -> Description:
        return finish(description(self, known_log, Inquiry(7, subjects, named)))


def known_log(incarnation: str) -> StoredLog | None:
    return WIDE if incarnation == "w" else log_of(incarnation)


def in_group(group: str, member: str = "m", partition: int | None = None) -> Wanted:
    return Wanted("i", "user", member, "link", Claim(group, partition, None, member), False, (0, 0))


def test_only_what_was_granted_has_an_owner() -> None:
    stage = Stage()
    stage.report("one", Reported(1, wanted("a", 0, 5)))
    before = described(stage.serving, LOG, Subject(3, "i", "g"))
    assert (before.owners, before.waiting, before.active) == ((), 1, True)
    while stage.states.unwritten:
        stage.commit()
    after = described(stage.serving, LOG, Subject(3, "i", "g"))
    assert (after.owners, after.waiting, after.epochs) == (((0, "a"),), 0, ((0, 5),))
    assert after.kept is not None
    assert (after.kept.user, after.kept.positions) == ("user", ((0, 0),))


def test_a_link_that_waits_for_the_end_of_an_earlier_grant_does_not_own() -> None:
    stage = Stage()
    stage.grant("one", 1, wanted("a", 0, 1))
    stage.report("two", Reported(1, wanted("b", 0, 2)))
    while stage.states.unwritten:
        stage.commit()
    found = described(stage.serving, LOG, Subject(3, "i", "g"))
    assert (found.owners, found.waiting) == ((), 1)


def test_what_a_home_does_not_have_does_not_exist() -> None:
    stage = Stage()
    assert described(stage.serving, LOG, Subject(3, "i", "g")) == Described(0, False)
    assert described(stage.serving, LOG, Subject(3, "i", None, "0" * 24), 5) == Described(5, False)
    assert described(stage.serving, LOG, Subject(3, "i")) == Described(0, False)


def test_the_cursor_of_a_link_is_active_while_the_link_is_there() -> None:
    stage = Stage()
    link = stage.grant("one", 1, own_cursor("c"))
    cursor = stage.serving.cursors.of_log("i")[0]
    subject = Subject(3, "i", None, cursor.id)
    assert described(stage.serving, LOG, subject).active
    stage.report("one", Reported(link.number, link.wanted, link.serial, gone=True))
    found = described(stage.serving, LOG, subject)
    assert (found.exists, found.active, found.owners) == (True, False, ())


def test_buckets_and_logs_that_are_not_here_are_left_out() -> None:
    homes = Homes()
    homes.stages[4].grant("one", 1, wanted("a", 0))
    subjects = Subject(5, "i", "g"), Subject(4, "other", "g"), Subject(4, "i", "g")
    answer = homes.describe(*subjects, named=(3, 5))
    assert answer.number == 7
    assert [item.at for item in answer.items if isinstance(item, Described)] == [2]
    assert answer.named == (3,)


def test_an_answer_has_the_partitions_of_a_page_at_most() -> None:
    homes = Homes()
    answer = homes.describe(*(Subject(3, "w", f"g{number}") for number in range(5)))
    assert len(answer.items) == 2


def test_long_names_make_an_answer_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describing, "DESCRIPTION_CHARACTERS_MAX", 50)
    homes = Homes()
    stage = homes.stages[3]
    for number, group in enumerate("abc"):
        stage.grant(f"node {number}", 1, in_group(group, member=group * 40, partition=0))
    answer = homes.describe(*(Subject(3, "i", group) for group in "abc"))
    assert [item.at for item in answer.items if isinstance(item, Described)] == [0, 1]


def test_groups_with_links_and_without_a_cursor_are_named() -> None:
    homes = Homes()
    stage = homes.stages[3]
    stage.grant("one", 1, wanted("a", 0))
    stage.grant("two", 1, in_group("linked"))
    assert homes.describe(named=(3, 3, 4)).items == (Named(3, "i", "linked"),)
    assert homes.describe(named=(3, 4)).named == (3, 4)


def test_many_groups_are_named_in_steps_and_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NAMED_MAX > 100
    monkeypatch.setattr(describing, "GROUPS_A_STEP", 2)
    monkeypatch.setattr(describing, "NAMED_MAX", 4)
    homes = Homes()
    for bucket, groups in ((3, 3), (4, 2)):
        for number in range(groups):
            link = in_group(f"g{bucket}{number}", member=f"m{number}")
            homes.stages[bucket].grant(f"node {number}", 1, link)
    steps = names(homes.stages[3].serving, known_log, 3)
    assert sum(1 for _ in steps) == 2
    # The second bucket has no room: it is asked for again.
    answer = homes.describe(named=(3, 4))
    assert answer.named == (3,)
    assert len(answer.items) == 3
    assert GROUPS_A_STEP == 500
