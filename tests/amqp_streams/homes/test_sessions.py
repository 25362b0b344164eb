"""An answer has what the last report lacks, and repeats it until a report has it."""

from dataclasses import replace

from amqp_streams.homes.messages import Ends, Reported
from tests.amqp_streams.homes.stage import TIMES, Stage, wanted


def test_a_grant_is_repeated_until_the_node_reports_it() -> None:
    stage = Stage()
    owned = stage.grant("a", 1, wanted("m", 0))
    assert stage.owns("a") == stage.owns("a")
    stage.report("a", replace(owned, stored=owned.positions))
    assert not stage.answer("a").verdicts


def test_an_end_is_repeated_until_the_node_does_not_report_the_link() -> None:
    stage = Stage()
    stage.grant("a", 1, wanted("m", 0))
    stage.report("b", Reported(1, wanted("n", 0)))
    stage.report("b", Reported(1, wanted("n", 0)))
    assert [type(each) for each in stage.answer("b").verdicts] == [Ends]
    stage.report("b")
    assert not stage.answer("b").verdicts


def test_a_node_is_promised_no_more_than_the_lease_of_the_home() -> None:
    stage = Stage()
    owned = stage.grant("a", 1, wanted("m", 0))
    session = stage.serving.sessions["a"]
    answer = session.answer(0, 1, stage.now_ms, stage.now_ms + 700, withdrawn=False)
    assert answer.remaining_ms == 700
    assert session.answer(0, 1, stage.now_ms, stage.now_ms - 1, withdrawn=False).remaining_ms == 0
    assert session.promised_ms == stage.now_ms + TIMES.lease_ms
    stage.report("a", replace(owned, gone=True))
    assert not session.known
