"""HTTP/1.1 on the simulated network before a broker's administration: what other clusters ask goes over their links."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import h11
from starlette.types import ASGIApp

from geminga.runtime import spawn
from support.clusters.cluster_peers import ask


class SimHttp(asyncio.Protocol):
    """One request of a connection, answered by the real handlers."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application
        self._http = h11.Connection(h11.SERVER)
        self._request: h11.Request | None = None
        self._body = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._http.receive_data(data)
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._request = event
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                spawn(self._answer(), name="HTTP of a simulated broker")
                return
            else:
                return

    async def _answer(self) -> None:
        request = self._request
        assert request is not None
        target = request.target.decode()
        status, location, body = await ask(self._application, request.method.decode(), target, bytes(self._body))
        headers = [("Content-Length", str(len(body))), ("Connection", "close")]
        if location:
            headers.append(("Location", location))
        assert self._transport is not None
        if self._transport.is_closing():
            return
        reason = HTTPStatus(status).phrase
        for event in (
            h11.Response(status_code=status, headers=headers, reason=reason),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self._transport.write(self._http.send(event) or b"")
        self._transport.close()
