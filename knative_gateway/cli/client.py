"""[io] The client of the gateway's API for the commands: requests, and the paths of kinds."""

import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from knative_gateway import __version__
from knative_gateway.errors import ConfigError, GatewayError
from knative_gateway.resources.objects import Object, child, entries, group_of, number, text

TIMEOUT_S: Final = 60
MANAGER: Final = "knative-gateway-cli"
JSON: Final = "application/json"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
APPLY: Final = "application/apply-patch+yaml"
_TEXT_MAX: Final = 500
_API: Final = ("/api", "/version")
"""Where a gateway answers with JSON, whatever the status."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class RefusedError(GatewayError):
    """The gateway refused a request: `code` is the HTTP status."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code: Final = code


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind, as discovery describes it."""

    api_version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...]
    categories: tuple[str, ...]

    @property
    def full_name(self) -> str:
        """`trigger.eventing.knative.dev`, the form that kubectl prints."""
        group = group_of(self.api_version)
        return f"{self.singular}.{group}" if group else self.singular

    def path(self, namespace: str, name: str = "", action: str = "") -> str:
        """Return the path of the kind or of one object. An empty namespace means all namespaces."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        inside = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        parts = [quote(part, safe="") for part in (self.plural, name, action) if part]
        return f"{root}{inside}/{'/'.join(parts)}"


class Client:
    """A client for one gateway."""

    def __init__(
        self, server: str, token: str | None, ca: Path | None, *, timeout_s: int = TIMEOUT_S
    ) -> None:
        """Create a client. `timeout_s`: the longest wait for the server to continue.

        Raises:
          ConfigError: the URL is not valid or the certificates cannot be read.
        """
        parts = urlsplit(server)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            message = f"--server: {server!r} is not an http:// or https:// URL"
            raise ConfigError(message)
        self.server: Final = server.rstrip("/")
        self._token: Final = token
        self._timeout_s: Final = timeout_s
        try:
            context = (
                ssl.create_default_context(cafile=str(ca) if ca else None)
                if parts.scheme == "https"
                else None
            )
        except OSError as error:
            message = f"--ca: {ca} cannot be read: {error.strerror or error}"
            raise ConfigError(message) from None
        handlers: list[urllib.request.BaseHandler] = (
            [urllib.request.HTTPSHandler(context=context)] if context else []
        )
        if parts.hostname in _LOOPBACK:
            # urllib would send requests to the loopback through a proxy of the environment, which cannot
            # reach it.
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener: Final = urllib.request.build_opener(*handlers)
        self._resources: list[Resource] = []

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        accept: str = JSON,
        type_: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Send a request, and return the status and the document of the answer.

        Raises:
          RefusedError: the answer is an error.
          GatewayError: the gateway does not answer.
        """
        asked = f"?{urlencode(query)}" if query else ""
        data = None if body is None else json.dumps(body).encode()
        with self._opened(method, path + asked, data, {"Accept": accept, "Content-Type": type_}) as answer:
            return answer.status, _document(answer.read())

    def not_ready(self) -> str | None:
        """Return why the gateway is not ready, or None if it is.

        Raises:
          GatewayError: the gateway does not answer.
        """
        try:
            with self._opened("GET", "/readyz", None, {}) as answer:
                answer.read()
        except RefusedError as error:
            return str(error).removeprefix("not ready: ")
        return None

    def post_event(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Send an event to the ingress.

        Raises:
          RefusedError: the gateway does not accept the event.
          GatewayError: the gateway does not answer.
        """
        with self._opened("POST", path, body, headers) as answer:
            answer.read()

    def watch(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: int
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the changes of a collection as (`ADDED`, object) etc., for at most `timeout_s` seconds.

        Bookmarks are left out.

        Raises:
          RefusedError: the request is refused, or the watch ends with an error.
          GatewayError: the gateway does not answer.
        """
        asked = urlencode({**query, "watch": "true", "timeoutSeconds": str(timeout_s)})
        with self._opened("GET", f"{path}?{asked}", None, {"Accept": accept}, timeout_s + TIMEOUT_S) as lines:
            for line in lines:
                change = _document(line)
                type_, found = text(change, "type"), change.get("object")
                assert isinstance(found, dict), "every change has an object"
                if type_ == "ERROR":
                    raise RefusedError(text(found, "message"), number(found, "code"))
                if type_ != "BOOKMARK":
                    yield type_, found

    @contextmanager
    def _opened(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout_s: int | None = None,
    ) -> Iterator[Any]:
        """Send a request, and translate the errors of reading its answer."""
        more = {"User-Agent": f"{MANAGER}/{__version__}", **headers}
        if self._token:
            more["Authorization"] = f"Bearer {self._token}"
        # the constructor checks the scheme
        request = urllib.request.Request(f"{self.server}{path}", data, more, method=method)  # noqa: S310
        try:
            with self._opener.open(request, timeout=timeout_s or self._timeout_s) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            raise RefusedError(_reason(error), error.code) from None
        except (OSError, ValueError, HTTPException) as error:
            message = (
                f"{self.server} cannot be reached: {_unreachable(getattr(error, 'reason', None) or error)}"
            )
            raise GatewayError(message) from None

    def resources(self, *, again: bool = False) -> Sequence[Resource]:
        """Return all kinds that the gateway serves, those of the core first. `again`: ask the
        gateway again.
        """
        # Discovery costs a request for each group. A command that handles many objects does it once.
        if again or not self._resources:
            _, groups = self.ask("GET", "/apis")
            versions = [text(each, "preferredVersion", "groupVersion") for each in entries(groups, "groups")]
            self._resources = [*self._of("v1", "/api/v1")]
            for version in versions:
                self._resources += self._of(version, f"/apis/{version}")
        return self._resources

    def named(self, written: str) -> list[Resource]:
        """Return the kinds that `written` means: plural, singular, kind or short name, optionally with the
        group; or a category.

        Raises:
          GatewayError: the gateway does not serve such a kind.
        """
        name, _, group = written.lower().partition(".")
        for resource in self.resources():
            names = {resource.plural, resource.singular, resource.kind.lower(), *resource.short_names}
            if name in names and group in ("", group_of(resource.api_version)):
                return [resource]
        found = [resource for resource in self.resources() if written.lower() in resource.categories]
        if found:
            return found
        known = [resource.plural for resource in self.resources()]
        # Nearly always a misspelled name: the suggestion saves a look into the list.
        near = get_close_matches(
            written.lower(), [*known, *(resource.singular for resource in self.resources())], n=1
        )
        message = f"the gateway has no kind {written!r}; " + (
            f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
        )
        raise GatewayError(message)

    def kind_of(self, object_: Object) -> Resource:
        """Return the kind of an object.

        Raises:
          GatewayError: the gateway does not serve the kind.
        """
        identity = (text(object_, "apiVersion"), text(object_, "kind"))
        for again in (False, True):  # the definition may have been stored after the first look
            for resource in self.resources(again=again):
                if (resource.api_version, resource.kind) == identity:
                    return resource
        message = f"the gateway does not serve the kind {identity[1]} of {identity[0]}"
        raise GatewayError(message)

    def _of(self, api_version: str, path: str) -> Iterator[Resource]:
        _, listed = self.ask("GET", path)
        for each in entries(listed, "resources"):
            if "/" not in text(each, "name"):
                yield Resource(
                    api_version,
                    text(each, "kind"),
                    text(each, "name"),
                    text(each, "singularName") or text(each, "kind").lower(),
                    child(each).get("namespaced") is True,
                    _texts(each, "shortNames"),
                    _texts(each, "categories"),
                )


def _unreachable(reason: object) -> str:
    """Return why the gateway does not answer, and what the user can do."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason.verify_message}). Give its authority with --ca"
    for types, words in _REASONS.items():
        if isinstance(reason, types):
            return words
    return str(getattr(reason, "strerror", None) or reason)


# RemoteDisconnected is a ConnectionResetError and a BadStatusLine; SSLError is an OSError.
_REASONS: Final[Mapping[tuple[type[Exception], ...], str]] = {
    (ConnectionRefusedError,): (
        "the connection was refused. Is a gateway running ('knative-gateway serve'), and is --server right?"
    ),
    (socket.gaierror,): "the name of the host cannot be resolved. Is --server right?",
    (ssl.SSLError,): ("the server does not use TLS. Is --server right? Without TLS it begins with http://"),
    (TimeoutError,): "no answer. Is the host up, and does a firewall let the port through?",
    (ConnectionResetError, BrokenPipeError): (
        "the server closed the connection without an answer. Is --server right? With TLS it begins with"
        " https://"
    ),
    (HTTPException, ValueError): (
        "the server there is not a gateway: its answer is not valid. Is --server right?"
    ),
}


def _texts(value: object, name: str) -> tuple[str, ...]:
    return tuple(str(each) for each in entries(value, name))


def _document(raw: bytes) -> dict[str, Any]:
    document = json.loads(raw)
    if not isinstance(document, dict):
        message = "the answer is not an object"
        raise ValueError(message)
    return document


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the message of a Status or the text of an answer, or the HTTP status if it has neither."""
    words = ""
    with suppress(OSError, ValueError, HTTPException):
        raw = error.read()
        # The ingress and the probes answer with a line of text, the API with a Status.
        words = (
            raw.decode("utf-8", "replace").strip()[:_TEXT_MAX]
            if error.headers.get_content_type() == "text/plain"
            else text(_document(raw), "message")
        )
    if (
        error.code == HTTPStatus.NOT_FOUND
        and error.headers.get_content_type() != JSON
        and urlsplit(error.url).path.startswith(_API)
    ):
        return f"the server there is not a gateway: {error.url} does not exist. Is --server right?"
    if error.code == 401:
        return "the gateway needs a valid bearer token: set --token or KNATIVE_GATEWAY_TOKEN"
    return words or f"the gateway answers {error.code} {error.reason}"
