"""The common parts of all simulated clients: start, end, a connection, and another one after it is lost."""

from collections.abc import Callable
from random import Random
from typing import Any, cast

from amqp_streams.client.connection.mechanisms import Credentials
from tests.simulation.machine.logins import PLAIN_USER, Logins
from tests.simulation.machine.network import Weather
from tests.simulation.machine.schedule import MS, SECOND
from tests.simulation.peers.connection import Connection


class Client:
    """One program with one connection. It connects again after a loss, until it dies or is retired.

    `abuser`: it misbehaves, and nothing is expected of it.
    """

    abuser = False

    def __init__(self, world: Any, name: str, *, user: str | None = None) -> None:
        self.world = world
        self.name = name
        self.user = user
        self.random: Random = world.random
        self.weather: Weather = world.new_weather()
        self.window = 0
        self.connection: Connection | None = None
        self.living = False
        self.retired = False
        self.failures = 0
        self.last_condition: str | None = None
        self.address = "127.0.0.1"
        self.password: str | None = None
        """Instead of the right one."""
        self.frame_bytes = self.random.choice((512, 4096, 16 << 10))
        self.session_window = self.random.choice((5, 100, 2048))
        self.silence_ms = self.random.choice((2000, 5000, 10_000))
        self._incarnation = 0

    # -- what it is

    def connected(self, connection: Connection) -> None:
        """A connection is there: attach."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        """Whether the client has reached its goal."""
        return True

    def calm_down(self) -> None:
        """From now on nothing fails: the client works without faults."""
        self.weather.delay_us = 1 * MS
        self.weather.block_bytes = max(self.weather.block_bytes, 4 << 10)

    def why(self) -> str:
        """Return what the client waits for, as text."""
        return (
            f"{self.name}: {'connected' if self.connection else 'not connected'}, last {self.last_condition}"
        )

    # -- its life

    def start(self) -> None:
        """Start the client."""
        if not self.living and not self.retired:
            self.living = True
            self._incarnation += 1
            self._connect(self._incarnation)

    def die(self) -> None:
        """End the client with everything that it has. Its machine resets the connection, or does not."""
        self.living = False
        self._incarnation += 1
        connection, self.connection = self.connection, None
        if connection is not None and connection.wire is not None:
            if self.random.random() < 0.2:
                connection.wire.vanish()
            else:
                connection.drop()
            connection.lost()

    def retire(self) -> None:
        """Stop in order, and do not return."""
        self.living = False
        self.retired = True
        self._incarnation += 1
        if self.connection is not None:
            self.connection.close()

    def _connect(self, incarnation: int) -> None:
        if not self.living or incarnation != self._incarnation or self.connection is not None:
            return
        connection = Connection(
            self.world.node,
            self.world.schedule,
            self.random,
            self.container,
            weather=self.weather,
            user=self.user,
            address=self.address,
            credentials=self._credentials(),
            may_hoard=self.abuser,
            frame_bytes=self.frame_bytes,
            window=self.session_window,
            silence_ms=self.silence_ms,
        )
        if not connection.alive:
            self._again(incarnation)
            return
        self.connection = connection
        connection.ended = lambda _condition: self._ended(connection, incarnation)
        connection.refused = self.refused_login
        self.connected(connection)

    def _credentials(self) -> Credentials | None:
        """What it logs in with, in worlds with logins."""
        logins = self.world.logins
        if logins is None:
            return None
        nonce = f"{self.random.getrandbits(96):024x}"
        return cast("Logins", logins).credentials(self.user, nonce=nonce, password=self.password)

    def refused_login(self, words: str) -> None:
        """The node has refused the login."""
        user = self.user or PLAIN_USER
        assert user in self.world.logins.once_removed, f"{user} cannot log in: {words}"

    @property
    def container(self) -> str:
        """Its container-id."""
        return self.name

    def _ended(self, connection: Connection, incarnation: int) -> None:
        if self.connection is connection:
            self.connection = None
        self._again(incarnation)

    def _again(self, incarnation: int) -> None:
        wait_us = self.random.randint(50, 1000) * MS
        self.world.schedule.after(wait_us, lambda: self._connect(incarnation))

    def reattach_later(
        self, condition: str | None, attach_again: Callable[[Connection], None] | None = None
    ) -> None:
        """A link ended while its connection is open: attach it again a little later, with the last or the
        given arguments.
        """
        connection, incarnation = self.connection, self._incarnation
        self.last_condition = condition or self.last_condition
        if condition is None or connection is None or not connection.alive:
            return
        self.failures += 1
        wait_us = self.random.randint(100, 1000) * MS * min(self.failures, 5)

        def attach() -> None:
            if self.living and incarnation == self._incarnation and self.connection is connection:
                (attach_again or self.connected)(connection)

        self.world.schedule.after(min(wait_us, 3 * SECOND), attach)
