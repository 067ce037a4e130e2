"""The administration client inside a simulation: its calls, asked of a broker's REST without a socket."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp

from geminga.admin._calling import Lanes, Request
from geminga.admin._client import AdminClient
from geminga.admin._namespaces import Namespaces
from geminga.admin._subscriptions import Subscriptions
from geminga.admin._tenants import Tenants
from geminga.admin._topics import Topics
from geminga.admin._transactions import Transactions
from geminga.admin.errors import error_of
from geminga.admin.values import StoredMessage
from support.worlds.rest_world import ask


class _Lanes(Lanes):
    """Asks the application, where those of the client ask over threads."""

    def __init__(self, application: ASGIApp, role: str = "") -> None:
        self._application = application
        self._role = role

    async def ask(self, request: Request) -> Any:
        said = {key: value for key, value in (request.query or {}).items() if value is not None}
        query = {key: str(value).lower() if isinstance(value, bool) else value for key, value in said.items()}
        path = f"{request.path}?{urlencode(query)}" if query else request.path
        body = b"" if request.body is None else json.dumps(request.body).encode()
        answer = await ask(self._application, request.method, path, body, role=self._role)
        if answer.status >= 300:
            raise error_of(request.path, answer.status, answer.reason)
        if request.is_message:
            return StoredMessage(answer.body, answer.headers)
        if request.is_text and not answer.body.startswith(b'"'):
            return answer.body.decode()
        return json.loads(answer.body) if answer.body else None


def sim_admin(application: ASGIApp, role: str = "") -> AdminClient:
    """All of it; ``role``: who asks, as :func:`ask` has it."""
    client = AdminClient("http://broker:8080", timeout_s=1, headers=None, tls=None)
    lanes = _Lanes(application, role)
    for name in AdminClient.__slots__:
        getattr(client, name)._lanes = lanes
    return client


class SimAdmin:
    """What the handles use of :class:`geminga.admin.AdminClient`."""

    def __init__(self, application: ASGIApp) -> None:
        lanes = _Lanes(application)
        self.tenants = Tenants(lanes)
        self.topics = Topics(lanes)
        self.transactions = Transactions(lanes)
        self.namespaces = Namespaces(lanes)
        self.subscriptions = Subscriptions(lanes)
