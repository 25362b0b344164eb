"""Source filters: which events of a log a consumer gets, compiled once at attach. Pure: no I/O, no clock."""

from amqp_streams.filters.bounds import Bounds
from amqp_streams.filters.compiled import Compiled, compile_filters
from amqp_streams.filters.refusal import Limits

__all__ = ["Bounds", "Compiled", "Limits", "compile_filters"]
