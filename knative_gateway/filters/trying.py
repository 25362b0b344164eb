"""Trials of filters: whether they match an event, and if not, why. Pure.

The compiled filters decide, as they do for deliveries. Only for an event that does not match, the filters are
also evaluated one by one, to find the first one that does not match.
"""

from dataclasses import dataclass
from typing import Final

from knative_gateway.filters.attributes import Attributes
from knative_gateway.filters.cesql.expression import Expression, compile_expression
from knative_gateway.filters.dialects import CompiledFilters, Filters, compile_filters
from knative_gateway.filters.validation import ATTRIBUTES, EXPRESSIONS
from knative_gateway.filters.work import FilterWorkError

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
        """Compile the filters.

        Raises:
            FilterError: they are not valid; `validate` returns all problems.
        """
        self.spent = 0
        self._filters: Final = filters
        self._whole: Final = compile_filters(filters)
        self._single: Final[dict[int, CompiledFilters]] = {}
        self._expressions: Final[dict[int, Expression]] = {}

    def verdict(self, attributes: Attributes) -> Verdict:
        """Return whether an event with these attributes matches."""
        try:
            if self._matches(self._whole, attributes):
                return Verdict(True)
            return Verdict(False, self._reason(attributes)[:_REASON_MAX])
        except FilterWorkError as error:
            return Verdict(False, str(error))

    def _matches(self, compiled: CompiledFilters, attributes: Attributes) -> bool:
        try:
            return compiled.matches(attributes)
        finally:
            self.spent += compiled.work.spent

    def _reason(self, attributes: Attributes) -> str:
        for index, each in enumerate(self._filters):
            single = self._single.get(index)
            if single is None:
                single = self._single[index] = compile_filters([each])
            if not self._matches(single, attributes):
                name, content = next((name, content) for name, content in each.items() if content)
                where = "filter.attributes" if name == ATTRIBUTES else f"filters[{index}].{name}"
                return f"{where} {self._detail(index, name, content, attributes)}"
        return ""

    def _detail(self, index: int, name: str, content: object, attributes: Attributes) -> str:
        if name not in EXPRESSIONS or not isinstance(content, str):
            return "does not match"
        expression = self._expressions.get(index)
        if expression is None:
            expression = self._expressions[index] = compile_expression(content)
        result = expression.evaluate(attributes)
        if result.errors:
            return f"fails: {result.errors[0].reason}"
        return "is false" if result.value is False else f"is {result.value!r}, not a Boolean"
