"""The clients behind sockets: of ours, which finds topics wherever they are; one for each that somebody brought as
credentials.

What a socket's user may do is what the brokers let that user do, for the credentials that came with the request go on
to them: tokens and passwords to every broker, a certificate to this one alone. Where they can not go on (a certificate
in a cluster of several, one who asks through a proxy) the client is the broker's own (``brokerClient...``), and what
holds is what the door asked, again and again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from geminga.broker.websocket.own_network import OwnNetwork
from geminga.client import Client, ClientArguments, connect
from geminga.model.errors import UnavailableError
from geminga.runtime import Raised, Runtime, attempt_await, get_logger, spawn
from geminga.security.base64_text import decode

if TYPE_CHECKING:
    import asyncio

    from geminga.broker.ownership.endpoints import Endpoints
    from geminga.broker.peers.links import PeerLinks

_log = get_logger(__name__)

#: How long a client waits at most before it looks again for a topic.
BACKOFF_MS_MAX: Final = 5_000
_BEARER: Final = "Bearer "
_BASIC: Final = "basic "
_METHOD: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class SocketOwner(NamedTuple):
    """Who asks for a socket, as the request says."""

    #: The header Authorization; empty: none.
    authorization: str = ""
    #: The certificate that was shown, DER.
    certificate: bytes | None = None
    #: A proxy asks in somebody's name.
    is_through_proxy: bool = False


class Carried:
    """Credentials that somebody brought, for the brokers (``geminga.client.Authentication``)."""

    __slots__ = ("_data", "method_name")

    def __init__(self, method_name: str, data: bytes) -> None:
        self.method_name: str = method_name
        self._data = data

    def __repr__(self) -> str:
        return f"Carried({self.method_name!r}, ...)"

    def data(self) -> bytes:
        """The same each time."""
        return self._data


def carried_by(authorization: str) -> Carried | None:
    """What goes on to brokers of a header Authorization; None: nothing can."""
    if authorization.startswith(_BEARER):
        return Carried("token", authorization[len(_BEARER) :].encode())
    # In any case of letters, as the provider takes it (RFC 9110, 11.1).
    if authorization[: len(_BASIC)].lower() == _BASIC:
        try:
            return Carried("basic", decode(authorization[len(_BASIC) :].strip()))
        except ValueError:
            return None
    return None


class SocketClients:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        endpoints: Callable[[], Endpoints],
        accept: Callable[[], asyncio.Protocol],
        links: PeerLinks,
        *,
        is_alone: bool,
        asks_who: bool,
        description: str,
    ) -> None:
        """``endpoints``: this broker's listeners. ``accept`` makes this broker's end of a connection. ``links``: how
        other brokers are spoken to, and as whom. ``is_alone``: there are no others. ``asks_who``: brokers want
        credentials. ``description``: what they are told, and show, behind the client's version."""
        self._runtime = runtime
        self._endpoints = endpoints
        self._accept = accept
        self._links = links
        self._is_alone = is_alone
        self._asks_who = asks_who
        self._description = description
        #: By what they stand for, with how many sockets have each.
        self._clients: dict[SocketOwner, tuple[Client, int]] = {}

    @property
    def count(self) -> int:
        """Clients that are there."""
        return len(self._clients)

    def take(self, caller: SocketOwner) -> tuple[SocketOwner, Client]:
        """The client for a socket of ``caller``, until its key is given back; raises UnavailableError."""
        key = self._key_of(caller)
        client, sockets = self._clients.get(key) or (self._new(key), 0)
        self._clients[key] = (client, sockets + 1)
        return key, client

    def give_back(self, key: SocketOwner) -> None:
        """A socket is over; with the last one its client closes."""
        client, sockets = self._clients[key]
        if sockets > 1:
            self._clients[key] = (client, sockets - 1)
            return
        del self._clients[key]
        spawn(_close(client), name="end of a client of sockets")

    async def close(self) -> None:
        """All of them."""
        clients = [client for client, _ in self._clients.values()]
        self._clients.clear()
        for client in clients:
            await _close(client)

    def _key_of(self, caller: SocketOwner) -> SocketOwner:
        """Those who may share a client have the same."""
        if not self._asks_who or caller.is_through_proxy:
            return SocketOwner()
        if carried_by(caller.authorization) is not None:
            return SocketOwner(caller.authorization)
        return SocketOwner(certificate=caller.certificate) if self._is_alone else SocketOwner()

    def _new(self, key: SocketOwner) -> Client:
        arguments: ClientArguments = {
            **self._links.client_arguments,
            "maximum_backoff_ms": BACKOFF_MS_MAX,
            "memory_limit_bytes": 0,
            "description": self._description,
        }
        carried = carried_by(key.authorization)
        if carried is not None:
            arguments["authentication"] = carried
        elif key.certificate is not None:
            arguments["authentication"] = Carried("tls", b"")
        network = OwnNetwork(self._runtime.network, self._own_addresses, self._accept, key.certificate)
        default = self._endpoints().default
        url = default.broker_url_tls if self._links.uses_tls else default.broker_url
        url = url or default.broker_url or default.broker_url_tls
        if not url:
            raise UnavailableError("this broker has no port of the binary protocol")
        return connect(url, runtime=replace(self._runtime, network=network), **arguments)

    def _own_addresses(self) -> Collection[tuple[str, int]]:
        found = set()
        for endpoint in self._endpoints().all:
            for url in (endpoint.broker_url, endpoint.broker_url_tls):
                parts = urlsplit(url)
                if parts.hostname and parts.port:
                    found.add((parts.hostname, parts.port))
        return found


async def _close(client: Client) -> None:
    outcome = await attempt_await(client.close())
    if isinstance(outcome, Raised):
        _log.warning("closing a client of sockets: %s", outcome.error)
