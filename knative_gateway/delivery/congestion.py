"""Congestion control: how many deliveries to a subscriber may be in flight. Pure.

The algorithm is additive increase, multiplicative decrease. At first, the limit doubles with each round of
answers, until an attempt fails. After that, it increases by one in each round. An overload halves it, at most
once in the time of one answer. The limit does not increase while the answers take much longer than with few
requests in flight.

A subscriber that has not answered `SILENCES_MAX` attempts in a row hangs or does not exist. A lower limit
does not help then: with one event at a time, retention would remove the backlog first. So `HANGING_LIMIT`
deliveries are in flight, and the events reach their dead letter sink. With the next answer, the limit begins
at one.

The limit stays within its bounds. A failure does not increase it, except for a subscriber that hangs. A
success does not decrease it, except the first one after the subscriber hung.

Spec: Brokers and Channels MUST implement congestion control (knative-eventing-test-spec, "Event
Acknowledgement and Delivery Retry").
"""

from dataclasses import dataclass, field
from typing import Final

LIMIT_MIN: Final = 1
START_LIMIT: Final = 8
LIMIT_MAX: Final = 1024
SLOWDOWN: Final = 4.0
"""If answers take this many times as long as with few requests in flight, requests wait in the subscriber."""
LATENCY_FLOOR_MS: Final = 20
"""Latencies below this are not compared: they are noise."""
PROBE_LIMIT: Final = 2
"""Requests in flight while the gateway measures the latency with few requests."""
PROBE_ANSWERS: Final = 8
PROBE_ROUNDS: Final = 100
"""Rounds of slow answers after which this latency is measured again. The subscriber may have become slower
for good.
"""
SILENCES_MAX: Final = 16
HANGING_LIMIT: Final = 32
_DECREASE: Final = 0.5


@dataclass(slots=True, eq=False)
class Congestion:
    """The limit of one subscriber. `limit_max`: the maximum that the Trigger or the gateway sets.

    Times are milliseconds of a clock that never goes back.
    """

    limit_max: int = LIMIT_MAX
    start_limit: int = START_LIMIT
    _limit: float = field(default=0.0, init=False)
    _threshold: float = field(default=0.0, init=False)
    _latency_ms: float = field(default=0.0, init=False)
    _unhurried_ms: float | None = field(default=None, init=False)
    _probing: bool = field(default=False, init=False)
    _measured: int = field(default=0, init=False)
    _measured_ms: int = field(default=0, init=False)
    _slow_answers: int = field(default=0, init=False)
    _decreased_ms: int | None = field(default=None, init=False)
    _silences: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        assert LIMIT_MIN <= self.limit_max <= LIMIT_MAX, self.limit_max
        self._limit = float(min(max(self.start_limit, LIMIT_MIN), self.limit_max))
        self._threshold = float(self.limit_max)

    @property
    def limit(self) -> int:
        """How many deliveries may be in flight now."""
        return min(int(self._limit), PROBE_LIMIT) if self._probing else int(self._limit)

    def succeeded(self, elapsed_ms: int, in_flight: int) -> None:
        """Report an answer without a sign of overload. `in_flight`: the requests in flight, including this
        one.

        The limit increases only if at least half of it was in flight. Otherwise the answer does not show that
        the subscriber can process more.
        """
        # Hot path: one call for each event that a subscriber accepts.
        if self._silences:
            self._heard()
        if self._probing:
            # Answers to requests of the time before the probe were slowed down by the others in flight.
            if in_flight <= PROBE_LIMIT:
                self._measure(elapsed_ms)
            return
        self._note(elapsed_ms)
        if self._slow():
            self._slow_answers += 1
            # A round is as many answers as the limit allows in flight at once.
            if self._slow_answers > PROBE_ROUNDS * self._limit:
                # The first answers may belong to requests that began with more requests in flight. They are
                # not counted.
                self._probing, self._measured, self._measured_ms = True, -PROBE_LIMIT, 0
        elif self._limit < self.limit_max and in_flight * 2 >= int(self._limit):
            # Slow start below the threshold (one more for each answer doubles the limit in a round), then one
            # more in a round, as in TCP (RFC 5681).
            step = 1.0 if self._limit < self._threshold else 1.0 / self._limit
            self._limit = min(self._limit + step, float(self.limit_max))

    def overloaded(self, now_ms: int) -> None:
        """Report an answer with a status of overload.

        Requests that were in flight together cause one decrease.
        """
        self._heard()
        self._decrease(now_ms)

    def silent(self, now_ms: int) -> None:
        """Report that the subscriber did not answer: no connection could be opened, or no answer came in
        time.
        """
        self._silences += 1
        if self._silences < SILENCES_MAX:
            self._decrease(now_ms)
        else:
            self._probing = False
            self._limit = float(min(HANGING_LIMIT, self.limit_max))

    def _heard(self) -> None:
        # It answers again after a time of silence. What it can take now is unknown, so the limit starts at
        # the bottom.
        if self._silences >= SILENCES_MAX:
            self._limit = self._threshold = float(LIMIT_MIN)
        self._silences = 0

    def _decrease(self, now_ms: int) -> None:
        since = None if self._decreased_ms is None else now_ms - self._decreased_ms
        # All requests of one burst see the same overload. Halving for each of them would end at one.
        if since is not None and since < max(self._latency_ms, LATENCY_FLOOR_MS):
            return
        self._decreased_ms = now_ms
        self._probing = False
        self._limit = max(self._limit * _DECREASE, float(LIMIT_MIN))
        self._threshold = self._limit

    def _note(self, elapsed_ms: int) -> None:
        if self._unhurried_ms is None:
            self._latency_ms = float(elapsed_ms)
            self._measure(elapsed_ms)
            return
        # A moving mean over about one round: older answers belong to another limit.
        self._latency_ms += (elapsed_ms - self._latency_ms) / max(self._limit, float(PROBE_ANSWERS))
        self._unhurried_ms = min(self._unhurried_ms, self._latency_ms)

    def _measure(self, elapsed_ms: int) -> None:
        """Measure the latency with few requests in flight: the mean of PROBE_ANSWERS answers."""
        self._measured += 1
        if self._measured > 0:
            self._measured_ms += elapsed_ms
        if self._measured == PROBE_ANSWERS:
            self._unhurried_ms = self._measured_ms / PROBE_ANSWERS
            self._probing, self._slow_answers = False, 0

    def _slow(self) -> bool:
        return self._unhurried_ms is not None and self._latency_ms > max(
            self._unhurried_ms * SLOWDOWN,
            LATENCY_FLOOR_MS,
        )
