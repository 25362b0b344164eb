"""What a person gives to log in. Pure."""

from dataclasses import dataclass, field
from typing import Final, Protocol


class Tokens(Protocol):
    """Gives a token that is renewed before it expires."""

    async def current(self) -> str:
        """Return a token that is valid now.

        Raises:
            TokensEndedError: no token is valid any more.
        """

    @property
    def is_over(self) -> bool:
        """Whether no token will be valid again."""


class TokensEndedError(Exception):
    """The provider does not renew a login any more."""


@dataclass(frozen=True, slots=True)
class Login:
    """What a person gave to log in: a user with a password, or a token, or nothing.

    `tokens`: renews the token; None if it cannot be renewed. `shown`: the name that pages show, if it is not
    the user.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tokens: Tokens | None = None
    shown: str | None = None

    @property
    def is_anonymous(self) -> bool:
        """Whether the person continues without a login."""
        return self.user is None and self.token is None


class LoginError(Exception):
    """A login was not accepted. `status`: of the answer to the browser; 401 counts as a failed attempt."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status: Final = status
