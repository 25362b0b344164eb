"""What a node knows of buckets, joined by hand: for the tests of requests about groups and cursors."""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits
from amqp_streams.homes.buckets import BUCKETS, bucket_of
from amqp_streams.homes.changing.asking import Asking
from amqp_streams.homes.kept import KeptRequests
from amqp_streams.homes.messages import Asked as Question
from amqp_streams.homes.records import HomeRecord
from amqp_streams.homes.serving import Serving
from amqp_streams.node.requests import RequestSteps, carry_out
from amqp_streams.node.writes import Wait
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.consuming.cursors import Cursor, CursorKey, encoded, group_key, link_key
from amqp_streams.streams.groups.claims import Claim
from amqp_streams.streams.groups.epochs import epoch_change
from amqp_streams.streams.groups.ownership import Ownership
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.steps import finish
from tests.amqp_streams.homes.stage import LOG, Stage

NOW_MS = 10_000
GROUP = group_key("i", "g")
LINK = link_key("i", "c", "l")


class Buckets:
    """States, and one bucket whose home may be here."""

    def __init__(self) -> None:
        self.values: list[dict[str, bytes]] = [{} for _ in range(BUCKETS)]
        self.home: int | None = None
        self.ownership = Ownership(2, GroupSettings())
        self.live: dict[CursorKey, Cursor] = {}
        self.homes: dict[int, Serving] = {}
        self.elsewhere: HomeRecord | None = None
        self.asked: list[Question] = []
        self.refreshes = 0
        self.on_refresh: Callable[[], object] = lambda: None
        self.asking = Asking("me", self)

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

    def owned(self, bucket: int, _log: StoredLog) -> Ownership | None:
        return self.ownership if bucket == self.home else None

    def cursor(self, bucket: int, key: CursorKey) -> Cursor | None:
        return self.live.get(key) if bucket == self.home else None

    def serving(self, bucket: int) -> Serving | None:
        return self.homes.get(bucket)

    def deciding(self, bucket: int) -> Serving | None:
        return self.homes.get(bucket)

    # -- the other nodes: see `Ways`

    def record(self, bucket: int) -> HomeRecord | None:
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

    def uses(self, bucket: int, key: CursorKey) -> bool | None:
        return key in self.live if bucket == self.home else None


def kept_requests(
    logs: Mapping[str, StoredLog],
    buckets: Buckets,
    links: Callable[[str, str], Iterable[tuple[Claim, int | None]]] = lambda _incarnation, _group: (),
) -> KeptRequests:
    return KeptRequests(
        logs,
        buckets,
        links,
        settings=GroupSettings(),
        limits=Limits(),
        asking=buckets.asking,
        now_ms=lambda: NOW_MS,
        refreshed=buckets.refreshed,
    )


class Asked:
    def __init__(self, *links: tuple[Claim, int | None]) -> None:
        self.links = links
        self.buckets = Buckets()
        self.kept = kept_requests({"log": LOG}, self.buckets, self._links)
        self._types = {names.GROUP_TYPE: self.kept.groups(), names.CURSOR_TYPE: self.kept.cursors()}

    def _links(self, incarnation: str, group: str) -> list[tuple[Claim, int | None]]:
        return [each for each in self.links if incarnation == "i" and each[0].group == group]

    def body(self, *asked: str) -> Any:
        return self.ask(*asked).body

    def ask(self, operation: str, type_: str, name: str = "", log: str = "log") -> Answer:
        request = Request(operation, type_, name, {names.INFO_LOG: log}, None, None, log=log)
        return finish(carry_out(self._types, request))


class Changing(Asked):
    """A group and a subscription whose home is here."""

    def __init__(self, key: CursorKey) -> None:
        super().__init__()
        self.bucket = self.buckets.home = self.buckets.keep(Cursor(key, None, {0: 5, 1: 6}, 7))
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
