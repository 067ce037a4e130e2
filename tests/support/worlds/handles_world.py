"""The administration client inside a simulation: its calls, asked of a broker's REST without a socket."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp

from geminga.admin._calling import Lanes, Request
from geminga.admin._namespaces import Namespaces
from geminga.admin._subscriptions import Subscriptions
from geminga.admin._tenants import Tenants
from geminga.admin._topics import Topics
from geminga.admin._transactions import Transactions
from geminga.admin.errors import error_of
from support.worlds.rest_world import ask


class _Lanes(Lanes):
    """Asks the application, where those of the client ask over threads."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def ask(self, request: Request) -> Any:
        said = {key: value for key, value in (request.query or {}).items() if value is not None}
        query = {key: str(value).lower() if isinstance(value, bool) else value for key, value in said.items()}
        path = f"{request.path}?{urlencode(query)}" if query else request.path
        body = b"" if request.body is None else json.dumps(request.body).encode()
        answer = await ask(self._application, request.method, path, body)
        if answer.status >= 300:
            raise error_of(request.path, answer.status, answer.reason)
        return json.loads(answer.body) if answer.body else None


class SimAdmin:
    """What the handles use of :class:`geminga.admin.AdminClient`."""

    def __init__(self, application: ASGIApp) -> None:
        lanes = _Lanes(application)
        self.tenants = Tenants(lanes)
        self.topics = Topics(lanes)
        self.transactions = Transactions(lanes)
        self.namespaces = Namespaces(lanes)
        self.subscriptions = Subscriptions(lanes)
