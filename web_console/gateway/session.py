"""[io] A session of the console of a gateway: the token of one person, and what all views of it share."""

import time
from pathlib import Path
from typing import Final

from web_console.gateway.api import Api, ApiError, AwayError, server_of
from web_console.gateway.inventory import Inventory
from web_console.sessions.logins import Login, LoginError, Tokens
from web_console.sessions.visitor import Visitor
from web_console.settings import ConsoleSettings

_WHO: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_MAY: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
HEALTH: Final = "/apis/gateway.knative.dev/v1/gateway"
"""What a gateway says about itself."""
ADMINISTRATION: Final = frozenset({"health"})
"""The views for people who may read everything."""
_NAME_MAX: Final = 200
_KEPT_S: Final = 15.0
"""After a change of the rules, pages follow within this time."""
_KEPT_MAX: Final = 100


class GatewaySession(Visitor):
    """The session of one person. The gateway alone decides what the person may do."""

    def __init__(self, api: Api, user: str | None, csrf: str, tokens: Tokens | None = None) -> None:
        """`user`: None if the gateway needs no token."""
        super().__init__(user, csrf, is_anonymous=user is None, tokens=tokens)
        self.api: Final = api
        self.inventory: Final = Inventory(api)
        self._may: Final[dict[tuple[str, str], tuple[float, bool]]] = {}

    async def may(self, verb: str, namespace: str) -> bool:
        """Whether the user may do this with Triggers and Subscriptions of a namespace, for example `update`.

        Raises:
            ApiError, AwayError: it is not known.
        """
        now_s, key = time.monotonic(), (verb, namespace)
        until_s, known = self._may.get(key, (0.0, False))
        if now_s < until_s:
            return known
        found = await allowed(self.api, verb, "triggers.eventing.knative.dev", namespace)
        if len(self._may) >= _KEPT_MAX:
            self._may.clear()
        self._may[key] = now_s + _KEPT_S, found
        return found


async def log_in(settings: ConsoleSettings, login: Login, csrf: str) -> GatewaySession:
    """Begin a session with a bearer token, or without one.

    Raises:
        LoginError: the gateway does not accept the token, or does not answer.
    """
    server = server_of(settings.url)
    if login.token and not (server.is_tls or server.is_local or settings.plain_without_tls):
        message = (
            "The gateway is on another machine and the connection to it has no TLS, so the console does not"
            " send tokens. Use --server https://…, or --plain-without-tls."
        )
        raise LoginError(message, 400)
    try:
        if await _user(_api(settings, None)) is not None:
            # The gateway needs no token. A session with any token would have the same rights.
            return await _begun(GatewaySession(_api(settings, None), None, csrf))
        if login.token is None:
            message = "The gateway needs a token."
            raise LoginError(message, 401)
        api = _api(settings, login.token.strip(), login.tokens)
        user = await _user(api)
        if user is not None:
            return await _begun(GatewaySession(api, user, csrf, login.tokens))
    except (ApiError, ValueError) as error:
        raise LoginError(str(error), 400) from error
    except AwayError as error:
        raise LoginError(away_words(settings.url, error), 503) from error
    message = "The gateway does not accept this token."
    raise LoginError(message, 401)


async def _begun(session: GatewaySession) -> GatewaySession:
    """Hide the views for which the person lacks the right."""
    if not await allowed(session.api, "get", "gateway.gateway.knative.dev"):
        session.hidden = ADMINISTRATION
    return session


async def allowed(api: Api, verb: str, resource: str, namespace: str = "") -> bool:
    """Return whether the gateway would allow this. `resource`: PLURAL.GROUP.

    Raises:
        ApiError, AwayError: it is not known.
    """
    plural, _, group = resource.partition(".")
    attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
    asked = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    found = (await api.post(_MAY, asked)).get("status")
    return isinstance(found, dict) and found.get("allowed") is True


def _api(settings: ConsoleSettings, token: str | None, tokens: Tokens | None = None) -> Api:
    ca_file: Path | None = settings.ca_file
    return Api(server_of(settings.url), ca_file, token, tokens)


async def _user(api: Api) -> str | None:
    """Return the name of the user; None if the gateway does not accept the token."""
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        found = await api.post(_WHO, asked)
    except ApiError as error:
        if error.code == 401:
            return None
        raise
    status = found.get("status")
    user = status.get("userInfo") if isinstance(status, dict) else None
    name = user.get("username") if isinstance(user, dict) else None
    return str(name)[:_NAME_MAX]


def away_words(url: str, error: AwayError) -> str:
    """Return the sentence for a gateway that does not answer."""
    why = f": {error}" if str(error) else ""
    return f"The gateway at {url} does not answer{why}. The console tries again until it does."
