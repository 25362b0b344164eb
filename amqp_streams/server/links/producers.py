"""The producer links of one connection: they take what has arrived, for a bounded time in each loop
iteration.

Law: a client gains nothing by sending many batches at once. What does not fit into a loop iteration stays in
Proton, and nothing that arrived after it is processed before it.
"""

from time import perf_counter

from amqp_streams.server.links.producer import ProducerLink


class Producers:
    """The producer links.

    `messages`: how many messages `take_all` took: each was one frame with a transfer and nothing else.
    `behind`: links with deliveries that wait for a later loop iteration; always the same list.
    """

    __slots__ = ("behind", "links", "messages")

    def __init__(self) -> None:
        self.links: list[ProducerLink] = []
        self.behind: list[ProducerLink] = []
        self.messages = 0

    @property
    def taking(self) -> bool:
        """Whether a link has messages that need more steps now."""
        return any(link.taking is not None and not link.waits for link in self.behind)

    def take_all(self, until: float) -> None:
        """Let all links take what has arrived. `until`: see `ProducerLink.take`."""
        for link in self.links:
            self.messages += link.take(until)
            if link.behind:
                self.behind.append(link)

    def take(self, link: ProducerLink, until: float) -> None:
        """Let one link take what has arrived."""
        link.take(until)
        if link.behind:
            self.behind.append(link)

    def catch_up(self, until: float) -> None:
        """Let the links that are behind take what has arrived: at least one step of the first link."""
        # A batch that has begun comes first.
        waiting = sorted(self.behind, key=lambda link: link.taking is None)
        self.behind.clear()
        for index, link in enumerate(waiting):
            if index and perf_counter() > until:
                self.behind.append(link)
            else:
                self.take(link, until)

    def remove(self, link: ProducerLink) -> None:
        """Forget a link that has ended."""
        self.links.remove(link)
        if link in self.behind:
            self.behind.remove(link)
