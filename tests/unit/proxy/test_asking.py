"""Requests of one client over links to brokers: how many, and what is left of them."""

from __future__ import annotations

import pytest

from geminga.model.errors import ServerError, UnavailableError
from geminga.proxy import asking, link
from geminga.proxy.core import guests
from geminga.proxy.core.room import UntakenRoom
from geminga.proxy.core.targets import AllowedTargets, Target
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from support.worlds.proxy_world import BROKER, ProxyWorld, Type, frame_of, in_world, let_in
from support.worlds.scripted_broker import polite

TOPIC = "persistent://public/default/t"


class InTurn:
    """A new broker for each request."""

    def __init__(self) -> None:
        self.number = 0

    async def entry(self) -> Target:
        self.number += 1
        return Target(f"b{self.number}", 6650)

    async def is_active(self, target: Target) -> bool:
        return True

    async def web_url(self) -> str:
        raise UnavailableError("none")


async def to_one(host: str, port: int) -> list[str]:
    return ["proxy"]


def spread(world) -> ProxyWorld:
    return ProxyWorld(
        world, directory=InTurn(), resolve=to_one, allowed=AllowedTargets(["b*"], ["*"], ["6650"]), keep_alive_s=0
    )


def test_a_client_has_links_to_so_many_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LINKS_MAX", 3)

    async def story(proxy, new_client) -> None:
        client = await let_in(new_client)
        for number in range(3):
            client.say(Type.LOOKUP, topic=TOPIC, request_id=number)
            assert (await client.next()).lookupTopicResponse.proxy_through_service_url
        client.say(Type.LOOKUP, topic=TOPIC, request_id=9)
        assert "more than 3 brokers" in (await client.next()).lookupTopicResponse.message

    in_world(story, polite, make=spread)


def test_what_the_operator_names_is_asked_and_where_brokers_send_on_must_be_allowed() -> None:
    def script(command) -> list[bytes]:
        if command.type != Type.LOOKUP:
            return polite(command)
        found = {"brokerServiceUrl": "pulsar://proxy:22", "response": 0, "request_id": command.lookupTopic.request_id}
        return [frame_of(Type.LOOKUP_RESPONSE, **found)]

    def make(world) -> ProxyWorld:
        return ProxyWorld(world, allowed=AllowedTargets(["elsewhere"], ["10.0.0.0/8"], ["1"]))

    async def story(proxy, new_client) -> None:
        client = await let_in(new_client)
        client.say(Type.PARTITIONED_METADATA, topic=TOPIC, request_id=1)
        assert (await client.next()).partitionMetadataResponse.response == 0
        client.say(Type.LOOKUP, topic=TOPIC, request_id=1)
        answer = (await client.next()).lookupTopicResponse
        assert answer.error == ServerError.SERVICE_NOT_READY
        assert "brokerProxyAllowedTargetPorts" in answer.message

    in_world(story, script, make=make)


def test_a_client_has_so_many_requests_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "REQUESTS_MAX", 2)

    async def story(proxy, new_client) -> None:
        client = await let_in(new_client)
        for number in range(3):
            client.say(Type.LOOKUP, topic=TOPIC, request_id=number)
        answer = (await client.next()).lookupTopicResponse
        assert (answer.request_id, answer.error) == (2, ServerError.TOO_MANY_REQUESTS)

    in_world(story, lambda command: [] if command.type == Type.LOOKUP else polite(command))


def test_requests_of_all_clients_have_so_many_bytes_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that hangs keeps each of them for 30 s, and what it does not take is in the proxy's memory."""
    monkeypatch.setattr(guests, "ASKED_BYTES_MAX", 100_000)

    def script(command) -> list[bytes]:
        return [] if command.type == Type.GET_TOPICS_OF_NAMESPACE else polite(command)

    async def story(proxy, new_client) -> None:
        requests = proxy.service.services.counters.requests
        clients = [await let_in(new_client) for _ in range(3)]
        pattern = "x" * 40_000
        for number, client in enumerate(clients):
            client.say(
                Type.GET_TOPICS_OF_NAMESPACE, namespace="public/default", topics_pattern=pattern, request_id=number
            )
            await proxy.world.sleep(0.1)
        refused = (await clients[2].next()).error
        assert (refused.request_id, refused.error) == (2, ServerError.TOO_MANY_REQUESTS)
        assert (requests.under_way, requests.rejected["get_topics_of_namespace"]) == (2, 1)
        # What is answered, or was given up, makes room.
        clients[0].transport.abort()
        await proxy.world.sleep(1)
        clients[2].say(Type.GET_TOPICS_OF_NAMESPACE, namespace="public/default", topics_pattern=pattern, request_id=3)
        await proxy.world.sleep(1)
        assert (requests.under_way, requests.rejected["get_topics_of_namespace"]) == (2, 1)
        for client in clients[1:]:
            client.transport.abort()
        await proxy.world.sleep(1)
        assert (requests.under_way, requests.under_way_bytes) == (0, 0)

    in_world(story, script)


def test_requests_that_come_together_share_a_link_and_one_that_is_lost_is_made_anew() -> None:
    connects = []

    def script(command) -> list[bytes]:
        if command.type == Type.CONNECT:
            connects.append(command)
        return polite(command)

    async def story(proxy, new_client) -> None:
        client = await let_in(new_client)
        for number in range(5):
            client.say(Type.PARTITIONED_METADATA, topic=TOPIC, request_id=number)
        assert {(await client.next()).partitionMetadataResponse.request_id for _ in range(5)} == set(range(5))
        assert len(connects) == 1
        proxy.world.network.reset_connections(proxy.world.node("proxy"))
        await proxy.world.sleep(1)
        client.say(Type.PARTITIONED_METADATA, topic=TOPIC, request_id=7)
        assert (await client.next()).partitionMetadataResponse.request_id == 7
        assert len(connects) == 2

    in_world(story, script, make=lambda world: ProxyWorld(world, keep_alive_s=0))


def test_a_request_whose_broker_is_silent_has_its_time_and_the_link_goes() -> None:
    async def story(proxy, new_client) -> None:
        client = await let_in(new_client)
        begin_s = proxy.world.now
        client.say(Type.LOOKUP, topic=TOPIC, request_id=1)
        assert "within 30 s" in (await client.next()).lookupTopicResponse.message
        assert proxy.world.now - begin_s == pytest.approx(link.ANSWER_S_MAX, abs=1)

    in_world(story, lambda command: [] if command.type == Type.LOOKUP else polite(command))


def test_who_leaves_while_its_broker_is_asked_leaves_nothing() -> None:
    async def story(proxy, new_client) -> None:
        for to in ("", "proxy:6650"):
            client = await new_client()
            client.connect(to=to)
            if not to:
                await client.next()
                client.say(Type.LOOKUP, topic=TOPIC, request_id=1)
            await proxy.world.sleep(0.3)
            client.transport.abort()

    in_world(story, lambda command: [])


def test_who_asks_and_takes_no_answers_is_cut_off_though_nobody_else_is_there() -> None:
    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type != Type.GET_TOPICS_OF_NAMESPACE:
            return polite(command)
        topics = [f"{TOPIC}-{number}" for number in range(1000)]
        answer = pb.CommandGetTopicsOfNamespaceResponse(
            request_id=command.getTopicsOfNamespace.request_id, topics=topics
        )
        kind = Type.GET_TOPICS_OF_NAMESPACE_RESPONSE
        return [commands.encode_command(pb.BaseCommand(type=kind, getTopicsOfNamespaceResponse=answer))]

    async def story(proxy, new_client) -> None:
        client = await let_in(new_client)
        room = proxy.service.services.room = UntakenRoom(200_000)
        sizes = []
        client.transport.pause_reading()
        for number in range(100):
            client.say(Type.GET_TOPICS_OF_NAMESPACE, namespace="public/default", request_id=number)
        for _ in range(20):
            await proxy.world.sleep(0.1)
            sizes.append(room.size_bytes)
        # At most one answer more than the limit.
        assert max(sizes) < 250_000
        assert not proxy.service.services.open

    in_world(story, script)


# ---- a proxy that asks nobody who they are


class Own:
    """The proxy's credentials at brokers."""

    method_name = "token"

    def data(self) -> bytes:
        return b"proxy"


class Broker:
    """Polite; keeps CONNECTs, and what it was told of credentials otherwise."""

    def __init__(self) -> None:
        self.connects: list[pb.CommandConnect] = []
        self.responses: list[bytes] = []
        #: Instead of CONNECTED, and of the answer to a lookup.
        self.welcome: list[bytes] | None = None

    def __call__(self, command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.AUTH_RESPONSE:
            self.responses.append(command.authResponse.response.auth_data)
        if command.type == Type.CONNECT:
            self.connects.append(command.connect)
            if self.welcome is not None:
                return self.welcome
        return polite(command)


@pytest.mark.parametrize("to", ["", BROKER])
@pytest.mark.parametrize(
    ("method", "data", "shown"),
    [
        ("token", b"jane", ("token", b"jane")),
        ("basic", b"jane:word", ("basic", b"jane:word")),
        # Who brings nothing that can be shown to another.
        ("token", b"", ("token", b"proxy")),
        ("none", b"", ("token", b"proxy")),
        ("", b"", ("token", b"proxy")),
        # Over there the proxy's certificate would be taken for the client's.
        ("tls", b"", ("token", b"proxy")),
        ("tls", b"jane", ("token", b"proxy")),
    ],
)
def test_who_brings_credentials_is_who_the_broker_says_and_others_are_the_proxy(
    to: str, method: str, data: bytes, shown: tuple[str, bytes]
) -> None:
    broker = Broker()

    async def story(proxy, new_client) -> None:
        client = await let_in(new_client, data, to=to, auth_method_name=method)
        if not to:
            client.say(Type.LOOKUP, topic=TOPIC, request_id=7)
            await client.next()

    in_world(story, broker, make=lambda world: ProxyWorld(world, authentication=Own()))
    (connect,) = broker.connects
    assert (connect.auth_method_name, connect.auth_data) == shown
    assert not connect.original_principal
    assert not connect.HasField("original_auth_data")
    # Of a client's credentials the client alone has new ones.
    assert connect.feature_flags.supports_auth_refresh == (bool(to) or shown[1] == b"proxy")


@pytest.mark.parametrize("to", ["", BROKER])
def test_the_proxy_answers_no_challenge_for_a_client_with_its_own_credentials(to: str) -> None:
    broker = Broker()
    challenge = pb.CommandAuthChallenge(challenge=pb.AuthData(auth_method_name="token", auth_data=b"more"))
    broker.welcome = [commands.encode_command(pb.BaseCommand(type=Type.AUTH_CHALLENGE, authChallenge=challenge))]

    async def story(proxy, new_client) -> None:
        client = await new_client()
        client.connect(b"jane", to=to)
        if not to:
            assert (await client.next()).HasField("connected")
            client.say(Type.LOOKUP, topic=TOPIC, request_id=7)
        answer = await client.next()
        told = answer.error.message if to else answer.lookupTopicResponse.message
        assert "more than the client's credentials" in told

    in_world(story, broker, make=lambda world: ProxyWorld(world, authentication=Own()))
    assert broker.responses == []


def test_a_client_whose_credentials_end_connects_again_with_new_ones() -> None:
    """As at a broker. Who never had good ones is told so."""
    broker = Broker()
    refused = [commands.error(commands.UNREQUESTED, ServerError.AUTHENTICATION_ERROR, "it has expired")]

    async def story(proxy, new_client) -> None:
        client = await let_in(new_client, b"jane")
        client.say(Type.LOOKUP, topic=TOPIC, request_id=7)
        assert (await client.next()).lookupTopicResponse.proxy_through_service_url
        broker.welcome = refused
        for transport in proxy.world.network.connections(proxy.world.node("proxy")):
            transport.abort()
        await proxy.world.sleep(1)
        client.say(Type.LOOKUP, topic=TOPIC, request_id=8)
        await client.lost.wait()
        assert client.came.empty()
        other = await let_in(new_client, b"jane")
        other.say(Type.LOOKUP, topic=TOPIC, request_id=9)
        answer = (await other.next()).lookupTopicResponse
        assert (answer.error, "it has expired" in answer.message) == (pb.AuthenticationError, True)

    in_world(story, broker, make=lambda world: ProxyWorld(world, authentication=Own()))
