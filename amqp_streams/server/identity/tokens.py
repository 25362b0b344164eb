"""The user of an OAuth access token: a JWT, checked with the keys of `[oauth]` (RFC 7519, RFC 8725).

The laws are those of `service_parts/tokens`. No error text contains the token.
"""

from collections.abc import Callable, Iterator
from typing import Final

from amqp_streams.authentication import OAuthSettings
from amqp_streams.errors import ConfigError
from amqp_streams.server.identity.users import user_name
from amqp_streams.wire.security.mechanisms import Failure, Success
from service_parts.errors import raised_as
from service_parts.tokens.claims import BadTokenError, Expected, claim, expiry_ms, group_names, signed_claims
from service_parts.tokens.keys import Key, public_keys, secret_key


class TokenCheck:
    """Checks tokens by one configuration. `now_ms`: returns milliseconds since 1970."""

    def __init__(self, settings: OAuthSettings, now_ms: Callable[[], int]) -> None:
        """Read the keys.

        Raises:
            ConfigError: a file cannot be read, or has no usable key. The message names the file.
        """
        self.settings: Final = settings
        self._now_ms: Final = now_ms
        self._expected: Final = Expected(settings.issuer, settings.audience, settings.algorithms)
        self._keys: Final = list(_read_keys(settings))

    def verify(self, token: str) -> Success | Failure:
        """Return the user, the groups and the time of expiry of a token, or the reason why it is not valid.

        Takes some hundred microseconds.
        """
        settings = self.settings
        try:
            claims = signed_claims(token, self._keys, self._expected)
            user = self._user(claim(claims, settings.user_claim))
            expires_ms = expiry_ms(claims, now_ms=self._now_ms(), leeway_ms=settings.leeway_ms)
        except BadTokenError as error:
            return Failure(f"token: {error}")
        return Success(user, groups=group_names(claim(claims, settings.groups_claim)), expires_ms=expires_ms)

    def _user(self, name: object) -> str:
        try:
            return user_name(name) if isinstance(name, str) else user_name("")
        except ValueError as error:
            message = f"the claim {self.settings.user_claim} is not a valid user name"
            raise BadTokenError(message) from error


def _read_keys(settings: OAuthSettings) -> Iterator[Key]:
    with raised_as(ConfigError, "oauth.keys"):
        for path in settings.keys:
            yield from public_keys(path, settings.algorithms)
    with raised_as(ConfigError, "oauth.secret_file"):
        if settings.secret_file is not None:
            yield secret_key(settings.secret_file)
