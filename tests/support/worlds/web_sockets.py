"""WebSockets without a network: a socket over a pipe in memory, and a public library's client half at its other end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from geminga.broker.peers.links import PLAIN
from geminga.broker.websocket.clients import SocketClients, SocketOwner
from geminga.broker.websocket.own_network import PipeTransport
from geminga.broker.websocket.service import Admitted, AskAgain, ServiceLimits, SocketService
from geminga.broker.websocket.sessions import SocketSession
from geminga.broker.websocket.socket import SharedRoom, SocketLimits, Upgrade, WebSocket
from geminga.runtime import next_turn
from geminga.runtime.frame_room import FrameRoom, UnreadResponses
from support.worlds.broker_world import BrokerWorld

LIMITS = SocketLimits(message_bytes_max=100_000, idle_s=300.0, ping_s=0.0)


class Heard:
    """What is above a socket."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.is_lost = False
        self.writable_count = 0
        self.then: Callable[[str], None] = lambda _: None

    def text(self, text: str) -> None:
        self.texts.append(text)
        self.then(text)

    def writable(self) -> None:
        self.writable_count += 1

    def lost(self) -> None:
        assert not self.is_lost
        self.is_lost = True


class Peer(asyncio.Protocol):
    """Who speaks to a socket."""

    def __init__(self, *, compresses: bool) -> None:
        extensions = [ClientPerMessageDeflateFactory()] if compresses else None
        self.protocol = ClientProtocol(parse_uri("ws://localhost/ws"), extensions=extensions)
        self.request = self.protocol.connect()
        self.protocol.send_request(self.request)
        self.protocol.data_to_send()
        self.transport: PipeTransport
        self.frames: list[Frame] = []
        self.is_lost = False
        self.news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, PipeTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.news.set()
        self.protocol.receive_data(data)
        self.frames += [one for one in self.protocol.events_received() if isinstance(one, Frame)]
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.news.set()

    def flush(self) -> None:
        for data in self.protocol.data_to_send():
            self.transport.write(data)

    def say(self, text: str) -> None:
        self.protocol.send_text(text.encode())
        self.flush()

    def tell(self, **fields: Any) -> None:
        self.say(json.dumps(fields))

    async def told(self, count: int = 1) -> list[dict[str, Any]]:
        """The first so many texts, once they are there."""
        await self.arrived(count)
        return [json.loads(text) for text in self.texts[:count]]

    async def arrived(self, count: int) -> None:
        """So many texts are there."""
        while len(self.texts) < count:
            assert not self.is_lost, self.protocol.close_rcvd
            self.news = asyncio.Event()
            await asyncio.wait_for(self.news.wait(), 60)

    async def ended(self) -> tuple[int, str]:
        """Code and reason of the end, once it is there."""
        while self.protocol.close_rcvd is None:
            assert not self.is_lost
            self.news = asyncio.Event()
            await asyncio.wait_for(self.news.wait(), 600)
        return self.protocol.close_rcvd.code, self.protocol.close_rcvd.reason

    @property
    def close_code(self) -> int | None:
        """Of the end, once it is there."""
        return None if self.protocol.close_rcvd is None else self.protocol.close_rcvd.code

    @property
    def texts(self) -> list[str]:
        return [str(frame.data, "utf-8") for frame in self.frames if frame.opcode is Opcode.TEXT]


class Line:
    """A socket, what is above it, and its peer."""

    def __init__(self, limits: SocketLimits = LIMITS, *, compresses: bool = False, room_bytes: int = 1 << 20) -> None:
        self.heard = Heard()
        self.peer = Peer(compresses=compresses)
        self.upgrade = Upgrade(self.peer.request.headers.raw_items(), limits)
        assert self.upgrade.refusal is None
        self.room = SharedRoom(limits, FrameRoom(lambda: 0.0, room_bytes), UnreadResponses(1 << 20))
        self.lost: list[WebSocket] = []
        self.now_s = asyncio.get_running_loop().time()
        self.socket = WebSocket(self.upgrade, self.room, self.heard, self.lost.append, self.now_s)
        near, far = PipeTransport(self.peer, None), PipeTransport(self.socket, None)
        near.join(far)
        near.begin()
        far.begin()

    async def settle(self, turns: int = 60) -> None:
        for _ in range(turns):
            await next_turn()

    async def deliver(self) -> None:
        """What the peer has said so far is heard."""
        self.peer.flush()
        await self.settle()

    def look(self, after_s: float) -> None:
        self.socket.look(asyncio.get_running_loop().time() + after_s)


class SocketWorld:
    """The sockets of a broker in a simulation."""

    def __init__(self, world: BrokerWorld, *, asks_who: bool = False, is_alone: bool = True, **limits: Any) -> None:
        broker = world.broker
        self.clients = SocketClients(
            broker.runtime,
            lambda: broker.endpoints,
            broker.new_connection,
            PLAIN,
            is_alone=is_alone,
            asks_who=asks_who,
            description="websocket",
        )
        self.service = SocketService(
            broker.runtime.clock, self.clients, ServiceLimits(**{"sockets_max": 100, "of_each": LIMITS, **limits})
        )

    def admitted(
        self, role: str = "", *, until_s: float | None = None, ask_again: AskAgain | None = None, **caller: Any
    ) -> Admitted:
        who = SocketOwner(f"Bearer {role}" if role else "", **caller)
        return Admitted(who, "127.0.0.1:1", until_s, ask_again)

    async def socket(self, session: SocketSession) -> Peer:
        """Who is at the other end of the session's socket, once it is open."""
        peer = Peer(compresses=False)
        upgrade = Upgrade(peer.request.headers.raw_items(), LIMITS)
        socket = self.service.socket_of(session, upgrade, lambda _: None)
        near, far = PipeTransport(peer, None), PipeTransport(socket, None)
        near.join(far)
        near.begin()
        far.begin()
        self.service.begin(session)
        await next_turn()
        return peer
