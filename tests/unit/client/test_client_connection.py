"""Connections, pool and lookup in virtual time: keep-alive, sharing, authentication, what a broker must not say."""

from __future__ import annotations

import asyncio
import itertools

import pytest

import geminga.client as gc
from geminga.client._transport import pending_requests
from geminga.client._transport.connection import ClientConnection
from geminga.client._transport.handlers import ServiceUrl
from geminga.client._transport.lookup import Lookup
from geminga.client._transport.pool import BrokerAddress, ConnectionPool
from geminga.runtime import next_turn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from support.worlds.client_world import URL
from support.worlds.scripted_broker import polite, run_against, run_with_broker

Type = pb.BaseCommand


def test_producers_share_a_connection() -> None:
    async def scenario(client: gc.Client, broker) -> None:
        await asyncio.gather(*(client.create_producer(f"t{i}") for i in range(5)))
        assert client.pool.open_connections == 1

    run_with_broker(scenario)


def test_several_connections_per_broker_take_turns() -> None:
    async def scenario(client: gc.Client, broker) -> None:
        for index in range(6):
            await client.create_producer(f"t{index}")
        assert client.pool.open_connections == 3

    run_with_broker(scenario, connections_per_broker=3)


def test_silent_broker_is_noticed_within_two_keep_alive_intervals() -> None:
    heard: list[int] = []
    is_silent = False

    def script(command: pb.BaseCommand) -> list[bytes]:
        heard.append(command.type)
        return [] if is_silent and command.type == Type.PING else polite(command)

    async def scenario(client: gc.Client) -> None:
        nonlocal is_silent
        producer = await client.create_producer("t")
        await wait_ms(20_000)
        assert producer.is_connected()
        assert heard.count(Type.CONNECT) == 1
        assert heard.count(Type.PING) >= 9
        is_silent = True
        await wait_ms(4_100)
        is_silent = False
        await wait_ms(1_000)
        assert heard.count(Type.CONNECT) == 2
        assert producer.is_connected()

    run_against(script, scenario)


def test_ping_is_answered() -> None:
    pongs: list[int] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.PONG:
            pongs.append(1)
        answers = polite(command)
        return [*answers, commands.PING_FRAME] if command.type == Type.PRODUCER else answers

    async def scenario(client: gc.Client) -> None:
        await client.create_producer("t")
        await wait_ms(100)
        assert pongs == [1]

    run_against(script, scenario)


def test_connect_says_who_we_are_and_answers_challenges() -> None:
    said: list[tuple[str, bytes]] = []
    tokens = iter(["first", "second"])

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.CONNECT:
            said.append((command.connect.auth_method_name, command.connect.auth_data))
            challenge = pb.CommandAuthChallenge(challenge=pb.AuthData(auth_method_name="token", auth_data=b"refresh"))
            return [commands.encode_command(pb.BaseCommand(type=Type.AUTH_CHALLENGE, authChallenge=challenge))]
        if command.type == Type.AUTH_RESPONSE:
            said.append((command.authResponse.response.auth_method_name, command.authResponse.response.auth_data))
            return polite(pb.BaseCommand(type=Type.CONNECT))
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        await client.create_producer("t")

    run_against(script, scenario, authentication=gc.AuthenticationToken(lambda: next(tokens)))
    assert said == [("token", b"first"), ("token", b"second")]


def test_refused_authentication_is_told_at_once() -> None:
    def script(command: pb.BaseCommand) -> list[bytes]:
        code = gc.AuthenticationError.server_error
        return [commands.error((1 << 64) - 1, code, "who are you")] if command.type == Type.CONNECT else []

    async def scenario(client: gc.Client) -> None:
        with pytest.raises(gc.AuthenticationError, match="who are you"):
            await client.create_producer("t")

    run_against(script, scenario)


def test_description_is_told_behind_the_version() -> None:
    told: list[str] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.CONNECT:
            told.append(command.connect.client_version)
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        await client.create_producer("t")

    run_against(script, scenario)
    run_against(script, scenario, description="billing of the shop")
    assert told == ["geminga-python-0.1.0", "geminga-python-0.1.0-billing of the shop"]
    with pytest.raises(gc.InvalidConfiguration, match="description"):
        gc.ClientOptions(description="x" * 65).check()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        commands.success(1),
        commands.encode_command(pb.BaseCommand(type=Type.CONNECT, connect=pb.CommandConnect(client_version="x"))),
        b"\x00\x00\x00\x07\x00\x00\x00\x03\x08\x09\x4a",
        commands.connected("huge", 21, (1 << 30) + 1, pb.FeatureFlags()),
    ],
)
def test_what_no_broker_says_is_an_error_with_a_name(answer: bytes) -> None:
    async def scenario(client: gc.Client) -> None:
        with pytest.raises((gc.ConnectError, gc.ReadError)):
            await client.create_producer("t")

    run_against(lambda command: [answer], scenario, operation_timeout_ms=500)


@pytest.mark.parametrize(("said", "bytes_max"), [(0, 5 << 20), (1000, 1000), (6 << 20, 6 << 20)])
def test_largest_message_is_what_the_broker_says_or_where_it_says_nothing_5_mib(said: int, bytes_max: int) -> None:
    """Brokers before 2.4 say nothing."""

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.CONNECT:
            return [commands.connected("old", 13, said, pb.FeatureFlags())]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer("t", batching_enabled=False, send_timeout_millis=100)
        with pytest.raises(gc.Timeout):
            await producer.send(bytes(bytes_max - 500))
        with pytest.raises(gc.MessageTooBig):
            await producer.send(bytes(bytes_max + 1))

    run_against(script, scenario)


def test_request_that_nobody_waits_for_any_more_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_requests, "REQUESTS_MAX", 2)

    async def scenario(client: gc.Client) -> None:
        connection = await client.pool.service_connection("t")
        for request_id in range(100, 105):
            asked = pb.CommandLookupTopic(topic="t", request_id=request_id)
            connection.start_request(pb.BaseCommand(type=Type.LOOKUP, lookupTopic=asked), request_id)
            connection.forget_request(request_id)

    run_against(lambda c: [] if c.type == Type.LOOKUP else polite(c), scenario)


def test_requests_end_when_the_connection_does() -> None:
    async def scenario(client: gc.Client) -> None:
        connection: ClientConnection = await client.pool.service_connection("t")
        request_id = connection.next_request_id()
        request = pb.BaseCommand(type=Type.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic="t", request_id=request_id))
        waiting = connection.start_request(request, request_id)
        connection.close()
        with pytest.raises(gc.NotConnected):
            await waiting
        with pytest.raises(gc.NotConnected):
            connection.start_request(request, request_id)
        assert client.pool.open_connections == 0
        assert (await client.pool.service_connection("t")) is not connection

    run_against(lambda c: [] if c.type == Type.LOOKUP else polite(c), scenario)


def test_lookup_asks_again_while_the_broker_is_not_ready() -> None:
    asked: list[float] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.LOOKUP:
            asked.append(asyncio.get_running_loop().time())
            if len(asked) < 4:
                code = gc.ServiceUnitNotReady.server_error
                return [commands.lookup_failed(command.lookupTopic.request_id, code, "loading")]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        lookup: Lookup = client.lookup
        assert await lookup.find_broker("t") == BrokerAddress(URL, URL)
        with pytest.raises(gc.TopicNotFound):
            await lookup.retry(refuse, "nothing")
        await next_turn()

    async def refuse() -> None:
        raise gc.TopicNotFound("no")

    run_against(script, scenario, initial_backoff_ms=100)
    assert len(asked) == 4
    assert all(later - earlier > 0.05 for earlier, later in itertools.pairwise(asked))


def test_proxied_lookup_goes_through_the_service_url() -> None:
    connects: list[str] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.CONNECT:
            connects.append(command.connect.proxy_to_broker_url)
        if command.type == Type.LOOKUP:
            answer = pb.CommandLookupTopicResponse(
                request_id=command.lookupTopic.request_id,
                brokerServiceUrl="pulsar://hidden:6650",
                response=pb.CommandLookupTopicResponse.Connect,
                proxy_through_service_url=True,
            )
            response = pb.BaseCommand(type=Type.LOOKUP_RESPONSE, lookupTopicResponse=answer)
            return [commands.encode_command(response)]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        await client.create_producer("t")
        assert isinstance(client.pool, ConnectionPool)
        # By whichever address of the service URL answers then, not by the one that was asked.
        assert await client.lookup.find_broker_once("t") == BrokerAddress("pulsar://hidden:6650", "")

    run_against(script, scenario)
    assert connects == ["", "hidden:6650"]


@pytest.mark.parametrize(("redirects", "is_found"), [(0, True), (2, True), (3, False)])
def test_so_many_redirects_are_followed_and_no_more(redirects: int, is_found: bool) -> None:
    asked: list[bool] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.LOOKUP:
            asked.append(command.lookupTopic.authoritative)
            if len(asked) <= redirects:
                request_id, with_tls = command.lookupTopic.request_id, "pulsar+ssl://nowhere:6651"
                return [commands.lookup_redirect(request_id, URL, with_tls, is_authoritative=True)]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        lookup: Lookup = client.lookup
        if is_found:
            assert await lookup.find_broker_once("t") == BrokerAddress(URL, URL)
            return
        with pytest.raises(gc.LookupError, match="lookup of t: more than 2 redirects"):
            await lookup.find_broker_once("t")

    run_against(script, scenario, lookup_redirects_max=2)
    assert asked == [False, *[True] * min(redirects, 2)]


def test_topic_that_moved_is_looked_up_at_the_address_of_the_clients_kind() -> None:
    async def scenario(client: gc.Client) -> None:
        lookup: Lookup = client.lookup
        moved = ServiceUrl(URL, "pulsar+ssl://nowhere:6651")
        assert await lookup.find_broker_at(moved, "t") == BrokerAddress(URL, URL)
        with pytest.raises(gc.LookupError, match="t moved to a cluster that tells no address without TLS"):
            await lookup.find_broker_at(ServiceUrl("", "pulsar+ssl://nowhere:6651"), "t")

    run_against(polite, scenario)


def test_requests_name_the_pattern_and_the_version_that_are_asked_for_and_nothing_else() -> None:
    requests: list[pb.BaseCommand] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.GET_TOPICS_OF_NAMESPACE:
            requests.append(command)
            found = pb.CommandGetTopicsOfNamespaceResponse(
                request_id=command.getTopicsOfNamespace.request_id, topics=["a"], topics_hash="h"
            )
            answer = pb.BaseCommand(type=Type.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=found)
            return [commands.encode_command(answer)]
        if command.type == Type.GET_SCHEMA:
            requests.append(command)
            schema = pb.CommandGetSchemaResponse(request_id=command.getSchema.request_id, schema_version=b"1")
            schema.schema.CopyFrom(pb.Schema(name="s", schema_data=b"", type=pb.Schema.String))
            answer = pb.BaseCommand(type=Type.GET_SCHEMA_RESPONSE, getSchemaResponse=schema)
            return [commands.encode_command(answer)]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        lookup: Lookup = client.lookup
        assert (await lookup.topics_of_namespace("p/n")).topics == ["a"]
        await lookup.topics_of_namespace("p/n", pattern="x.*", topics_hash="h")
        for version in (None, b"", bytes(7) + b"7"):
            found = await lookup.schema("t", version)
            assert found is not None
            assert (found[0].name, found[1]) == ("s", b"1")

    run_against(script, scenario)
    lists = [each.getTopicsOfNamespace for each in requests if each.type == Type.GET_TOPICS_OF_NAMESPACE]
    schemas = [each.getSchema for each in requests if each.type == Type.GET_SCHEMA]
    assert [(each.HasField("topics_pattern"), each.topics_pattern) for each in lists] == [(False, ""), (True, "x.*")]
    assert [(each.HasField("topics_hash"), each.topics_hash) for each in lists] == [(False, ""), (True, "h")]
    assert [(each.HasField("schema_version"), each.schema_version) for each in schemas] == [
        (False, b""),
        (True, b""),
        (True, bytes(7) + b"7"),
    ]


def test_listener_name_is_sent_with_lookups() -> None:
    names: list[str] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.LOOKUP:
            names.append(command.lookupTopic.advertised_listener_name)
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        await client.create_producer("t")

    run_against(script, scenario, listener_name="external")
    assert names == ["external"]


def test_topics_and_partitions_of_a_namespace() -> None:
    async def scenario(client: gc.Client, broker) -> None:
        await client.create_producer("single")
        assert await client.get_topic_partitions("single") == ["persistent://public/default/single"]
        found = await client.lookup.topics_of_namespace("public/default")
        assert found.topics == ["persistent://public/default/single"]
        again = await client.lookup.topics_of_namespace("public/default", topics_hash=found.topics_hash)
        assert (again.is_changed, again.topics) == (False, [])

    run_with_broker(scenario)
