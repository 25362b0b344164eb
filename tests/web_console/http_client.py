"""A person with a browser that only sends and receives: cookies, forms, headers."""

import http.client
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Self
from urllib.parse import urlencode

_CSRF = re.compile(r'name="csrf" value="([^"]+)"')


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Stream:
    """An answer that is not read yet."""

    connection: http.client.HTTPConnection
    answer: http.client.HTTPResponse

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self.connection.close()


class Person:
    """Sends requests to a console at `address`, with the cookies that it has set."""

    def __init__(self, address: str) -> None:
        self._host = address.removeprefix("http://")
        self.cookies: dict[str, str] = {}
        self.set_cookies: list[str] = []
        self.csrf = ""

    def get(self, path: str, **headers: str) -> Answer:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, fields: Mapping[str, str] | bytes, **headers: str) -> Answer:
        """Send a form, with the token of the last page that had one."""
        body = fields if isinstance(fields, bytes) else urlencode({"csrf": self.csrf, **fields}).encode()
        return self._ask("POST", path, body, headers)

    def log_in(self, user: str = "", password: str = "", **more: str) -> Answer:
        self.get("/login")
        answer = self.post("/login", {"user": user, "password": password, **more})
        if answer.status == 303:
            self.get(answer.headers["location"])
        return answer

    def open_stream(self, path: str) -> "Stream":
        """Begin to read a stream."""
        connection = http.client.HTTPConnection(self._host, timeout=60)
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection.request("GET", path, headers={"cookie": cookie})
        return Stream(connection, connection.getresponse())

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        self.set_cookies = [value for name, value in answer.getheaders() if name.lower() == "set-cookie"]
        for line in self.set_cookies:
            for name, morsel in SimpleCookie(line).items():
                self.cookies[name] = morsel.value
        if found := _CSRF.search(text):
            self.csrf = found[1]
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, text)
