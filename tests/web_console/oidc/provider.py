"""An OpenID Connect provider on this machine, which checks PKCE, the client and its secret; and tells lies on
request.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "the-console", "s3cret & more"
NODE = """
[oauth]
issuer = "{issuer}"
audience = "{client}"
keys = ["{keys}"]
leeway = "0s"
[[access]]
users = ["alice"]
logs = ["*"]
allow = ["send", "receive", "info", "manage"]
"""
"""Settings of a node that takes the tokens of the provider. The user alice may do everything."""
_KEYS = [rsa.generate_private_key(65537, 2048) for _ in range(2)]


class ProviderServer:
    """Use with `with`. `user`: who logs in next. `life_s`: of the tokens. `secret`: None for a public client.

    `lies`: changes of the answers, by path; each gets the document and returns another one, or bytes with
    a status. `asked`: the paths that were asked. `claims`: of the next ID tokens, over those that are right.
    """

    def __init__(self, port: int = 0, host: str = "localhost") -> None:
        self.user = "alice"
        self.life_s = 300.0
        self.secret: str | None = SECRET
        self.lies: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self.claims: dict[str, Any] = {}
        self.asked: list[str] = []
        self.key = _KEYS[0]
        self.refuses_renewal = False
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, str] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider._handle(self, b"")

            def do_POST(self) -> None:
                provider._handle(self, self.rfile.read(int(self.headers.get("content-length", 0))))

            def log_message(self, *_: Any) -> None:
                """Not to the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.issuer = f"http://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def jwks(self) -> dict[str, Any]:
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{"kty": "new kind"}, {**key, "use": "sig", "kid": str(_KEYS.index(self.key))}]}

    def rotate(self) -> None:
        """Sign with another key from now on."""
        self.key = _KEYS[1 - _KEYS.index(self.key)]

    def _handle(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        parts = urlsplit(handler.path)
        self.asked.append(parts.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        status, document = 200, {}
        match parts.path:
            case "/.well-known/openid-configuration":
                names = ("authorization", "token", "end_session")
                document = {f"{name}_endpoint": f"{self.issuer}/{name}" for name in names}
                document |= {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks"}
            case "/jwks":
                document = self.jwks()
            case "/authorization":
                code = secrets.token_urlsafe(16)
                self._codes[code] = {**query, "user": self.user}
                handler.send_response(302)
                back = urlencode({"code": code, "state": query["state"], "iss": self.issuer})
                handler.send_header("location", f"{query['redirect_uri']}?{back}")
                handler.end_headers()
                return
            case "/token":
                status, document = self._token(form, handler.headers.get("authorization", ""))
            case _:
                status, document = 404, {"error": "not_found"}
        made: Any = self.lies.get(parts.path, lambda found: found)(document)
        if isinstance(made, tuple):
            status, raw, headers = made
        else:
            raw, headers = json.dumps(made).encode(), {}
        handler.send_response(status)
        for name, value in {
            "content-type": "application/json",
            "content-length": str(len(raw)),
            **headers,
        }.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(raw)

    def _token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        if self.secret is not None:
            given = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            if [unquote(each) for each in given.split(":")] != [CLIENT, self.secret]:
                return 401, {"error": "invalid_client"}
        elif form.get("client_id") != CLIENT:
            return 401, {"error": "invalid_client"}
        if form["grant_type"] == "refresh_token":
            user = self._refresh.get(form["refresh_token"])
            if user is None or self.refuses_renewal:
                return 400, {"error": "invalid_grant", "error_description": "the session <b>ended</b>"}
            return 200, self._answer(user, None)
        begun = self._codes.pop(form["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest())
        if (
            begun is None
            or begun["code_challenge"] != challenge.rstrip(b"=").decode()
            or begun["redirect_uri"] != form["redirect_uri"]
        ):
            return 400, {"error": "invalid_grant", "error_description": "code not valid"}
        return 200, self._answer(begun["user"], begun["nonce"])

    def _answer(self, user: str, nonce: str | None) -> dict[str, Any]:
        refresh = secrets.token_urlsafe(16)
        self._refresh[refresh] = user
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": user, "exp": time.time() + self.life_s}
        id_claims = {
            **claims,
            "preferred_username": user,
            **({"nonce": nonce} if nonce else {}),
            **self.claims,
        }
        headers = {"kid": str(_KEYS.index(self.key))}
        return {
            "access_token": jwt.encode({**claims, "jti": secrets.token_hex(4)}, self.key, "RS256", headers),
            "id_token": jwt.encode(id_claims, self.key, "RS256", headers),
            "refresh_token": refresh,
            "token_type": "Bearer",
            "expires_in": self.life_s,
        }
