"""Selection of the events that a Trigger receives: CloudEvents SQL, the filter dialects, and the index over
all Triggers of a Broker.
"""

from knative_gateway.filters.cesql.expression import Expression, Result, compile_expression, evaluate
from knative_gateway.filters.dialects import CompiledFilters, compile_filters, trigger_filters
from knative_gateway.filters.index import Index
from knative_gateway.filters.refusal import ErrorKind, EvaluationError, FilterError, ParseError
from knative_gateway.filters.validation import Problem, validate, validate_attributes
from knative_gateway.filters.work import FilterWorkError

__all__ = [
    "CompiledFilters",
    "ErrorKind",
    "EvaluationError",
    "Expression",
    "FilterError",
    "FilterWorkError",
    "Index",
    "ParseError",
    "Problem",
    "Result",
    "compile_expression",
    "compile_filters",
    "evaluate",
    "trigger_filters",
    "validate",
    "validate_attributes",
]
