"""Bytes per second, shared fairly by the links of one user: the quotas `bytes_in` and `bytes_out`.

Laws: nothing is dropped. A link that has used more than its share waits until the debt is paid. Over any
period, all links together get at most the rate times the period, plus BURST_MS worth, plus one message for
each link; producers also get the credit that they have at the beginning of the period, see WINDOW_MS. Waiting
links get equal shares, in bytes. Links that send all that they may use at least nine tenths of the rate, as
long as a round trip takes at most half of WINDOW_MS.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import ceil
from typing import Final, Protocol

BURST_MS: Final = 1000
"""The largest burst: unused rate is saved for at most this many milliseconds."""
WINDOW_MS: Final = 1000
"""The producers that use their credit have at most this many milliseconds' worth of the rate as credit, all
links together. Credit that is granted now brings messages only after a round trip.
"""
ACTIVE_MS: Final = 1000
"""A producer that has sent nothing for this many milliseconds leaves its part of the window to the others."""
LITTLE_MS: Final = 250
"""If at most this many milliseconds' worth of the rate is available, links wait for equal shares: otherwise
the link that asks first would take it all.
"""
SLICE_MS: Final = 20
"""Waiting links continue when this many milliseconds' worth of the rate is available, instead of at every
byte.
"""


class Throttled(Hashable, Protocol):
    """A link that waits for its share."""

    def go_on(self) -> None:
        """Continue: bytes are available again."""


class Bucket:
    """A token bucket: tokens arrive at `rate` per second, up to BURST_MS worth.

    Spending may leave a debt. Times come from a monotonic clock.
    """

    __slots__ = ("_level", "_rate", "_stamp_ms")

    def __init__(self, rate: int, now_ms: int) -> None:
        self._rate = rate
        self._level = float(self.capacity)
        self._stamp_ms = now_ms

    @property
    def capacity(self) -> int:
        """How many bytes can be saved at most."""
        return max(1, self._rate * BURST_MS // 1000)

    def level(self, now_ms: int) -> int:
        """Return the available bytes. Negative: a debt."""
        passed_ms, self._stamp_ms = max(0, now_ms - self._stamp_ms), max(now_ms, self._stamp_ms)
        self._level = min(float(self.capacity), self._level + self._rate * passed_ms / 1000)
        return int(self._level // 1)

    def spend(self, count: int) -> None:
        """Take bytes, even if they are not available."""
        self._level -= count

    def wait_ms(self, wanted: int, now_ms: int) -> int:
        """How many milliseconds until this number of bytes is available. 0: they are available now."""
        lacking = min(wanted, self.capacity) - self.level(now_ms)
        return 0 if lacking <= 0 else -(-lacking * 1000 // self._rate)

    def change(self, rate: int, now_ms: int) -> None:
        """Use another rate from now on. Saved bytes stay, up to the new capacity."""
        self.level(now_ms)
        self._rate = rate
        self.level(now_ms)


@dataclass(slots=True)
class _Member:
    average: float | None = None
    """The average size of its messages in bytes, in which a larger message counts at once. None: it has had
    no message yet, so the first one is let through alone.
    """
    mean: float = 1.0
    """The average size of about its last eight messages, in bytes."""
    balance: int = 0
    """The unused bytes of its share while links are waiting. Negative if its last message was larger than its
    share; later shares then pay for it.
    """
    has_turn: bool = False
    waits: bool = False
    spent_ms: int = 0
    """When it last received or sent something."""
    active: bool = False

    def fitting(self, size: int) -> int:
        """Return how many of its messages fit into `size` bytes; at least one."""
        return 1 if self.average is None else max(1, int(size / self.average))

    def filling(self, size: int) -> int:
        """Return how many of its messages have `size` bytes or more; one if their size is not known."""
        return 1 if self.average is None else ceil(size / self.mean)


class Throttle:
    """The limit for one direction of one user.

    A link joins with its first request and leaves with `leave`.
    """

    def __init__(
        self, rate: int, clock_ms: Callable[[], int], later: Callable[[int, Callable[[], None]], None]
    ) -> None:
        self.rate = rate
        self.waits = 0
        """How often a link had to wait."""
        self._bucket: Final = Bucket(rate, clock_ms())
        self._clock_ms: Final = clock_ms
        self._later: Final = later
        self._members: Final[dict[Throttled, _Member]] = {}
        self._waiting: list[Throttled] = []
        self._waiting_since_ms: int | None = None
        self._waited_ms = 0
        self._scheduled = False
        self._active = 0
        self._counted_ms = clock_ms()

    @property
    def waited_ms(self) -> int:
        """How many milliseconds at least one link has waited, in total up to now."""
        return self._waited_ms + (
            0 if self._waiting_since_ms is None else self._clock_ms() - self._waiting_since_ms
        )

    @property
    def waiting(self) -> int:
        """How many links wait now."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether no link uses it and no debt is left, so that a new one would behave the same."""
        return not self._members and self._bucket.level(self._clock_ms()) >= self._bucket.capacity

    def credit(self, link: Throttled, held: int, most: int) -> int:
        """How many more messages a producer may be granted that has credit for `held` messages.

        It then has credit for at most `most`. 0: none now; `go_on` is called later, unless it has enough. The
        active links share one window, because granted credit stays until it is used.
        """
        member = self._member(link)
        window = self.rate * WINDOW_MS // 1000 // self._sharing(member)
        # By the mean, and rounded up: of large and small messages in turn, too few would be in flight if all
        # of them counted as large ones.
        allowed = min(most, member.filling(window))
        if held >= allowed:
            return 0
        room = self._room(link, member)
        if room <= 0:
            return 0
        wanted = min(allowed, member.filling(room))
        # With a turn, a link gets its share at once: it gets more in the next turn. Otherwise credit is
        # granted in halves, because a flow frame per message would double the number of frames.
        return max(0, wanted - held) if member.has_turn or held <= wanted // 2 else 0

    def deliveries(self, link: Throttled) -> int:
        """How many messages a consumer may be sent, if they are as large as earlier ones.

        0: none now; `go_on` is called later.
        """
        member = self._member(link)
        room = self._room(link, member)
        return member.fitting(min(room, self._bucket.capacity)) if room > 0 else 0

    def room(self, link: Throttled) -> int:
        """How many bytes the next `deliveries` may have, whatever the size of earlier ones."""
        member = self._member(link)
        return member.balance if member.has_turn else self._bucket.level(self._clock_ms())

    def spend(self, link: Throttled, messages: int, size: int, *, arrived: int | None = None) -> None:
        """Record that a link received or sent `messages` messages of `size` bytes in all.

        `arrived`: how many bytes arrived since the last call, if messages arrive in pieces. None: `size`.
        """
        spent = size if arrived is None else arrived
        self._bucket.spend(spent)
        member = self._member(link)
        member.balance -= spent
        member.spent_ms = self._clock_ms()
        if not member.active:
            member.active = True
            self._active += 1
        if not messages:
            return
        average = max(1.0, size / messages)
        member.mean = average if member.average is None else (7 * member.mean + average) / 8
        # Larger messages count at once: an average that is too low would allow a burst.
        member.average = (
            average if member.average is None else max(average, (3 * member.average + average) / 4)
        )

    def debt_ms(self) -> int:
        """How many milliseconds until the debt is paid, if it exceeds the capacity.

        Credit alone then does not limit this user. Otherwise 0.
        """
        now_ms = self._clock_ms()
        return self._bucket.wait_ms(0, now_ms) if self._bucket.level(now_ms) < -self._bucket.capacity else 0

    def holds(self, link: Throttled) -> bool:
        """Whether this link waits for its share."""
        member = self._members.get(link)
        return member is not None and member.waits

    def leave(self, link: Throttled) -> None:
        """Remove a link that has ended."""
        member = self._members.pop(link, None)
        if member is not None and member.active:
            self._active -= 1
        if member is not None and member.waits:
            self._waiting.remove(link)
            self._notify_waiting()

    def change(self, rate: int) -> None:
        """Use another rate from now on."""
        self.rate = rate
        self._bucket.change(rate, self._clock_ms())
        self._schedule()

    def end(self) -> None:
        """Remove the limit: all waiting links continue."""
        waiting, self._waiting = self._waiting, []
        self._members.clear()
        self._active = 0
        self._notify_waiting()
        for link in waiting:
            link.go_on()

    def _room(self, link: Throttled, member: _Member) -> int:
        """Return how many bytes this link may use now. Without bytes, it waits."""
        if member.has_turn:
            room = member.balance
        else:
            room = 0 if self._waiting else self._bucket.level(self._clock_ms())
            if room * 1000 <= self.rate * LITTLE_MS:
                room = 0
            else:
                member.balance = 0
        if room <= 0 and not member.waits:
            self.waits += 1
            self._wait(link, member)
            self._notify_waiting()
            self._schedule()
        return room

    def _sharing(self, member: _Member) -> int:
        """Return how many links share the window: the active ones, and this one."""
        now_ms = self._clock_ms()
        # Once in a while: an account may have thousands of links.
        if now_ms - self._counted_ms >= ACTIVE_MS // 4:
            self._counted_ms = now_ms
            for each in self._members.values():
                each.active = each.active and now_ms - each.spent_ms <= ACTIVE_MS
            self._active = sum(each.active for each in self._members.values())
        return self._active + (not member.active)

    def _wait(self, link: Throttled, member: _Member) -> None:
        member.waits = True
        self._waiting.append(link)

    def _member(self, link: Throttled) -> _Member:
        found = self._members.get(link)
        if found is None:
            found = self._members[link] = _Member()
        return found

    def _notify_waiting(self) -> None:
        now_ms, since_ms = self._clock_ms(), self._waiting_since_ms
        if self._waiting and since_ms is None:
            self._waiting_since_ms = now_ms
        elif not self._waiting and since_ms is not None:
            self._waited_ms += now_ms - since_ms
            self._waiting_since_ms = None

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            wait_ms = self._bucket.wait_ms(max(1, self.rate * SLICE_MS // 1000), self._clock_ms())
            # not longer, because the rate may change
            self._later(min(max(SLICE_MS, wait_ms), BURST_MS), self._turn)

    def _turn(self) -> None:
        """Give each waiting link an equal share of the available bytes.

        A link that owes more than its share keeps waiting.
        """
        self._scheduled = False
        level = self._bucket.level(self._clock_ms())
        if level > 0 and self._waiting:
            waiting, self._waiting = self._waiting, []
            members = [(link, self._members[link]) for link in waiting]
            for _, member in members:
                member.waits = False
            share = max(1, level // len(members))
            for link, member in members:
                if self._members.get(link) is not member:  # it left while other links continued
                    continue
                member.balance = min(member.balance, 0) + share
                if member.balance <= 0:
                    self._wait(link, member)
                    continue
                member.has_turn = True
                link.go_on()
                member.has_turn = False
            self._notify_waiting()
        self._schedule()
