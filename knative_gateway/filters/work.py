"""A limit on the work of one Trigger's filters for one event, counted in steps. Pure.

An expression is bounded when it is read (`refusal.Limits`), an event when it is accepted; what is bounded
here is their product. A step is about one character that is looked at; evaluating one node of an expression
counts as `NODE_STEPS`.
"""

from typing import Final

from knative_gateway.errors import GatewayError

STEPS_MAX: Final = 1 << 20
"""For all filters of a Trigger and one event: some milliseconds."""
NODE_STEPS: Final = 8
TEXT_MAX: Final = 1 << 16
"""Characters of a text that a function makes; filters of the event log node have the same bound."""


class FilterWorkError(GatewayError):
    """The filters need more steps for this event than they may take."""


class Work:
    """The remaining steps. Call `begin` before an evaluation."""

    __slots__ = ("left", "most", "used")

    def __init__(self, most: int = STEPS_MAX) -> None:
        self.most: Final = most
        self.left = most
        self.used = False
        """An expression counts its steps here."""

    @property
    def spent(self) -> int:
        """Steps taken since `begin`."""
        return self.most - self.left

    def begin(self) -> None:
        """Evaluation begins."""
        self.left = self.most

    def spend(self, steps: int) -> None:
        """Take so many steps. Raises FilterWorkError: that is more than are left."""
        self.left -= steps
        if self.left < 0:
            message = (
                f"the filters need more than {self.most} steps for this event: its attributes are too long"
                " for them"
            )
            raise FilterWorkError(message)
