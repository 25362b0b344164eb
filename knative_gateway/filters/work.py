"""A limit on the work of one Trigger's filters for one event, counted in steps. Pure.

An expression has a limit when it is parsed (`refusal.Limits`), and an event has one when it is accepted. The
steps limit the product of the two. A step is about one character that is examined; evaluating one node of an
expression counts as `NODE_STEPS`.
"""

from typing import Final

from knative_gateway.errors import GatewayError

STEPS_MAX: Final = 1 << 20
"""Steps of all filters of a Trigger for one event: some milliseconds."""
NODE_STEPS: Final = 8
TEXT_MAX: Final = 1 << 16
"""Characters of a text that a function creates. Filters of the event log node have the same limit."""


class FilterWorkError(GatewayError):
    """The filters need more steps for this event than they may take."""


class Work:
    """The remaining steps. Call `begin` before each evaluation."""

    __slots__ = ("left", "most", "used")

    def __init__(self, most: int = STEPS_MAX) -> None:
        self.most: Final = most
        self.left = most
        self.used = False
        """Whether an expression counts its steps here."""

    @property
    def spent(self) -> int:
        """Steps since the last `begin`."""
        return self.most - self.left

    def begin(self) -> None:
        """Reset the remaining steps to the limit."""
        self.left = self.most

    def spend(self, steps: int) -> None:
        """Count steps. Raises FilterWorkError if the limit is exceeded."""
        self.left -= steps
        if self.left < 0:
            message = (
                f"the filters need more than {self.most} steps for this event: its attributes are too long"
                " for them"
            )
            raise FilterWorkError(message)
