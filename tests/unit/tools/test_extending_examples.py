"""The examples of docs/extending.md do what they say, and the files that they name are there."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import socket
import sys
from types import ModuleType
from typing import cast

import pytest

from geminga import sim
from geminga.broker.rest import families
from geminga.model.position import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.source_tree import ROOT
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker
from support.worlds.holding_part import with_parts
from support.worlds.policy_levels import topic_of
from support.worlds.rest_world import ask, rest_application

EXAMPLES = ROOT / "examples" / "extending"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def example(name: str) -> ModuleType:
    """The module, as a program that has the folder on its path would import it."""
    spec = importlib.util.spec_from_file_location(f"extending_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_the_page_tells_of_each_example_and_the_files_it_touches_are_there(name: str) -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    assert f"../examples/extending/{name}.py" in page
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    for file in re.findall(r"``((?:app|broker)/[\w/]+\.py)``", text):
        assert (ROOT / "src" / "geminga" / file).is_file(), file


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Sender(asyncio.Protocol):
    """Says something in two halves, and keeps what it hears until the end."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = parts
        self.heard = b""
        self.is_lost = asyncio.get_running_loop().create_future()
        self.has_heard = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        for part in self.parts:
            transport.write(part)

    def data_received(self, data: bytes) -> None:
        self.heard += data
        if not self.has_heard.done():
            self.has_heard.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost.set_result(None)


def test_a_listener_tells_another_protocol_by_its_first_bytes() -> None:
    first_bytes = example("first_bytes")

    made: list[asyncio.Protocol] = []

    def pulsar() -> asyncio.Protocol:
        made.append(Echo())
        return made[-1]

    async def main(world: sim.SimWorld) -> None:
        async def serve(node: sim.SimNode) -> None:
            make = first_bytes.by_first_bytes({b"*HELLO": Echo}, pulsar)
            await node.runtime.network.listen(make, "0.0.0.0", 6650)

        async def talk(node: sim.SimNode) -> None:
            async def connected(*parts: bytes) -> Sender:
                _, sender = await node.runtime.network.connect(lambda: Sender(*parts), "broker", 6650)
                assert isinstance(sender, Sender)
                return sender

            other = await connected(b"*HE", b"LLO there")
            await other.has_heard
            await world.sleep(1)
            assert (other.heard, len(made)) == (b"*HELLO there", 0)
            ours = await connected(b"\0\0\0\5rest")
            await ours.has_heard
            assert (ours.heard, len(made)) == (b"\0\0\0\5rest", 1)
            begin = world.loop.time()
            silent = await connected(b"*HE")
            await silent.is_lost
            assert world.loop.time() - begin == pytest.approx(first_bytes.FIRST_BYTES_S, abs=1)

        await world.node("broker").run(serve)
        await world.node("client").run(talk)

    sim.run(main)


def test_a_listener_tells_another_protocol_on_the_loop_of_servers_too() -> None:
    first_bytes = example("first_bytes")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(first_bytes.by_first_bytes({b"*HELLO": Echo}, Echo), "127.0.0.1", 0)
        with socket.socket() as peer:
            peer.setblocking(False)
            await loop.sock_connect(peer, server.sockets[0].getsockname())
            await loop.sock_sendall(peer, b"*HELLO there")
            try:
                async with asyncio.timeout(10):
                    assert await loop.sock_recv(peer, 100) == b"*HELLO there"
            finally:
                server.close()

    with asyncio.Runner(loop_factory=pytest.importorskip("uvloop").new_event_loop) as runner:
        runner.run(main())


def test_an_authenticator_and_an_authorizer_decide_at_every_door() -> None:
    access = example("authenticator").access_of({b"blue": "shop", b"green": "admin"})

    async def scenario(world: BrokerWorld) -> None:
        async def role(secret: bytes) -> Client:
            client = Client(world.broker)
            connect = pb.CommandConnect(client_version="t", protocol_version=21, auth_data=secret, auth_method_name="x")
            client.send(pb.BaseCommand(type=Type.CONNECT, connect=connect))
            return client

        admin = await role(b"green")
        await admin.expect(Type.CONNECTED)
        await admin.create_producer()
        shop = await role(b"blue")
        await shop.expect(Type.CONNECTED)
        shop.request_producer()
        refused = await shop.error()
        assert (refused.error, refused.message) == (pb.AuthorizationError, "shop is let into its own tenant only")
        stranger = await role(b"red")
        assert (await stranger.error()).error == pb.AuthenticationError

    run_with_broker(scenario, access=access)


def test_a_part_reads_a_topic_beside_its_log_and_again_after_a_restart() -> None:
    part = example("second_reader").NewestByKey

    async def newest(world: BrokerWorld) -> dict[str, Position]:
        topic = await topic_of(world)
        found = topic.parts.find(part)
        assert found is not None
        assert found.stats() == {"keys": len(found.newest)}
        return dict(found.newest)

    async def scenario(world: BrokerWorld) -> None:
        with_parts(world.broker, part)
        client = await world.publisher()
        ids = []
        for number, key in enumerate(["a", "b", "", "a"]):
            client.send_message(number, metadata={"partition_key": key} if key else {})
            ids.append((await client.receipt()).message_id)
        expected = {key: Position(ids[at].ledgerId, ids[at].entryId) for key, at in (("a", 3), ("b", 1))}
        assert await newest(world) == expected
        await world.restart()
        with_parts(world.broker, part)
        assert await newest(world) == expected

    run_with_broker(scenario)


def test_a_rest_family_is_served_where_its_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    family = example("rest_family")
    path = f"{family.FAMILY}/public/default"

    async def scenario(world: BrokerWorld) -> None:
        await world.publisher()
        assert (await ask(rest_application(world.broker), "GET", path)).status == 404
        monkeypatch.setitem(families.FAMILIES, family.FAMILY, (family.rows,))
        answer = await ask(rest_application(world.broker), "GET", path)
        assert (answer.status, json.loads(answer.body)) == (200, [TOPIC])

    run_with_broker(scenario)
