"""What brokers of a simulated cluster ask each other over REST: the network is simulated, HTTP itself is not."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message

from geminga.broker.peers.http_client import PeerHttp
from geminga.runtime import Runtime
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.worlds.client_world import PORT
from support.worlds.rest_world import http_scope


class SimPeerHttp(PeerHttp):
    """A request is carried out at the node of the broker that it names, if that can be reached."""

    def __init__(self, runtime: Runtime, world: SimWorld, applications: dict[str, ASGIApp]) -> None:
        super().__init__(runtime)
        self._world = world
        self._applications = applications

    async def _once(self, method: str, url: str, body: bytes) -> tuple[int, str, bytes]:
        parts = urlsplit(url)
        host = parts.hostname or ""
        transport, _ = await self._runtime.network.connect(asyncio.Protocol, host, PORT)
        transport.abort()
        try:
            return await self._world.node(host).run(lambda node: self._carry_out(node, method, url, body))
        except NodeCrashedError as error:
            raise OSError(str(error)) from error

    async def _carry_out(self, node: SimNode, method: str, url: str, body: bytes) -> tuple[int, str, bytes]:
        application = self._applications.get(node.name)
        if application is None:
            raise OSError(f"{node.name} is starting")
        parts = urlsplit(url)
        return await ask(application, method, f"{parts.path}?{parts.query}", body)


async def ask(application: ASGIApp, method: str, path: str, body: bytes = b"") -> tuple[int, str, bytes]:
    """Status, where it is redirected to, and the body."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = http_scope(method, path, [(b"content-type", b"application/json")])
    await application(scope, receive, send)
    headers = dict(sent[0].get("headers", ()))
    location = headers.get(b"location", b"").decode("latin-1")
    return sent[0]["status"], location, b"".join(message.get("body", b"") for message in sent[1:])
