"""What was stored, promised, sent and answered, and whether these agree.

Checked at once: an event comes from the log of its subscriber, unchanged, and matches its filter; attempts
stay within the retry policy; waits are as long as the back-off and `Retry-After` say; no attempt ends before
its timeout; the promised order; a reply is stored once; a subscriber that never failed is not sent an event
twice. Checked at the end: everything that was promised has arrived, or its end is recorded.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from event_formats.amqp_binding import decode
from event_formats.attributes import text_of
from event_formats.errors import EventFormatError
from event_formats.http_binding import from_http
from knative_gateway.delivery.backoff import backoff_ms
from knative_gateway.ports import Failure, Stored
from knative_gateway.store.cursors import HISTORY_MAX
from tests.simulation_gateway.events import Posted
from tests.simulation_gateway.loop import SimulationError, VirtualLoop
from tests.simulation_gateway.network import BUSY_MS
from tests.simulation_gateway.subscribers import Attempt
from tests.simulation_gateway.targets import Event, Role, Target

PROMPT_MS: Final = 10_000
"""A subscriber that is well gets an event within this time, if log node and gateway are well."""
DISTURBED_MS: Final = 30_000
"""How long after a change deliveries may be ended and begun again."""
SUCCEEDS_MS: Final = 5_000
"""How long the deliveries of a deleted Broker may take to end."""
RETRY_AFTER_MAX_MS: Final = 300_000
TTL: Final = "knativebrokerttl"
HANGING_AT_ONCE: Final = 16
"""At least so many deliveries to a subscriber that hangs are in flight, after `LEARNING`."""
LEARNING: Final = 20
"""After so many timeouts, one after the other, the gateway knows."""


class Ledger:
    """`unusual`: intervals in which log node, gateway or machine were not well; the last may be open.
    `timeout_ms`: for deliveries without a timeout of their own.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.targets: Final[dict[str, Target]] = {}
        self.events: Final[dict[tuple[str, str], list[Event]]] = defaultdict(list)
        self.unreadable: Final[list[Event]] = []
        self.posted: Final[dict[str, Posted]] = {}
        self.accepted: Final[dict[str, str]] = {}
        self.attempts: Final[dict[tuple[str, str], list[Attempt]]] = defaultdict(list)
        self.records: Final[dict[str, list[Failure]]] = defaultdict(list)
        self.born: Final[dict[str, int]] = {}
        """When a Broker was created again after it was deleted: it has a log without the former events."""
        self.recreated: Final[dict[str, list[tuple[int, int]]]] = defaultdict(list)
        """From when until when a Broker was deleted and created again, and its former deliveries ended."""
        self.deleted_logs: Final[list[tuple[str, str]]] = []
        """Logs of Brokers that were deleted, with their incarnations."""
        self.noted: Final[dict[tuple[str, int, str], int]] = {}
        """When ends were first recorded for histories, by subscriber, partition and offset. A history that
        cannot be stored keeps the latest ones only.
        """
        self.failures: Final[dict[str, int]] = defaultdict(int)
        """How many failures were noted, with and without an end; a history keeps the latest."""
        self.is_forgetful = False
        """Whether a history may lack failures: after a kill, or when the disk failed."""
        self.unusual: Final[list[list[int]]] = []
        self.counts: Final[dict[str, int]] = defaultdict(int)
        self.trace: Final[list[tuple[object, ...]]] = []
        self.timeout_ms = 60_000
        self.slack_ms = 0
        """How much later than planned gateways may act, because the machine is busy."""
        self._loop: Final = loop
        self._resent: Final[dict[str, int]] = {}
        self._foremost: Final[dict[tuple[object, ...], str]] = {}

    # -- what happens

    def stored(self, log: str, incarnation: str, stored: Stored) -> None:
        """An event is durable."""
        event = Event(log, incarnation, stored.partition, stored.offset, self._loop.now_ms)
        self.trace.append((self._loop.now_ms, "stored", log, stored.partition, stored.offset))
        self.counts["stored"] += 1
        if stored.message_format == 0:
            try:
                decoded = decode(stored.message)
            except EventFormatError:
                pass
            else:
                event.id, event.attributes = text_of(decoded.attributes["id"]), decoded.attributes
                event.data = decoded.data or b""
        if event.attributes is None:
            self.unreadable.append(event)
            return
        self.events[log, event.id].append(event)
        posted = self.posted.get(event.id)
        if posted is not None and posted.data is not None:
            self.check(event.data == posted.data, f"{event.id} was stored with other data")
        if event.id.startswith("r-"):
            known = [each for each in self.events[log, event.id] if each.incarnation == incarnation]
            self.check(len(known) == 1, f"the reply {event.id} was stored twice")
            self.counts["replies"] += 1

    def attempted(self, attempt: Attempt) -> None:
        """A site has read a request."""
        headers = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in attempt.request.headers.items()
        ]
        sent = from_http(headers, attempt.request.body)
        attempt.event_id = text_of(sent.attributes["id"])
        self.trace.append((attempt.at_ms, "attempt", attempt.tag, attempt.event_id))
        kind, _, tag = attempt.tag.partition("-")
        target = self.targets[tag]
        self.counts[f"attempts {kind}"] += 1
        before = self.attempts[attempt.tag, attempt.event_id]
        before.append(attempt)
        if kind == "r":
            return
        events = self.events.get((target.log, attempt.event_id), [])
        self.check(bool(events), f"{target.tag} got {attempt.event_id}, which is not in {target.log}")
        event = events[-1]
        self.check(
            target.matches_ever(event),
            f"{target.tag} got {attempt.event_id}, which its filter does not match",
        )
        born_ms = self.born.get(target.log, 0)
        if attempt.at_ms > born_ms + SUCCEEDS_MS:
            self.check(event.at_ms >= born_ms, f"{target.tag} got {event.id} of a Broker that was deleted")
        for name in ("source", "type"):
            same = text_of(sent.attributes[name]) == text_of((event.attributes or {})[name])
            self.check(same, f"{attempt.event_id} came with another {name}")
        self.check((sent.data or b"") == event.data, f"{attempt.event_id} came with other data")
        if len(events) == 1:
            self._check_attempts(target, kind, attempt, before[:-1])
            self._check_stops(target, kind, attempt, before[:-1])
        if kind == "t":
            self._check_order(target, attempt, event)

    def answered(self, attempt: Attempt) -> None:
        """A site has sent an answer."""
        self.trace.append((self._loop.now_ms, "answer", attempt.tag, attempt.event_id, attempt.status))

    def given_up(self, attempt: Attempt) -> None:
        """A gateway has closed the connection of a request that was not answered."""
        process, target = attempt.process, self.targets[attempt.tag.partition("-")[2]]
        is_ending = process is None or process.dead or process.stops
        if is_ending or target.is_changing or target.is_restless or target.deleted_ms is not None:
            return
        if any(attempt.began_ms - DISTURBED_MS <= at_ms for at_ms in target.disturbed):
            return
        timeout_ms = self._timeout_ms(target)
        if self._resent.get(attempt.site, 0) >= self._loop.now_ms - timeout_ms:
            return  # the attempt may have begun on another connection, which the site had closed
        took_ms = self._loop.now_ms - attempt.began_ms
        what = f"the attempt of {attempt.event_id} at {attempt.tag}"
        is_in_time = took_ms >= timeout_ms - (BUSY_MS if self.slack_ms else 0)
        self.check(is_in_time, f"{what} was ended after {took_ms} ms of {timeout_ms}")
        self.counts["timeouts"] += 1

    def resent(self, host: str) -> None:
        """A gateway sends a request again, because the site had closed the idle connection."""
        self._resent[host.partition(".")[0]] = self._loop.now_ms

    def recorded(self, failures: Mapping[str, Sequence[Failure]]) -> None:
        """Failures were stored in histories."""
        for uid, each in failures.items():
            self.records[uid].extend(each)

    def disturb(self, target: Target) -> None:
        """A user requested something after which deliveries may be repeated."""
        target.disturbed.append(self._loop.now_ms)
        target.changes.append(self._loop.now_ms)

    def disturb_log(self, log: str) -> None:
        for target in self.targets.values():
            if target.log == log:
                self.disturb(target)

    def moved(self, log: str) -> None:
        """Partitions of a log got other owners."""
        for target in self.targets.values():
            if target.log == log:
                target.disturbed.append(self._loop.now_ms)

    def note_end(self, uid: str, partition: int, offset: str) -> None:
        """A delivery has ended, and the end is recorded."""
        self.noted.setdefault((uid, partition, offset), self._loop.now_ms)

    # -- laws that are checked at once

    def check(self, holds: bool, words: str) -> None:
        if not holds:
            raise SimulationError(f"at {self._loop.now_ms} ms: {words}")

    def _check_attempts(self, target: Target, kind: str, attempt: Attempt, before: Sequence[Attempt]) -> None:
        same = [each for each in before if each.process is attempt.process]
        chances = 1 + len(target.disturbed)
        most = (max(target.delivery.retry, target.retry_max) + 1) * chances
        what = f"attempt {len(same) + 1} of {attempt.event_id} at {attempt.tag}"
        self.check(len(same) < most or target.is_restless, f"{what}: the policy allows {most}")
        if not same:
            return
        last = same[-1]
        since = last.at_ms if last.answered_ms is None else last.answered_ms
        if (
            target.is_changing
            or target.is_restless
            or any(since - 5_000 <= at_ms for at_ms in target.disturbed)
        ):
            return
        is_good = target.is_prompt and attempt.event_id not in target.picked
        self.check(not is_good, f"{what}: the site is healthy")
        if kind == "t" and last.succeeded and not last.reply and last.answered_ms is not None:
            self.check(
                not self._arrived(target, last) or target.replies_to != "",
                f"{what}: the last one was answered {last.status}",
            )
        disturbed_ms = max(target.disturbed, default=0)
        of_this_plan = [each for each in same if each.at_ms > disturbed_ms]
        if target.disturbed:
            # The first one may have begun long before, with the former options: it can wait for a lookup.
            if len(of_this_plan) < 2:
                return
            of_this_plan.pop(0)
        wait_ms = backoff_ms(target.delivery, max(1, len(of_this_plan)))
        if last.retry_after_ms is not None and last.status in {429, 503} and self._arrived(target, last):
            longest = target.delivery.retry_after_max_ms
            wait_ms = max(
                wait_ms, min(last.retry_after_ms, RETRY_AFTER_MAX_MS if longest is None else longest)
            )
        # On a slow network, the attempt can time out before the answer, and even before the request, arrives.
        timed_out_ms = last.began_ms + self._timeout_ms(target)
        took_ms = attempt.at_ms - min(since, timed_out_ms)
        self.check(took_ms >= wait_ms - 2, f"{what} came {took_ms} ms after the last; {wait_ms} ms are due")

    def _check_stops(self, target: Target, kind: str, attempt: Attempt, before: Sequence[Attempt]) -> None:
        """Check that a gateway that stopped in order has stored what it had delivered."""
        if kind != "t" or target.is_changing or target.is_restless or target.is_unclear or self.is_forgetful:
            return
        for each in before:
            process = each.process
            if process is None or process is attempt.process or not process.stopped or each.reply:
                continue
            if any(each.at_ms - DISTURBED_MS <= at_ms for at_ms in target.changes):
                continue
            is_done = each.succeeded and self._arrived(target, each)
            is_stored = is_done and (each.arrives_ms or 0) < process.stopped_ms
            words = f"{process.name} stopped in order after it had delivered {attempt.event_id}"
            self.check(not is_stored, f"{words}, which came again at {attempt.tag}")

    def _timeout_ms(self, target: Target) -> int:
        timeout_ms = target.delivery.timeout_ms
        return self.timeout_ms if timeout_ms is None else timeout_ms

    def _arrived(self, target: Target, attempt: Attempt) -> bool:
        """Whether the answer certainly arrived at the gateway before the attempt timed out."""
        arrives_ms = attempt.arrives_ms
        latest_ms = attempt.began_ms + self._timeout_ms(target) - self.slack_ms
        return arrives_ms is not None and arrives_ms < latest_ms

    def _check_order(self, target: Target, attempt: Attempt, event: Event) -> None:
        if target.order == "unordered" or target.is_restless or target.is_changing:
            return
        if attempt.at_ms >= attempt.began_ms + self._timeout_ms(target):
            return  # on a slow network, it arrives after it timed out, and after the next events
        key = None if event.attributes is None else event.attributes.get("partitionkey")
        if target.order == "key" and key is None:
            return
        of = key if target.order == "key" else None
        where = (target.tag, attempt.process, event.incarnation, event.partition, of, len(target.disturbed))
        foremost = self._foremost.get(where, "")
        self.check(event.offset >= foremost, f"{target.tag}: {event.offset} came after {foremost}")
        self._foremost[where] = event.offset

    # -- laws that are checked at the end

    def missing(self, logs: Mapping[str, Any]) -> Iterator[str]:
        """Return what was promised and has not happened. `logs`: those of the node."""
        for target in self.targets.values():
            log = logs.get(target.log)
            if target.ready_ms is None or target.deleted_ms is not None or target.is_unclear or log is None:
                continue
            for (name, _), events in self.events.items():
                for event in events if name == target.log else ():
                    if self._is_due(target, event, log) and not self._is_done(target, event):
                        yield (
                            f"{target.tag} ({target.name}) has not got {event.id} ({event.partition}, "
                            f"{event.offset})"
                        )
            for event in self.unreadable:
                if (
                    event.log == target.log
                    and self._is_due(target, event, log)
                    and not self._is_recorded(target, event)
                ):
                    yield (
                        f"{target.tag}: no record of the unreadable message ({event.partition}, "
                        f"{event.offset})"
                    )
        yield from self._not_recorded()
        for name, incarnation in self.deleted_logs:
            if name in logs and logs[name].incarnation == incarnation:
                yield f"the log {name} of a Broker that was deleted"
        yield from self._missing_replies(logs)

    def _not_recorded(self) -> Iterator[str]:
        """Ends that were noted, and are not in a stored history."""
        living = {
            target.uid: target for target in self.targets.values() if target.uid and target.deleted_ms is None
        }
        for uid in sorted(living) if not self.is_forgetful else ():
            noted = {
                key
                for key, at_ms in self.noted.items()
                # Positions and failures of a removed route are stored before its last deliveries end.
                if key[0] == uid
                and not any(first <= at_ms <= last for first, last in self.recreated[living[uid].log])
            }
            stored = {(uid, each.partition, each.offset) for each in self.records.get(uid, ()) if each.end}
            if self.failures[uid] <= HISTORY_MAX and not noted <= stored:
                yield f"the history of {uid} lacks {sorted(noted - stored)[:3]}"

    def _is_due(self, target: Target, event: Event, log: Any) -> bool:
        assert target.ready_ms is not None
        is_there = event.incarnation == log.incarnation and int(event.offset) >= log.removed[event.partition]
        return (
            is_there
            and event.at_ms > target.ready_ms
            and (event.attributes is None or target.matches_always(event))
        )

    def _is_done(self, target: Target, event: Event) -> bool:
        tags = (f"t-{target.tag}", f"d-{target.tag}")
        got = [attempt for tag in tags for attempt in self.attempts.get((tag, event.id), ())]
        return any(each.succeeded for each in got) or self._is_recorded(target, event)

    def _is_recorded(self, target: Target, event: Event) -> bool:
        return (target.uid, event.partition, event.offset) in self.noted

    def _missing_replies(self, logs: Mapping[str, Any]) -> Iterator[str]:
        for (tag, event_id), attempts in self.attempts.items():
            last = attempts[-1]
            target = self.targets[tag.partition("-")[2]]
            if (
                not tag.startswith("t-")
                or not last.is_reply_good
                or last.answered_ms is None
                or (last.process is not None and last.process.dead)
            ):
                continue
            if target.deleted_ms is not None or not target.replies_to or target.disturbed:
                continue
            if not self._arrived(target, last):
                continue
            events = self.events.get((target.log, event_id), ())
            if any(self._is_recorded(target, event) for event in events):
                continue  # the reply could not be stored in any attempt
            if target.replies_to not in logs:
                continue
            # The TTL of the reply is one less than that of the event.
            is_expired = any(text_of((event.attributes or {}).get(TTL, "")) == "1" for event in events)
            is_stored = bool(self.events.get((target.replies_to, last.reply)))
            if is_stored == is_expired:
                words = "is in" if is_stored else "is not in"
                yield f"{tag}: the reply {last.reply} to {event_id} {words} {target.replies_to}"

    def late(self) -> Iterator[str]:
        """Return the events that arrived late, or not at all, at a healthy subscriber without faults."""
        for target in self.targets.values():
            if target.role is Role.HANGING:
                yield from self._slow(target)
            if not target.is_prompt:
                continue
            for failure in self.records.get(target.uid, ()):
                is_picked = failure.event_id in target.picked
                if failure.end not in {"skipped", "removed", "log made again"} and not is_picked:
                    yield f"{target.tag} is healthy, and its history has {failure}"
            if target.ready_ms is None or target.disturbed:
                continue
            for (log, _), events in self.events.items():
                for event in events if log == target.log else ():
                    if event.at_ms < target.ready_ms + 1000 or not target.matches_always(event):
                        continue
                    if self._is_unusual(event.at_ms - 20_000, event.at_ms + PROMPT_MS + 1000):
                        continue
                    got = self.attempts.get((f"t-{target.tag}", event.id), ())
                    if event.id in target.picked:
                        continue
                    if not got or got[0].at_ms > event.at_ms + PROMPT_MS:
                        when = got[0].at_ms - event.at_ms if got else None
                        yield f"{target.tag} is healthy, and got {event.id} of {event.at_ms} after {when} ms"

    def _slow(self, target: Target) -> Iterator[str]:
        """Return the events of a subscriber that never answers that took too long to its dead letter sink."""
        if target.ready_ms is None or target.disturbed:
            return
        ready_ms, timeout_ms = target.ready_ms, self._timeout_ms(target)
        logged = [each for (log, _), events in self.events.items() if log == target.log for each in events]
        due = sorted((each for each in logged if each.at_ms > ready_ms), key=lambda each: each.at_ms)
        for count, event in enumerate(due):
            sent = self.attempts.get((f"d-{target.tag}", event.id), ())
            ends = [each.answered_ms for each in sent if each.succeeded and each.answered_ms is not None]
            noted = self.noted.get((target.uid, event.partition, event.offset))
            took_ms = (
                min([*ends, *([] if noted is None else [noted])], default=self._loop.now_ms) - event.at_ms
            )
            most_ms = timeout_ms * (LEARNING + count * 2 // HANGING_AT_ONCE)
            if took_ms > most_ms and not self._is_unusual(event.at_ms - 20_000, event.at_ms + most_ms):
                yield f"{target.tag} hangs, and {event.id}, its event {count}, took {took_ms} of {most_ms} ms"

    def _is_unusual(self, begin_ms: int, end_ms: int) -> bool:
        if end_ms > self._loop.now_ms:
            return True
        return any(first <= end_ms and begin_ms <= last for first, last in self.unusual)
