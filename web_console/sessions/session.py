"""[io] A session of the console of a node: the connection of one person to the node."""

from typing import Final

from amqp_streams.client import (
    Client,
    LinkRefusedError,
    ManagementError,
    RetryPolicy,
    SaslOptions,
    TlsOptions,
    connect,
)
from amqp_streams.errors import AmqpStreamsError
from web_console.figures.watching import Watcher
from web_console.sessions.logins import Login, LoginError
from web_console.sessions.visitor import Visitor
from web_console.settings import ConsoleSettings
from web_console.showing.snippets import Reader
from web_console.showing.words import sentence, status

_LOGIN_S: Final = 10.0
ADMINISTRATION: Final = frozenset({"connections", "health"})
"""The views for people with the right `manage` on all logs."""
# A request of a page must fail soon while the node is away. The next request begins anew.
_RETRY: Final = RetryPolicy(elapsed_max_ms=2_000, wait_max_ms=500)


class Session(Visitor):
    """The session of one person, with what all views of it share."""

    def __init__(self, client: Client, login: Login, csrf: str) -> None:
        super().__init__(
            login.user or login.shown, csrf, is_anonymous=login.is_anonymous, tokens=login.tokens
        )
        self.reader: Final = Reader(login.user, with_token=login.token is not None)
        self.client: Final = client
        self.watcher: Final = Watcher(client)

    async def look_at_rights(self) -> None:
        """Hide the views for which the person lacks the right, or that the node does not have.

        Raises:
            AmqpStreamsError: the node does not answer.
        """
        try:
            found = await self.client.management.describe_node(parts=["rights"], timeout=_LOGIN_S)
        except (ManagementError, LinkRefusedError):
            self.hidden = ADMINISTRATION
        else:
            self.hidden = frozenset() if found.administers else ADMINISTRATION

    async def end(self) -> None:
        """Close the streams and the connection."""
        await super().end()
        await self.watcher.close()
        await self.client.close()


async def log_in(settings: ConsoleSettings, login: Login, csrf: str) -> Session:
    """Connect to the node as a user, with a token, or anonymously.

    Raises:
        LoginError: the node does not accept the login, or does not answer.
    """
    tls = TlsOptions(ca_file=settings.ca_file) if settings.ca_file is not None else None
    try:
        client = connect(
            settings.url,
            user=login.user,
            password=login.password,
            tls=tls,
            sasl=SaslOptions(
                token=login.token if login.tokens is None else login.tokens.current,
                mechanisms=("ANONYMOUS",) if login.is_anonymous else None,
                plain_without_tls=settings.plain_without_tls,
            ),
            retry=_RETRY,
            timeout=_LOGIN_S,
        )
        try:
            await client.connect()
            session = Session(client, login, csrf)
            await session.look_at_rights()
        except BaseException:
            await client.close()
            raise
    except (AmqpStreamsError, ValueError) as error:
        code = status(error)
        words = "The node needs a login." if login.is_anonymous and code == 401 else sentence(error)
        raise LoginError(words, code) from error
    return session
