"""What a console shows: a node or a gateway. [io] through its functions."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.routing import BaseRoute

from web_console.sessions.logins import Login
from web_console.sessions.visitor import Visitor
from web_console.settings import ConsoleSettings

LogIn = Callable[[ConsoleSettings, Login, str], Awaitable[Visitor]]
"""Begins a session with a token for its forms. Raises LoginError."""


@dataclass(frozen=True, slots=True)
class Product:
    """The part of a console that differs.

    `noun`: what it connects to. `views`: the paths and titles of the main views; the first one is the home.
    `has_users`: whether people can log in with user and password, not only with a token. `handlers`: the
    answers to errors of its views.
    """

    noun: str
    views: Sequence[tuple[str, str]]
    has_users: bool
    log_in: LogIn
    routes: Callable[[], Sequence[BaseRoute]]
    handlers: Mapping[Any, Any]

    @property
    def home(self) -> str:
        """The path of the first view."""
        return f"/{self.views[0][0]}"
