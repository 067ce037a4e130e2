"""A proxy in virtual time: on the node ``door``, before a broker on the node ``proxy``, with clients on ``client``.

The broker's node is called so because that is what brokers of these worlds advertise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from geminga import sim
from geminga.broker.access.anonymous import ANONYMOUS_MAY, OPEN
from geminga.broker.access.core.handshake import Credentials, Known, Rejected, Verdict
from geminga.broker.access.ports import Access
from geminga.client import Authentication
from geminga.proxy.brokers import BrokerDirectory, Brokers, FixedEntry
from geminga.proxy.config import ProxyConfig
from geminga.proxy.core.targets import AllowedTargets, Target
from geminga.proxy.service import ProxyService
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import decode_command, encode_command
from geminga.wire.pulsar.frame import FrameDecoder
from support.worlds.client_world import PORT
from support.worlds.scripted_broker import Script, Scripted

T = TypeVar("T")
Type = pb.BaseCommand

DOOR = f"pulsar://door:{PORT}"
BROKER = f"proxy:{PORT}"


class Roles:
    """Finds out who peers are: the data of ``role`` or ``role@time`` (when it expires) says it; ``bad`` is nobody."""

    def begin(self, source: str = "", *, in_http: bool = False) -> Roles:
        return self

    def answer(self, credentials: Credentials) -> Verdict:
        role, _, until = credentials.data.decode().removeprefix("Bearer ").partition("@")
        if role in ("", "bad"):
            return Rejected("not known here")
        return Known(role, float(until) if until else None)


ROLES = Access(authenticator=Roles(), authorizer=ANONYMOUS_MAY)


class ProxyWorld:
    """A proxy that listens, and its node."""

    def __init__(
        self,
        world: sim.SimWorld,
        access: Access = OPEN,
        *,
        allowed: AllowedTargets | None = None,
        directory: BrokerDirectory | None = None,
        authentication: Authentication | None = None,
        resolve: Callable[[str, int], Awaitable[Sequence[str]]] | None = None,
        **config: object,
    ) -> None:
        self.world = world
        self.node = world.node("door")
        self.resolved: list[str] = []

        async def itself(host: str, port: int) -> Sequence[str]:
            self.resolved.append(host)
            return [host]

        settings = ProxyConfig(**config)  # type: ignore[arg-type]
        self.brokers = Brokers(
            self.node.runtime,
            allowed or AllowedTargets(["*"], ["*"], [str(PORT)]),
            resolve or itself,
            authentication=authentication,
            tls=None,
            timeout_s=settings.connect_timeout_ms / 1000,
            message_bytes_max=settings.message_bytes_max,
            version="test",
            sends_header=False,
        )
        self.service = ProxyService(
            self.node.runtime,
            settings,
            access,
            self.brokers,
            directory or FixedEntry(Target("proxy", PORT)),
            version="proxy",
            handshake_s=10,
        )

    async def start(self) -> ProxyWorld:
        self.listener = await self.node.run(
            lambda _: self.node.runtime.network.listen(self.service.connection, "0.0.0.0", PORT)
        )
        return self

    @property
    def counters(self) -> dict[str, float]:
        return dict(self.service.services.counters.metrics())  # type: ignore[arg-type]

    def nothing_left(self) -> None:
        """No connection, no request, no task of the proxy."""
        assert not self.service.services.open
        assert self.counters["pulsar_proxy_active_connections"] == 0
        assert self.counters["geminga_proxy_requests_under_way"] == 0
        assert self.world.network.connections(self.node) == []
        left = [task.get_name() for task, boot in self.world.loop.pending_tasks() if boot is self.node.boot]
        assert left == []


class RawClient(asyncio.Protocol):
    """Frames to the proxy, and what comes back."""

    def __init__(self) -> None:
        self.decoder = FrameDecoder(5 << 20)
        self.came: asyncio.Queue[pb.BaseCommand] = asyncio.Queue()
        self.lost = asyncio.Event()
        self.raw = bytearray()
        #: What comes is no frame any more.
        self.is_raw = False
        self.transport: asyncio.Transport

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.raw += data
        if self.is_raw:
            return
        for command, _ in self.decoder.feed(data):
            self.came.put_nowait(decode_command(command))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def say(self, kind: pb.BaseCommand.Type, **body: object) -> None:
        self.transport.write(frame_of(kind, **body))

    def connect(self, data: bytes = b"", *, to: str = "", refreshes: bool = True, **more: object) -> None:
        connect = pb.CommandConnect(client_version="raw", protocol_version=21, auth_method_name="token", auth_data=data)
        connect.feature_flags.supports_auth_refresh = refreshes
        if to:
            connect.proxy_to_broker_url = to
        for name, value in more.items():
            setattr(connect, name, value)
        self.transport.write(encode_command(pb.BaseCommand(type=Type.CONNECT, connect=connect)))

    async def next(self) -> pb.BaseCommand:
        """Of what comes, PINGs are answered and passed over."""
        while True:
            command = await asyncio.wait_for(self.came.get(), 120)
            if command.type != Type.PING:
                return command
            self.say(Type.PONG)


def frame_of(kind: pb.BaseCommand.Type, **body: object) -> bytes:
    command = pb.BaseCommand(type=kind)
    part = getattr(command, pb.BaseCommand.DESCRIPTOR.fields_by_number[kind].name)
    part.SetInParent()
    for name, value in body.items():
        if isinstance(value, pb.AuthData):
            getattr(part, name).CopyFrom(value)
        else:
            setattr(part, name, value)
    return encode_command(command)


async def let_in(new_client: Callable[[], Awaitable[RawClient]], data: bytes = b"", **connect: Any) -> RawClient:
    """A client that was welcomed; ``connect`` as of :meth:`RawClient.connect`."""
    client = await new_client()
    client.connect(data, **connect)
    assert (await client.next()).HasField("connected")
    return client


def in_world(
    story: Callable[[ProxyWorld, Callable[[], Awaitable[RawClient]]], Awaitable[T]],
    script: Script | None = None,
    seed: int = 1,
    make: Callable[[sim.SimWorld], ProxyWorld] = ProxyWorld,
) -> T:
    """Run ``story(proxy, new_client)`` before a scripted broker; in the end nothing may be left of the proxy."""

    async def main(world: sim.SimWorld) -> T:
        if script is not None:
            server = world.node("proxy")
            await server.run(lambda _: server.runtime.network.listen(lambda: Scripted(script), "0.0.0.0", PORT))
        proxy = await make(world).start()
        node = world.node("client")

        async def new_client() -> RawClient:
            _, client = await node.runtime.network.connect(RawClient, "door", PORT)
            assert isinstance(client, RawClient)
            return client

        async def told(_: sim.SimNode) -> T:
            async with asyncio.timeout(3600):
                return await story(proxy, new_client)

        result = await node.run(told)
        for transport in world.network.connections(node):
            transport.abort()
        await world.sleep(60)
        proxy.nothing_left()
        return result

    return sim.run(main, seed)
