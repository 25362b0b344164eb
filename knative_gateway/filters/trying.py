"""Trials of filters: whether they match an event, and if not, why. Pure.

The filters are compiled and evaluated as they are for deliveries, one after the other: the first one that
does not match is the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from knative_gateway.filters.attributes import Attributes
from knative_gateway.filters.cesql.expression import Expression
from knative_gateway.filters.dialects import Filters, compile_each
from knative_gateway.filters.validation import ATTRIBUTES
from knative_gateway.filters.work import FilterWorkError, Work

_REASON_MAX: Final = 300
"""Characters of a reason."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an event matches. `reason`: why not; empty if it matches."""

    matches: bool
    reason: str = ""


class Trial:
    """A trial of the filters of a Trigger. `spent`: the steps of all evaluations so far."""

    def __init__(self, filters: Filters) -> None:
        """Compile the filters, each once.

        Raises:
            FilterError: they are not valid; `validate` returns all problems.
        """
        self.spent = 0
        self._work: Final = Work()
        self._filters: Final = list(zip(filters, compile_each(filters, self._work), strict=True))

    def verdict(self, attributes: Attributes) -> Verdict:
        """Return whether an event with these attributes matches."""
        self._work.begin()
        try:
            for index, (each, (test, expression)) in enumerate(self._filters):
                if test is not None and not test(attributes):
                    return Verdict(False, _reason(index, each, expression, attributes)[:_REASON_MAX])
            return Verdict(True)
        except FilterWorkError as error:
            return Verdict(False, str(error))
        finally:
            self.spent += self._work.spent


def _reason(
    index: int, filter_: Mapping[str, object], expression: Expression | None, attributes: Attributes
) -> str:
    name = next(name for name, content in filter_.items() if content)
    where = "filter.attributes" if name == ATTRIBUTES else f"filters[{index}].{name}"
    if expression is None:
        return f"{where} does not match"
    result = expression.evaluate(attributes)
    if result.errors:
        return f"{where} fails: {result.errors[0].reason}"
    return f"{where} is false" if result.value is False else f"{where} is {result.value!r}, not a Boolean"
