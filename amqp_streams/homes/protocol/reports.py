"""Reports as JSON, and back. Pure.

Law: a report has at most `REPORT_BYTES_MAX`, because `reserved` says how large a link can become before the
node takes it.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.messages import Report, Reported
from amqp_streams.homes.protocol.fields import Fields, Json, encoded
from amqp_streams.homes.protocol.parts import Parts, Unfinished, parts_of
from amqp_streams.streams.groups.claims import EPOCH_MAX, Claim, Wanted

REPORT_BYTES_MAX: Final = 1 << 20
"""All parts of a report together."""
LINKS_BYTES_MAX: Final = REPORT_BYTES_MAX * 15 // 16
"""All links of a node in a bucket, by `reserved`. The rest is for the heads of the parts."""
UNFINISHED_BYTES_MAX: Final = 16 * REPORT_BYTES_MAX
"""The unfinished reports of all nodes. A report comes in milliseconds; one that is given up is repeated."""
NODE_CHARACTERS_MAX: Final = 255
NUMBER_MAX: Final = 2**63 - 1
"""The greatest position, term, or number of a link or report."""
_PARTITION_MAX: Final = 2**31 - 1


def parts(report: Report) -> Iterator[bytes]:
    """The bodies of the frames of a report."""
    head: Json = {
        "node": report.node,
        "bucket": report.bucket,
        "term": report.term,
        "number": report.number,
    }
    if report.yielded:
        head["yielded"] = True
    return parts_of(head, "links", map(_of_link, report.links))


def reserved(wanted: Wanted) -> int:
    """How many bytes a link has at most in any report."""
    read = wanted.partitions if wanted.claim is None else (0,)
    positions = ((_PARTITION_MAX, NUMBER_MAX),) * len(read)
    largest = Reported(
        NUMBER_MAX, wanted, (NUMBER_MAX, NUMBER_MAX), _PARTITION_MAX, EPOCH_MAX, positions, positions,
        urgent=True, leaving=True, gone=True,
    )  # fmt: skip
    return len(encoded(_of_link(largest)).encode()) + len(",")


class Reports:
    """The reports in the frames of a connection."""

    def __init__(self, unfinished: Unfinished | None = None) -> None:
        self._parts: Final[Parts[Reported]] = Parts("report", REPORT_BYTES_MAX, unfinished)

    def give_up(self) -> None:
        """Forget an unfinished report: the connection has ended."""
        self._parts.give_up()

    def take(self, body: bytes) -> Report | None:
        """Take the body of a frame. None: more parts of the report follow.

        Raises:
            FrameError: it is not a report.
        """
        fields = Fields.of(body, "report")
        report = Report(
            fields.text("node", NODE_CHARACTERS_MAX),
            fields.whole("bucket", BUCKETS - 1),
            fields.whole("term", NUMBER_MAX),
            fields.whole("number", NUMBER_MAX),
            (),
            yielded=fields.flag("yielded"),
        )
        links = [_link(each) for each in fields.inner_list("links")]
        whole = self._parts.take(fields, report, links, len(body))
        return None if whole is None else replace(report, links=whole)


def _of_link(link: Reported) -> Json:
    made: Json = {"number": link.number, "wanted": _of_wanted(link.wanted)}
    if link.serial is not None:
        made["serial"] = link.serial
    if link.partition is not None:
        made["partition"] = link.partition
    if link.epoch is not None:
        made["epoch"] = link.epoch
    if link.positions:
        made["positions"] = link.positions
    if link.stored:
        made["stored"] = link.stored
    for name, value in (("urgent", link.urgent), ("leaving", link.leaving), ("gone", link.gone)):
        if value:
            made[name] = True
    return made


def _of_wanted(wanted: Wanted) -> Json:
    made: Json = {"log": wanted.incarnation, "container": wanted.container, "link": wanted.link}
    if wanted.user is not None:
        made["user"] = wanted.user
    if wanted.claim is not None:
        made["claim"] = _of_claim(wanted.claim)
    if wanted.durable:
        made["durable"] = True
    if wanted.starts:
        made["starts"] = wanted.starts
    if wanted.partitions:
        made["partitions"] = wanted.partitions
    return made


def _of_claim(claim: Claim) -> Json:
    made: Json = {"group": claim.group, "member": claim.member}
    if claim.partition is not None:
        made["partition"] = claim.partition
    if claim.epoch is not None:
        made["epoch"] = claim.epoch
    return made


def _link(fields: Fields) -> Reported:
    return Reported(
        fields.whole("number", NUMBER_MAX),
        _wanted(fields.inner("wanted")),
        fields.pair_or_none("serial"),
        fields.whole_or_none("partition", _PARTITION_MAX),
        fields.whole_or_none("epoch", EPOCH_MAX),
        fields.pairs("positions"),
        fields.pairs("stored"),
        fields.flag("urgent"),
        fields.flag("leaving"),
        fields.flag("gone"),
    )


def _wanted(fields: Fields) -> Wanted:
    claim = fields.inner_or_none("claim")
    return Wanted(
        fields.text("log"),
        fields.text_or_none("user"),
        fields.text("container"),
        fields.text("link"),
        None if claim is None else _claim(claim),
        fields.flag("durable"),
        fields.wholes("starts", NUMBER_MAX),
        fields.wholes("partitions", _PARTITION_MAX),
    )


def _claim(fields: Fields) -> Claim:
    return Claim(
        fields.text("group"),
        fields.whole_or_none("partition", _PARTITION_MAX),
        fields.whole_or_none("epoch", EPOCH_MAX),
        fields.text("member"),
    )
