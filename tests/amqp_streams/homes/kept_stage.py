"""What a node knows of buckets, joined by hand: for the tests of requests about groups and cursors."""

from collections.abc import Callable, Generator, Mapping
from typing import Any

from amqp_streams import names
from amqp_streams.homes.buckets import BUCKETS, bucket_of
from amqp_streams.homes.changing.asking import Asking
from amqp_streams.homes.describing.describing import description
from amqp_streams.homes.describing.inquiring import WITHIN_MS, Inquiring
from amqp_streams.homes.describing.reading import Links
from amqp_streams.homes.kept import KeptRequests
from amqp_streams.homes.messages import Asked as Question
from amqp_streams.homes.messages import Inquiry
from amqp_streams.homes.records import HomeRecord
from amqp_streams.homes.serving import Serving
from amqp_streams.node.requests import RequestSteps, carry_out
from amqp_streams.node.writes import Wait
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.consuming.cursors import Cursor, CursorKey, encoded, group_key, link_key
from amqp_streams.streams.groups.claims import Claim
from amqp_streams.streams.groups.epochs import epoch_change
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.steps import finish
from amqp_streams.wire.codec import decode
from amqp_streams.wire.types import Encoded
from tests.amqp_streams.homes.stage import LOG, Stage, log_of

NOW_MS = 10_000
GROUP = group_key("i", "g")
LINK = link_key("i", "c", "l")


class Other:
    """Another node, at its address. `homes`: by bucket. `silent`: it answers nothing."""

    def __init__(self) -> None:
        self.homes: dict[int, Serving] = {}
        self.silent = False

    def current(self, bucket: int) -> Serving | None:
        return self.homes.get(bucket)


class Buckets:
    """States, and buckets whose homes are here, or at other nodes."""

    def __init__(self) -> None:
        self.values: list[dict[str, bytes]] = [{} for _ in range(BUCKETS)]
        self.homes: dict[int, Serving] = {}
        self.elsewhere: HomeRecord | None = None
        self.others: dict[str, Other] = {}
        self.inquired: list[tuple[str, Inquiry]] = []
        """What was sent to other nodes."""
        self.unanswered: list[tuple[str, Inquiry]] = []
        self.asked: list[Question] = []
        self.refreshes = 0
        self.on_refresh: Callable[[], object] = lambda: None
        self.asking = Asking("me", self)
        self.inquiring = Inquiring("me", self)
        self.now_ms = NOW_MS

    def refreshed(self) -> Generator[Wait, None, None]:
        """This node reads what homes have written."""
        self.refreshes += 1
        self.on_refresh()
        yield Wait(over=True)

    def keep(self, cursor: Cursor, **epochs: int) -> int:
        """Store a cursor, and epochs of its group; returns the bucket."""
        key = cursor.key
        claim = None if key.group is None else Claim(key.group, None, None, "")
        bucket = bucket_of(key.incarnation, claim, key.container or "", key.link or "")
        self.values[bucket][key.state] = encoded(cursor)
        for partition, epoch in epochs.items():
            self.values[bucket] |= epoch_change(
                key.incarnation, key.group or "", int(partition.removeprefix("p")), epoch
            )
        return bucket

    def states(self, bucket: int) -> Mapping[str, bytes]:
        return self.values[bucket]

    def at(self, stage: Stage, bucket: int, address: str = "") -> None:
        """Let the home of a bucket be at another node, or here. Each node knows its states."""
        self.values[bucket].update(stage.states.values)
        if address:
            self.others.setdefault(address, Other()).homes[bucket] = stage.serving
        else:
            self.homes[bucket] = stage.serving

    def serving(self, bucket: int) -> Serving | None:
        return self.homes.get(bucket)

    def deciding(self, bucket: int) -> Serving | None:
        return self.homes.get(bucket)

    def current(self, bucket: int) -> Serving | None:
        return self.homes.get(bucket)

    # -- the other nodes: see `Ways`

    def record(self, bucket: int) -> HomeRecord | None:
        for address, other in self.others.items():
            if bucket in other.homes:
                return HomeRecord(1, address, address)
        return self.elsewhere

    def is_here(self, bucket: int) -> bool:
        return bucket in self.homes

    def ask(self, address: str, asked: Question) -> bool:
        self.asked.append(asked)
        return True

    def forget(self, address: str, number: int) -> None:
        """The test looks at `asked`."""

    def problem(self, address: str) -> str | None:
        return "it is away"

    def is_current(self, bucket: int) -> bool:
        return bucket in self.homes

    def inquire(self, address: str, inquiry: Inquiry) -> bool:
        self.inquired.append((address, inquiry))
        self.unanswered.append((address, inquiry))
        return True

    def forget_inquiry(self, address: str, number: int) -> None:
        self.unanswered = [each for each in self.unanswered if each[1].number != number]

    def unreached(self, address: str) -> str | None:
        return None

    def answer(self) -> None:
        """Let the other nodes answer; time passes if none does."""
        waiting, self.unanswered = self.unanswered, []
        spoken = [each for each in waiting if not self.others[each[0]].silent]
        for address, inquiry in spoken:
            other = self.others[address]
            self.inquiring.answered(address, finish(description(other, log_of, inquiry)))
        if not spoken:
            self.now_ms += WITHIN_MS
            self.inquiring.tick(self.now_ms)


def kept_requests(
    logs: Mapping[str, StoredLog],
    buckets: Buckets,
    links: Links = lambda: (),
) -> KeptRequests:
    return KeptRequests(
        logs,
        buckets,
        links,
        asking=buckets.asking,
        inquiring=buckets.inquiring,
        now_ms=lambda: buckets.now_ms,
        refreshed=buckets.refreshed,
    )


def plain(value: Any) -> Any:
    """A map of an answer, with its encoded parts decoded."""
    if isinstance(value, Encoded):
        value = decode(value, 0)[0]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


class Asked:
    def __init__(self, *links: tuple[Claim, int | None]) -> None:
        self.links = links
        self.buckets = Buckets()
        self.kept = kept_requests({"log": LOG}, self.buckets, self._links)
        self._types = {names.GROUP_TYPE: self.kept.groups(), names.CURSOR_TYPE: self.kept.cursors()}

    def _links(self) -> list[tuple[str, Claim, int | None]]:
        return [("i", claim, partition) for claim, partition in self.links]

    def body(self, *asked: str) -> Any:
        return self.ask(*asked).body

    def ask(self, operation: str, type_: str, name: str = "", log: str = "log", **more: Any) -> Answer:
        request = Request(operation, type_, name, {names.INFO_LOG: log}, None, None, log=log, **more)
        steps = carry_out(self._types, request)
        try:
            while True:
                wait = next(steps)
                while wait is not None and not wait.over:
                    self.buckets.answer()
        except StopIteration as ended:
            answer: Answer = ended.value
            return answer

    def shown(self, *asked: str, **more: Any) -> list[dict[str, Any]]:
        """The groups or cursors of an answer."""
        body: Any = self.ask(*asked, **more).body
        entries = body[names.GROUPS if asked[1] == names.GROUP_TYPE else names.CURSORS]
        return [plain(each) for each in entries]

    def described(self, *asked: str) -> dict[str, Any]:
        """The group or cursor of an answer."""
        answer = self.ask(*asked)
        assert answer.status == 200, answer
        return plain(answer.body)


class Changing(Asked):
    """A group and a subscription whose home is here."""

    def __init__(self, key: CursorKey) -> None:
        super().__init__()
        self.bucket = self.buckets.keep(Cursor(key, None, {0: 5, 1: 6}, 7))
        self.stage = Stage(self.buckets.values[self.bucket])
        self.stage.serving.wall_ms = 1234
        self.buckets.homes[self.bucket] = self.stage.serving

    def begin(self, operation: str, type_: str, name: str, **body: Any) -> RequestSteps:
        given: dict[Any, Any] = dict(body)
        request = Request(operation, type_, name, given, None, None, log="log")
        return carry_out(self._types, request)

    def answer(self, steps: RequestSteps) -> Answer:
        """The answer, after the transactions that it waits for."""
        try:
            while True:
                wait = next(steps)
                if wait is not None and not wait.over:
                    self.stage.commit()
        except StopIteration as ended:
            answer: Answer = ended.value
            return answer
