"""The compiled filters of a source, which select records. Spec: AMQP 3.5.8; Event Streams 5.2; FILTEX 2.

Laws: all filters of a source must match. A filter of an unknown kind is not in force (AMQP 3.5.3). A filter
of a known kind that is not valid refuses the attach. A record is selected only if each filter is true for it:
unknown is not true.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.filters.bounds import Bounds
from amqp_streams.filters.evaluation.sql import Condition
from amqp_streams.filters.kinds import Compiler, Part, joined, kind_of
from amqp_streams.filters.needles import Clause
from amqp_streams.filters.record import Record
from amqp_streams.filters.refusal import FilterError, Limits
from amqp_streams.wire.types import Described, Value

_LIMITS: Final = Limits()
_NAME_SHOWN: Final = 64
NEEDLE_MESSAGE_MAX: Final = 32 << 10
"""The largest message that is searched for needles: in a larger one, decoding a field is faster."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The filters of one source.

    `in_force`: the known ones as the client sent them, for the answer to the attach.

    `bounds`: where a reader may begin and stop. `select` applies the other conditions. `weight`: about how
    many microseconds the evaluation of a record takes, from which a caller computes how many records to pass
    at once.
    """

    in_force: Mapping[str, Value]
    bounds: Bounds
    conditions: tuple[Condition, ...]
    needles: tuple[Clause, ...]
    weight: int

    @property
    def content(self) -> bool:
        """Whether filters look beyond the bounds. If not, a reader need not call `select`."""
        return bool(self.conditions)

    def select(
        self,
        messages: Sequence[bytes],
        base: int,
        timestamps: Sequence[int],
        *,
        partition: str,
        latest: int,
        now_ms: int | None = None,
        start: int = 0,
        end: int | None = None,
    ) -> list[int]:
        """Return the indices in start..end of matching records, ascending.

        The first record has the number `base`.

        `latest`: the value of `@latest`, which is the partition's end at the time of the attach. `now_ms`:
        the value of UTC(); None stands for NULL.
        """
        until = len(messages) if end is None else end
        return self.judge(
            messages,
            base,
            timestamps,
            partition=partition,
            latest=latest,
            now_ms=now_ms,
            start=start,
            end=until,
            work_max=None,
        )[0]

    def judge(
        self,
        messages: Sequence[bytes],
        base: int,
        timestamps: Sequence[int],
        *,
        partition: str,
        latest: int,
        now_ms: int | None,
        start: int,
        end: int,
        work_max: int | None,
        offsets: Sequence[int] | None = None,
        ordered: bool = True,
    ) -> tuple[list[int], int]:
        """Select like `select`, but stop after `work_max` steps of work.

        `offsets`, `ordered`: see `Bounds.indices`.

        Returns also the index up to which records were evaluated.

        In addition to these steps a record takes up to `weight` microseconds (see `record.WORK_MAX`), so pass
        few records at a time if others wait.
        """
        low, high = self.bounds.indices(
            base, timestamps, start, end, latest, offsets=offsets, ordered=ordered
        )
        candidates: Sequence[int] = range(low, high)
        if not ordered and self.bounds.timed:
            candidates = [index for index in candidates if self.bounds.in_time(timestamps[index])]
        # Needles come first: searching bytes is far cheaper than decoding a message.
        for clause in self.needles:
            candidates = _having(clause, candidates, messages)
        if not self.conditions:
            return list(candidates), end
        # One object for all records: creating it would cost as much as a simple condition.
        record = Record(partition=partition, latest=latest, now_ms=now_ms)
        chosen: list[int] = []
        work = 0
        for index in candidates:
            number = base + index if offsets is None else offsets[index]
            record.turn_to(messages[index], number, timestamps[index])
            for condition in self.conditions:
                if condition(record) is not True:
                    break
            else:
                chosen.append(index)
            # After the record, so that at least one record is evaluated in each call, however much it costs.
            work += record.work
            if work_max is not None and work > work_max:
                return chosen, index + 1
        return chosen, end

    def matches(
        self,
        message: bytes,
        *,
        number: int,
        timestamp_ms: int,
        partition: str,
        latest: int,
        now_ms: int | None = None,
    ) -> bool:
        """Whether one stored record matches. See `select`."""
        return bool(
            self.select(
                (message,), number, (timestamp_ms,), partition=partition, latest=latest, now_ms=now_ms
            )
        )


_UNDESCRIBED: Final = (
    "the value is not described (AMQP 3.5.8): give it a descriptor, for example amqp:sql-filter"
)


def compile_filters(filters: Mapping[str, Value], *, limits: Limits = _LIMITS) -> Compiled:
    """Compile a source's filter set: names to described values, or to plain values described by their name.

    Raises:
        PeerError: amqp:invalid-field, with the filter's name, the error, and its position from 1 (a character
            of a text, an entry of a map, a member of a list).
    """
    compiler = Compiler(limits)
    parts: list[Part] = []
    in_force: dict[str, Value] = {}
    for name, given in filters.items():
        descriptor, value = (given.descriptor, given.value) if isinstance(given, Described) else (name, given)
        kind = kind_of(descriptor)
        # AMQP 3.5.3: a filter that the node does not know is left out of `in_force`, and so the client learns
        # of it.
        if kind is None:
            if given is not None and not isinstance(given, Described):
                raise _refused(name, FilterError(_UNDESCRIBED))
            continue
        try:
            parts.append(compiler.part(kind, value))
        except FilterError as error:
            raise _refused(name, error) from error
        in_force[name] = given
    whole = joined(parts)
    return Compiled(in_force, whole.bounds, whole.conditions, whole.needles.most_selective(), whole.weight)


def _having(clause: Clause, candidates: Sequence[int], messages: Sequence[bytes]) -> list[int]:
    """Return the candidates that contain a needle, and those with large messages.

    A message larger than NEEDLE_MESSAGE_MAX is cheaper to decode than to search.
    """
    if len(clause) == 1:
        (needle,) = clause
        return [
            index
            for index in candidates
            if len(messages[index]) > NEEDLE_MESSAGE_MAX or needle in messages[index]
        ]
    large = (index for index in candidates if len(messages[index]) > NEEDLE_MESSAGE_MAX)
    # A message may contain several needles, and the caller needs ascending indices.
    return sorted(
        {*large, *(index for needle in clause for index in candidates if needle in messages[index])}
    )


def _refused(name: str, error: FilterError) -> PeerError:
    info = {"field": "filter", "filter": name[:_NAME_SHOWN]}
    if error.position is None:
        return PeerError(names.INVALID_FIELD, f"filter {name[:_NAME_SHOWN]}: {error.reason}", info)
    info["position"] = str(error.position)
    return PeerError(
        names.INVALID_FIELD, f"filter {name[:_NAME_SHOWN]}, position {error.position}: {error.reason}", info
    )
