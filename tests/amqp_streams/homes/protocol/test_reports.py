"""Reports as JSON: what is read is what was written, and nothing else is read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.messages import Report, Reported
from amqp_streams.homes.protocol.frames import FRAME_BYTES_MAX, FrameError
from amqp_streams.homes.protocol.reports import (
    LINKS_BYTES_MAX,
    NUMBER_MAX,
    REPORT_BYTES_MAX,
    Reports,
    parts,
    reserved,
)
from amqp_streams.streams.groups.claims import EPOCH_MAX, Claim, Wanted

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBER = st.integers(0, NUMBER_MAX)
PARTITION = st.integers(0, 2**31 - 1)
EPOCH = st.none() | st.integers(0, EPOCH_MAX)
POSITIONS = st.lists(st.tuples(PARTITION, NUMBER), max_size=3).map(tuple)
CLAIM = st.builds(Claim, TEXT, st.none() | PARTITION, EPOCH, TEXT)
WANTED = st.builds(
    Wanted, TEXT, st.none() | TEXT, TEXT, TEXT, st.none() | CLAIM, st.booleans(),
    st.lists(NUMBER, max_size=3).map(tuple), st.lists(PARTITION, max_size=3).map(tuple),
)  # fmt: skip
LINK = st.builds(
    Reported, NUMBER, WANTED, st.none() | st.tuples(NUMBER, NUMBER), st.none() | PARTITION, EPOCH, POSITIONS,
    POSITIONS, st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
REPORT = st.builds(
    Report,
    TEXT,
    st.integers(0, BUCKETS - 1),
    NUMBER,
    NUMBER,
    st.lists(LINK, max_size=5).map(tuple),
    st.booleans(),
)


def read(bodies: list[bytes]) -> Report:
    reports = Reports()
    *before, last = [reports.take(body) for body in bodies]
    assert before == [None] * len(before)
    assert last is not None
    return last


@given(REPORT)
def test_a_report_is_read_as_it_was_written(report: Report) -> None:
    assert read(list(parts(report))) == report


@given(st.data(), WANTED, st.none() | st.integers(0, 3))
def test_a_link_never_needs_more_than_was_reserved(
    data: st.DataObject, wanted: Wanted, partition: int | None
) -> None:
    at = wanted.partitions if wanted.claim is None else (0,)
    positions = st.tuples(*[st.tuples(st.just(index), NUMBER) for index in at])
    link = data.draw(
        st.builds(
            Reported,
            NUMBER,
            st.just(wanted),
            st.none() | st.tuples(NUMBER, NUMBER),
            st.just(partition),
            EPOCH,
            positions,
            positions,
            st.booleans(),
            st.booleans(),
            st.booleans(),
        )
    )
    empty, one = Report("n", 0, 0, 0, ()), Report("n", 0, 0, 0, (link,))
    assert sum(map(len, parts(one))) - sum(map(len, parts(empty))) <= reserved(wanted)


def test_links_that_fill_what_may_be_reserved_are_a_report_that_is_read() -> None:
    wanted = Wanted("i" * 22, None, "c" * 255, "l" * 255, None, True, (NUMBER_MAX,) * 9, tuple(range(9)))
    at = tuple((index, NUMBER_MAX) for index in range(9))
    count = LINKS_BYTES_MAX // reserved(wanted)
    link = Reported(NUMBER_MAX, wanted, (NUMBER_MAX, NUMBER_MAX), None, EPOCH_MAX, at, at, True, True, True)
    report = Report("n" * 255, 15, NUMBER_MAX, NUMBER_MAX, (link,) * count, yielded=True)
    bodies = list(parts(report))
    assert LINKS_BYTES_MAX / 2 < sum(map(len, bodies)) <= REPORT_BYTES_MAX
    assert max(map(len, bodies)) < FRAME_BYTES_MAX / 32
    assert read(bodies) == report


def test_one_link_of_a_log_with_many_partitions_fits_in_a_frame() -> None:
    wanted = Wanted("i", None, "c", "l", None, True, (NUMBER_MAX,) * 20_000, tuple(range(20_000)))
    assert reserved(wanted) > LINKS_BYTES_MAX
    wanted = Wanted("i", None, "c", "l", None, True, (NUMBER_MAX,) * 10_000, tuple(range(10_000)))
    assert reserved(wanted) < LINKS_BYTES_MAX


GOOD = Report(
    "node", 3, 4, 5, (Reported(1, Wanted("log", "u", "c", "l", Claim("g", 1, 2, "m"), True, (0,))),), True
)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["node"], "n" * 256, "report.node must be a text of at most 255"),
        (["bucket"], BUCKETS, f"report.bucket must be a whole number from 0 to {BUCKETS - 1}"),
        (["term"], -1, "report.term must be"),
        (["number"], 2**63, "report.number must be"),
        (["yielded"], 1, "report.yielded must be true or false"),
        (["links"], {}, "report.links must be a list"),
        (["links", 0], 7, r"report.links\[0\] must be a JSON object"),
        (["links", 0, "number"], None, r"report.links\[0\].number is missing"),
        (["links", 0, "wanted"], [], r"report.links\[0\].wanted must be a JSON object"),
        (["links", 0, "wanted", "log"], 1, r"report.links\[0\].wanted.log must be a text"),
        (["links", 0, "wanted", "claim"], "g", r"report.links\[0\].wanted.claim must be a JSON object"),
        (["links", 0, "wanted", "claim", "group"], None, r"wanted.claim.group is missing"),
        (["links", 0, "wanted", "claim", "partition"], 2**31, r"wanted.claim.partition must be"),
        (["links", 0, "wanted", "claim", "epoch"], 2**64, r"wanted.claim.epoch must be"),
        (["links", 0, "wanted", "starts"], [2**63], r"wanted.starts must be"),
        (["links", 0, "serial"], [1], r"report.links\[0\].serial must be pairs"),
        (["links", 0, "positions"], [[0, -1]], r"report.links\[0\].positions must be"),
        (["links", 0, "gone"], "yes", r"report.links\[0\].gone must be true or false"),
    ],
)
def test_a_field_that_is_not_valid_is_named(path: list[str | int], value: object, words: str) -> None:
    document = json.loads(next(parts(GOOD)))
    within = document
    for step in path[:-1]:
        within = within[step]
    within[path[-1]] = value
    with pytest.raises(FrameError, match=words):
        Reports().take(json.dumps(document).encode())


def test_fields_of_a_later_version_are_ignored() -> None:
    document = json.loads(next(parts(GOOD)))
    for each in (document, document["links"][0], document["links"][0]["wanted"]):
        each["later"] = {"a": [1]}
    assert Reports().take(json.dumps(document).encode()) == GOOD
