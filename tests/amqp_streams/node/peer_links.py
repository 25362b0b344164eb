"""Consumers' links as their peers see them, for models of groups and cursors."""

from dataclasses import dataclass, field

from amqp_streams.streams.attach import AttachRequest, Consuming, Pending


@dataclass(eq=False)
class Link:
    """A consumer's link as its peer sees it."""

    request: AttachRequest
    answer: Consuming | Pending
    alive: bool = True
    leaving: bool = False
    next: dict[int, int] = field(default_factory=dict)
    unsettled: dict[tuple[int, int], None] = field(default_factory=dict)

    @property
    def grant(self) -> Consuming | None:
        return self.answer if isinstance(self.answer, Consuming) else None
