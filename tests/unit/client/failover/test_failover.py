"""Clients that go on with another cluster: by themselves, or by a document; brokers by script, virtual time."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import cast
from urllib.error import HTTPError

import pytest

import geminga.client as gc
from geminga import sim
from geminga.client._api.world import client_runtime
from geminga.client.failover import (
    AutoClusterFailover,
    ControlledClusterFailover,
    FailoverClient,
    ServiceTarget,
    ServiceUrlProvider,
    controlled,
)
from geminga.client.failover.controlled import document_of, target_in
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_send_receipts
from support.processes.web_answers import DRIPPING, NO_ANSWERS, Dripping, RawAnswers, WebAnswers
from support.worlds.client_world import CLIENT
from support.worlds.scripted_broker import Scripted, polite

Type = pb.BaseCommand


def url(name: str) -> str:
    return f"pulsar://{name}:6650"


class Clusters:
    """Brokers ``east``, ``west`` and ``north``; what each was sent, and whose credentials it saw."""

    def __init__(self, world: sim.SimWorld) -> None:
        self.world = world
        self.sent: dict[str, list[int]] = {"east": [], "west": [], "north": []}
        self.tokens: dict[str, set[bytes]] = {name: set() for name in self.sent}
        self.connects: Counter[str] = Counter()
        #: Those that send clients to another one.
        self.redirects: dict[str, str] = {}
        #: Those that answer nothing.
        self.silent: set[str] = set()

    async def start(self, name: str) -> None:
        node = self.world.node(name)

        def answers(command: pb.BaseCommand) -> list[bytes]:
            return self.answers(name, command)

        await node.run(lambda _: node.runtime.network.listen(lambda: Scripted(answers), "0.0.0.0", 6650))

    def answers(self, name: str, command: pb.BaseCommand) -> list[bytes]:
        if name in self.silent:
            return []
        if command.type == Type.CONNECT:
            self.connects[name] += 1
            self.tokens[name].add(command.connect.auth_data)
        if command.type == Type.LOOKUP and name in self.redirects:
            target = url(self.redirects[name])
            return [commands.lookup_redirect(command.lookupTopic.request_id, target, "", is_authoritative=True)]
        if command.type == Type.LOOKUP:
            return [
                commands.lookup_connect(
                    command.lookupTopic.request_id, url(name), "", is_authoritative=True, is_through_service_url=True
                )
            ]
        if command.type == Type.SEND:
            self.sent[name].append(command.send.sequence_id)
            return [encode_send_receipts(command.send.producer_id, 1, 2, 1, [(command.send.sequence_id,) * 2])]
        if command.type == Type.SUBSCRIBE:
            return [commands.success(command.subscribe.request_id)]
        if command.type == Type.CLOSE_CONSUMER:
            return [commands.success(command.close_consumer.request_id)]
        return polite(command)


def run(provider: ServiceUrlProvider, scenario: Callable[[gc.Client, Clusters], Awaitable[None]], **options) -> None:
    async def main(world: sim.SimWorld) -> None:
        clusters = Clusters(world)
        for name in clusters.sent:
            await clusters.start(name)
        node = world.node("client")

        async def with_client(_: sim.SimNode) -> None:
            given = {**CLIENT, "connection_timeout_ms": 10_000, **options}
            async with asyncio.timeout(3000), gc.connect(provider, runtime=node.runtime, **given) as client:
                await scenario(client, clusters)

        await node.run(with_client)

    sim.run(main)


def test_a_client_leaves_a_cluster_that_hangs_within_the_interval_and_goes_back() -> None:
    provider = AutoClusterFailover(
        ServiceTarget(url("east"), gc.AuthenticationToken("of east")),
        [url("north"), ServiceTarget(url("west"), gc.AuthenticationToken("of west"))],
        check_interval_s=5,
        switch_back_delay_s=20,
    )

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        world = clusters.world
        producer = await client.create_producer("t", batching_enabled=False, send_timeout_millis=0)
        await producer.send(b"first")
        assert clusters.sent == {"east": [0], "west": [], "north": []}
        clusters.silent |= {"east", "north"}
        silent_s = world.now
        await producer.send(b"second")
        # The interval, what it takes to find out of two, and to connect.
        assert world.now - silent_s <= 5 + 2 * 1.5 + 2
        assert clusters.sent == {"east": [0], "west": [1], "north": []}
        assert provider.current.service_url == url("west")
        clusters.silent -= {"east"}
        await world.sleep(20)
        assert provider.current.service_url == url("west")
        await world.sleep(10)
        await producer.send(b"third")
        assert clusters.sent == {"east": [0, 2], "west": [1], "north": []}
        # Each cluster saw its own credentials; where nothing is said, those of the client, which has none here.
        assert (clusters.tokens["east"], clusters.tokens["west"]) == ({b"of east"}, {b"of west"})

    run(provider, scenario)


def test_a_cluster_that_is_down_is_left_after_its_delay_whatever_producers_wait_for() -> None:
    """Their next attempt would be a minute away."""
    provider = AutoClusterFailover(url("east"), [url("west")], check_interval_s=60, failover_delay_s=90)

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        world = clusters.world
        producer = await client.create_producer("t", batching_enabled=False, send_timeout_millis=0)
        await producer.send(b"first")
        world.crash(world.node("east"))
        down_s = world.now
        await producer.send(b"second")
        assert 90 <= world.now - down_s <= 60 + 90 + 2
        assert clusters.sent["west"] == [1]

    run(provider, scenario, maximum_backoff_ms=600_000)


def test_the_next_client_of_a_provider_begins_anew() -> None:
    """It was connected to the primary and took itself to be where the one before had gone: it never left."""
    provider = AutoClusterFailover(url("east"), [url("west")], check_interval_s=5)

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        producer = await client.create_producer("t", batching_enabled=False, send_timeout_millis=0)
        await producer.send(b"first")
        assert provider.current is provider.first
        clusters.silent.add("east")
        async with asyncio.timeout(60):
            await producer.send(b"second")
        assert clusters.sent == {"east": [0], "west": [1], "north": []}

    for _ in range(2):
        run(provider, scenario)


def test_the_next_client_of_a_document_follows_it_too() -> None:
    provider = Told(url("east"), "http://x", check_interval_s=5)

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        producer = await client.create_producer("t", batching_enabled=False, send_timeout_millis=0)
        provider.text = json.dumps({"serviceUrl": url("west")}).encode()
        await clusters.world.sleep(5 + 2)
        await producer.send(b"first")
        assert clusters.sent == {"east": [], "west": [0], "north": []}

    for _ in range(2):
        run(provider, scenario)


def test_a_client_stays_where_it_is_while_nobody_answers() -> None:
    provider = AutoClusterFailover(url("east"), [url("west"), url("north")], check_interval_s=1)

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        producer = await client.create_producer("t", batching_enabled=False, send_timeout_millis=0)
        clusters.silent |= {"east", "west", "north"}
        await clusters.world.sleep(60)
        assert provider.current is provider.first
        clusters.silent.clear()
        await producer.send(b"first")
        assert [one for sent in clusters.sent.values() for one in sent] == [0]

    run(provider, scenario)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: AutoClusterFailover(url("east"), []), "secondaries"),
        (lambda: AutoClusterFailover(url("east"), url("west")), "secondaries"),
        (lambda: AutoClusterFailover(url("east"), ["west"]), "invalid service URL 'west'"),
        (lambda: AutoClusterFailover(5, [url("west")]), "primary: expected a service URL"),  # type: ignore[arg-type]
        (lambda: ServiceTarget(5), "service_url=5: expected text"),  # type: ignore[arg-type]
        (lambda: ServiceTarget(url("west"), "token"), "authentication="),  # type: ignore[arg-type]
        (lambda: AutoClusterFailover(url("east"), [url("west")], failover_delay_s=-1), "failover_delay_s"),
        (lambda: AutoClusterFailover(url("east"), [url("west")], check_interval_s=0), "check_interval_s"),
        (lambda: ControlledClusterFailover(url("east"), "file:///x"), "url_provider"),
        (lambda: ControlledClusterFailover("east", "http://x"), "invalid service URL 'east'"),
        (lambda: ControlledClusterFailover(url("east"), "http://x", check_interval_s=0), "check_interval_s"),
        (lambda: target_in({"serviceUrl": "west"}), "invalid service URL 'west'"),
        (lambda: target_in({"serviceUrl": url("west"), "authPluginClassName": "strange"}), "strange"),
    ],
)
def test_what_makes_no_sense_is_named(make: Callable[[], object], reason: str) -> None:
    with pytest.raises((gc.InvalidConfiguration, gc.InvalidUrl)) as caught:
        make()
    assert reason in f"{caught.value}"


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"serviceUrl": ""}', b'{"serviceUrl": 5}', b"\xff", b"[" * 100_000]
)
def test_a_document_without_a_cluster_is_none(text: bytes) -> None:
    with pytest.raises(ValueError):
        document_of(text)


class Told(ControlledClusterFailover):
    """Its document is in the test."""

    text = b"no document"

    async def read(self, client: FailoverClient) -> bytes:
        if not self.text:
            raise OSError("nobody answers")
        if self.text == b"fails":
            raise LookupError("an error of the application's own")
        return self.text


def test_a_document_moves_a_client_and_what_can_not_be_read_does_not() -> None:
    provider = Told(url("east"), "http://x", check_interval_s=5)

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        producer = await client.create_producer("t", batching_enabled=False, send_timeout_millis=0)
        await producer.send(b"first")
        await clusters.world.sleep(11)
        provider.text = b'{"serviceUrl":' * 100_000
        await clusters.world.sleep(11)
        nested = {"serviceUrl": url("west"), "authPluginClassName": "basic", "authParamsString": '{"a":' * 100_000}
        provider.text = json.dumps(nested).encode()
        await clusters.world.sleep(11)
        for provider.text in (b"", b"fails"):
            await clusters.world.sleep(11)
        await producer.send(b"second")
        document = {
            "serviceUrl": url("west"),
            "authPluginClassName": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "authParamsString": "token:of west",
            "unknown": 5,
        }
        provider.text = json.dumps(document).encode()
        await clusters.world.sleep(5 + 2)
        await producer.send(b"third")
        # The same document again moves nobody.
        connects = clusters.connects["west"]
        await clusters.world.sleep(30)
        assert clusters.connects["west"] == connects
        assert clusters.sent == {"east": [0, 1], "west": [2], "north": []}
        assert clusters.tokens["west"] == {b"of west"}

    run(provider, scenario)


def read_by(provider: ControlledClusterFailover) -> bytes:
    """The document, read once."""

    class World:
        runtime = client_runtime()

    async def main() -> bytes:
        try:
            return await provider.read(cast("FailoverClient", World()))
        finally:
            await World.runtime.threads.close()

    return asyncio.run(main())


def test_the_document_is_read_with_its_headers() -> None:
    with WebAnswers() as web:
        web.answers = [(200, "text", "")]
        assert read_by(ControlledClusterFailover(url("east"), web.url, headers={"X-Who": "me"})) == b"text"
        assert web.asked[0][1]["X-Who"] == "me"


def test_who_answers_with_an_error_is_hung_up_on() -> None:
    """It stayed connected for as long as somebody had the error."""
    with WebAnswers() as web:
        web.answers = [(503, "later", "")]
        with pytest.raises(HTTPError, match="503") as caught:
            read_by(ControlledClusterFailover(url("east"), web.url))
        assert caught.value.fp is not None
        assert caught.value.fp.closed


@pytest.mark.parametrize("begun", DRIPPING.values(), ids=DRIPPING)
def test_a_document_that_comes_byte_by_byte_is_waited_for_no_longer_than_the_limit(monkeypatch, begun: bytes) -> None:
    monkeypatch.setattr(controlled, "READ_TIMEOUT_S", 0.1)

    with Dripping(begun) as web, pytest.raises(OSError, match=r".+"):
        read_by(ControlledClusterFailover(url("east"), web.url))


@pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_an_answer_that_is_none_does_not_end_the_watch(answer: bytes) -> None:
    with RawAnswers(answer) as raw, pytest.raises(OSError, match=r".+"):
        read_by(ControlledClusterFailover(url("east"), raw.url))


def test_who_is_sent_to_another_cluster_goes_through_the_address_it_was_sent_to() -> None:
    """Not through the service URL, where the topic is not: brokers that say "come back where you asked" mean theirs."""
    provider = AutoClusterFailover(url("east"), [url("north")], check_interval_s=1000)

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        clusters.redirects["east"] = "west"
        producer = await client.create_producer("t", batching_enabled=False)
        await producer.send(b"first")
        assert clusters.sent == {"east": [], "west": [0], "north": []}

    run(provider, scenario)
