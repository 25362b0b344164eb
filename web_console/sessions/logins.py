"""What a person gives to log in. Pure."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Login:
    """What a person gave to log in: a user with a password, or a token, or nothing."""

    user: str | None = None
    password: str | None = None
    token: str | None = None

    @property
    def is_anonymous(self) -> bool:
        """Whether the person continues without a login."""
        return self.user is None and self.token is None


class LoginError(Exception):
    """A login was not accepted. `status`: of the answer to the browser; 401 counts as a failed attempt."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status: Final = status
