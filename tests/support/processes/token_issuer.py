"""An issuer of OAuth 2.0 client credentials, over HTTP."""

from __future__ import annotations

import json
from http.server import HTTPServer
from urllib.parse import parse_qsl

from support.processes.web_answers import Answering, Served


class Issuer(Served):
    """Gives tokens, one after the other, over HTTP."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.life_s: object = 3600
        self.status = 200
        self.answer: bytes | None = None
        issuer = self

        class Handler(Answering):
            def do_GET(self) -> None:
                issuer.asked.append((self.path, {}))
                self.give(200, {"token_endpoint": f"{issuer.url}/oauth/token"})

            def do_POST(self) -> None:
                form = dict(parse_qsl(self.asked_body().decode()))
                issuer.asked.append((self.path, form))
                if issuer.status != 200:
                    self.give(issuer.status, {"error": "invalid_client", "error_description": "who are you"})
                else:
                    number = sum(path == "/oauth/token" for path, _ in issuer.asked)
                    self.give(200, {"access_token": f"token-{number}", "expires_in": issuer.life_s})

            def give(self, status: int, document: dict[str, object]) -> None:
                self.answer(issuer.answer or json.dumps(document).encode(), status=status)

        super().__init__(HTTPServer(("127.0.0.1", 0), Handler))

    def parameters(self, **more: str) -> str:
        return json.dumps({"issuer_url": self.url, "client_id": "me", "client_secret": "hidden1", **more})
