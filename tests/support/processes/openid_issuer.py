"""An issuer of OpenID Connect: its discovery document, its keys, and tokens for client credentials."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.server import HTTPServer
from urllib.parse import parse_qsl

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from geminga.security.keys import private_key
from geminga.security.token_rules import create_token
from support.house.signing import web_key
from support.processes.web_answers import Answering, Served

KEY_ID = "one"
LIFE_S = 600


class OpenIdIssuer(Served):
    """Of the audience ``audience``; whoever asks as client ``id`` gets a token whose ``sub`` is that."""

    def __init__(self, audience: str) -> None:
        self.audience = audience
        self._pair = rsa.generate_private_key(65537, 2048)
        self._signer = private_key(self._pair.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
        issuer = self

        class Handler(Answering):
            def do_GET(self) -> None:
                pages: dict[str, Callable[[], object]] = {
                    "/.well-known/openid-configuration": issuer.discovery,
                    "/keys": issuer.keys,
                }
                self.give(pages[self.path]())

            def do_POST(self) -> None:
                form = dict(parse_qsl(self.asked_body().decode()))
                token = issuer.token(form["client_id"], form.get("audience", issuer.audience))
                self.give({"access_token": token, "token_type": "Bearer", "expires_in": LIFE_S})

            def give(self, document: object) -> None:
                self.answer(json.dumps(document).encode(), headers={"Content-Type": "application/json"})

        super().__init__(HTTPServer(("127.0.0.1", 0), Handler))

    def discovery(self) -> object:
        """``/.well-known/openid-configuration``."""
        return {"issuer": self.url, "jwks_uri": f"{self.url}/keys", "token_endpoint": f"{self.url}/token"}

    def keys(self) -> object:
        """The document of keys."""
        return {"keys": [{**web_key(self._pair.public_key(), KEY_ID), "alg": "RS256", "use": "sig"}]}

    def token(self, subject: str, audience: str) -> str:
        """One that begins now; Apache's provider wants each of these claims."""
        now_s = int(time.time())
        claims = {"iss": self.url, "sub": subject, "aud": audience, "iat": now_s, "nbf": now_s, "exp": now_s + LIFE_S}
        return create_token(self._signer, "RS256", claims, {"kid": KEY_ID})

    def parameters(self, client_id: str, audience: str = "") -> str:
        """What a client is given."""
        given = {"issuer_url": self.url, "client_id": client_id, "client_secret": "secret"}
        return json.dumps({**given, "audience": audience or self.audience})
