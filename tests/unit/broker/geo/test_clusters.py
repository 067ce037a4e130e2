"""The other clusters: what is stored of them is followed, and how much is on its way to all of them is bounded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import pytest

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.core.coercion import Json
from geminga.broker.core.dedup_source import cluster_of
from geminga.broker.geo.clusters import BYTES_MAX, ClusterBytes, OtherClusters, OutgoingBytes
from geminga.broker.geo.ports import AwayError
from geminga.broker.geo.remote_cluster import (
    OPENING_MAX,
    PROBE_PATH,
    PROBE_S,
    TOPIC_BYTES_MAX,
    RemoteCluster,
    RemoteLink,
    _arguments,
)
from geminga.broker.geo.watch import LOOK_S
from geminga.broker.peers.http_client import REQUESTS_AT_ONCE
from geminga.broker.peers.links import PLAIN, PeerLinks
from geminga.broker.resources import Resources
from geminga.client import AlreadyClosed, ClientArguments, Timeout
from geminga.client.producer_rules.encoded_batch import WholeEntry
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import UnavailableError
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn, wait_ms
from geminga.sim.errors import SimError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from geminga.wire.pulsar.subscription_markers import UPDATE
from support.worlds.other_cluster import as_copy
from support.worlds.scripted_broker import Scripted, polite

TOPIC = TopicName.parse("persistent://public/default/t")
#: Nobody is there.
DATA = {"serviceUrl": "http://west:8080", "brokerServiceUrl": "pulsar://west:6650"}


def run_with(scenario: Callable[[OtherClusters, Resources], Awaitable[None]], **settings: object) -> None:
    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            resources = Resources(MemoryMetadataStore(node.runtime))
            config = BrokerConfig(cluster_name="east", **settings)  # type: ignore[arg-type]
            clusters = OtherClusters(node.runtime, resources, config)
            try:
                await scenario(clusters, resources)
            finally:
                await clusters.close()

        await world.node("broker").run(on_node)

    sim.run(main)


def run_among_others(story: Callable[[sim.SimWorld, sim.SimNode], Awaitable[None]]) -> None:
    """On the broker's node, in a world where other clusters may be."""

    async def main(world: sim.SimWorld) -> None:
        await world.node("broker").run(lambda node: story(world, node))

    Answering.statuses, Answering.asked, Answering.body = [], [], b""
    sim.run(main)


async def refusal(clusters: OtherClusters, name: str = "west") -> str:
    with pytest.raises(UnavailableError) as caught:
        await clusters.open(name, TOPIC)
    return f"{caught.value}"


def test_what_is_stored_of_a_cluster_is_used_when_it_changes() -> None:
    async def scenario(clusters: OtherClusters, resources: Resources) -> None:
        assert await refusal(clusters) == "there is no cluster west"
        await resources.clusters.create("west", {"serviceUrl": "http://west:8080"})
        assert "has no brokerServiceUrl and serviceUrl" in await refusal(clusters)
        await resources.clusters.update("west", {**DATA, "authenticationPlugin": "strange"})
        assert "cluster west: " in await refusal(clusters)
        assert "strange" in await refusal(clusters)
        await resources.clusters.update("west", {**DATA, "brokerClientTlsEnabled": True})
        assert "has no brokerServiceUrlTls and serviceUrlTls" in await refusal(clusters)
        await resources.clusters.update("west", DATA)
        assert "west:8080 does not answer" in await refusal(clusters)
        (known,) = clusters._clusters.values()  # whose end is looked for
        # Also where nobody asks: who copies begins anew.
        await resources.clusters.update("west", {**DATA, "serviceUrl": "http://other:8080"})
        await wait_ms(LOOK_S * 1000 + 1)
        assert known._client.is_closed
        assert "other:8080 does not answer" in await refusal(clusters)
        await resources.clusters.delete("west")
        assert await refusal(clusters) == "there is no cluster west"

    run_with(scenario)


def test_a_cluster_is_reached_through_its_proxy_where_tls_can_say_where_to(caplog: pytest.LogCaptureFixture) -> None:
    secured = {"serviceUrlTls": "https://west:1", "brokerServiceUrlTls": "pulsar+ssl://west:2"}
    proxied = {**DATA, **secured, "proxyServiceUrl": "pulsar+ssl://proxy:4443", "proxyProtocol": "SNI"}

    async def story(world: sim.SimWorld, node: sim.SimNode) -> None:
        def made(document: dict[str, Json]) -> RemoteCluster:
            return RemoteCluster(node.runtime, "west", document, PLAIN, "east", ClusterBytes(OutgoingBytes()))

        for change, expected in [
            ({"brokerClientTlsEnabled": True}, ("pulsar+ssl://proxy:4443", "SNI")),
            ({"brokerClientTlsEnabled": True, "proxyProtocol": None}, ("", "")),
            ({}, ("", "")),
        ]:
            cluster = made({**proxied, **change})
            options = cluster._client.options
            assert (options.proxy_service_url, options.proxy_protocol) == expected
            await cluster.close()
        with pytest.raises(UnavailableError, match=r"cluster west: .* expected one pulsar\+ssl://host:port"):
            made({**proxied, "brokerClientTlsEnabled": True, "proxyServiceUrl": "https://proxy"})

    run_among_others(story)
    told = [record.getMessage() for record in caplog.records if "proxyServiceUrl" in record.getMessage()]
    assert len(told) == 2
    assert "it names no proxyProtocol" in told[0]
    assert "it is reached without TLS" in told[1]


class Answering(asyncio.Protocol):
    """A web service that has nothing, or is not ready: ``statuses`` are answered in turn, the last for ever."""

    statuses: ClassVar[list[int]] = []
    asked: ClassVar[list[str]] = []
    body: ClassVar[bytes] = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        self.asked.append(data.split(b" ")[1].decode())
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(b"HTTP/1.1 %d so\r\n" % status)
        self.transport.write(b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(self.body), self.body))
        self.transport.close()


def test_who_waits_for_a_cluster_is_told_when_it_answers_again() -> None:
    """One question each five seconds for all that wait; what a broker there is not ready for is no refusal."""

    async def story(world: sim.SimWorld, node: sim.SimNode) -> None:
        resources = Resources(MemoryMetadataStore(node.runtime))
        await resources.clusters.create("west", DATA)
        clusters = OtherClusters(node.runtime, resources, BrokerConfig(cluster_name="east"))
        with pytest.raises(AwayError, match="west:8080 does not answer") as caught:
            await clusters.open("west", TOPIC)
        with pytest.raises(AwayError) as again:
            await clusters.open("west", TOPIC)
        assert again.value.back is caught.value.back
        await wait_ms(3 * PROBE_S * 1000)
        assert not caught.value.back.done()
        west, Answering.statuses, Answering.asked = world.node("west"), [503, 503, 403], []
        await serve(west, Answering, 8080)
        await wait_ms(PROBE_S * 1000 + 100)
        assert (caught.value.back.done(), Answering.asked) == (True, [PROBE_PATH])
        with pytest.raises(AwayError, match="partitions of persistent://public/default/t: status 503") as busy:
            await clusters.open("west", TOPIC)
        assert not busy.value.back.done()
        await wait_ms(PROBE_S * 1000 + 100)
        assert busy.value.back.done()
        with pytest.raises(UnavailableError, match="status 403") as refused:
            await clusters.open("west", TOPIC)
        assert not isinstance(refused.value, AwayError)
        # What is left of the waiting ends with the broker, or with what was stored of the cluster.
        Answering.statuses = [503]
        with pytest.raises(AwayError) as last:
            await clusters.open("west", TOPIC)
        await clusters.close()
        assert last.value.back.done()

    run_among_others(story)


async def serve(node: sim.SimNode, accept: Callable[[], asyncio.BaseProtocol], port: int) -> None:
    await node.run(lambda there: there.runtime.network.listen(accept, "0.0.0.0", port))


class Slow(asyncio.Protocol):
    """A web service that says 403 after ``delay_s``; None: it answers nothing."""

    delay_s: ClassVar[float | None] = None
    connections: ClassVar[int] = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        Slow.connections += 1
        if self.delay_s is not None:
            asyncio.get_running_loop().call_later(self.delay_s, self._answer)

    def _answer(self) -> None:
        self.transport.write(b"HTTP/1.1 403 so\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()


@pytest.mark.parametrize(("delay_s", "topics"), [(3.0, 800), (None, 3 * OPENING_MAX)])
def test_links_of_many_topics_are_made_in_turns(delay_s: float | None, topics: int) -> None:
    """Of all at once most would be given up before they are answered; and for one that hangs nobody waits in vain."""

    async def story(world: sim.SimWorld, node: sim.SimNode) -> None:
        resources = Resources(MemoryMetadataStore(node.runtime))
        await resources.clusters.create("west", DATA)
        clusters, west = OtherClusters(node.runtime, resources, BrokerConfig()), world.node("west")
        Slow.delay_s, Slow.connections = delay_s, 0
        await serve(west, Slow, 8080)
        names = [TopicName.parse(f"{TOPIC}-{number}") for number in range(topics)]
        opening = [asyncio.ensure_future(clusters.open("west", name)) for name in names]
        await wait_ms(1000)
        assert Slow.connections == REQUESTS_AT_ONCE
        await wait_ms(60_000)
        if delay_s is None:
            # The first that asked tell the others; but for the one that looks whether it is back nobody asks then.
            assert all(task.done() for task in opening)
            assert {type(task.exception()) for task in opening} == {AwayError}
            assert Slow.connections <= OPENING_MAX + 1
        else:
            await asyncio.wait(opening)
            found = Counter(f"{task.exception()}".rpartition(": ")[2] for task in opening)
            assert found == {"status 403": topics}
        await clusters.close()

    run_among_others(story)


@pytest.mark.parametrize("makes", [True, False])
@pytest.mark.parametrize(
    ("here", "there", "told"),
    [
        (0, None, "persistent://public/default/t is not in cluster west, and this broker makes no topics there"),
        (4, None, "persistent://public/default/t is not in cluster west, and this broker makes no topics there"),
        (4, 2, "t has 4 partitions here and 2 partitions in cluster west: they must be equal"),
        (0, 2, "t has no partitions here and 2 partitions in cluster west"),
        (4, 0, "t has 4 partitions here and no partitions in cluster west"),
    ],
)
def test_no_topic_is_made_there_where_none_is_to_be(here: int, there: int | None, told: str, *, makes: bool) -> None:
    """``createTopicToRemoteClusterForReplication``; partitions that differ are the same reason either way."""

    async def story(world: sim.SimWorld, node: sim.SimNode) -> None:
        resources = Resources(MemoryMetadataStore(node.runtime))
        await resources.clusters.create("west", DATA)
        topic = TopicName.parse(f"{TOPIC}-partition-1") if here else TOPIC
        if here:
            await resources.partitioned_topics.create(TOPIC, here)
        config = BrokerConfig(cluster_name="east", creates_topics_elsewhere=makes)
        clusters, west = OtherClusters(node.runtime, resources, config), world.node("west")
        Answering.statuses, Answering.asked = [404 if there is None else 200, 409], []
        Answering.body = b'{"partitions":%d}' % (there or 0)
        await serve(west, Answering, 8080)
        with pytest.raises(UnavailableError) as caught:
            await clusters.open("west", topic)
        path = "/admin/v2/persistent/public/default/t"
        looked = f"{path}/partitions?checkAllowAutoCreation=false"
        if makes and not there:
            assert len(Answering.asked) > 1
        else:
            assert Answering.asked == [looked]
            assert told in f"{caught.value}"
        await clusters.close()

    run_among_others(story)


@pytest.mark.parametrize(("document", "wanted"), [({"listenerName": " outside "}, "outside"), ({}, None)])
def test_brokers_of_a_cluster_are_asked_for_by_its_listener(document: dict[str, Json], wanted: str | None) -> None:
    found = _arguments(document, PLAIN)
    assert found.get("listener_name") == wanted
    # What that cluster shows of who publishes there.
    assert found.get("description") == "replicator"


TLS = {"brokerClientTlsEnabled": True}
STORES: dict[str, Json] = {
    **TLS,
    "brokerClientTlsEnabledWithKeyStore": True,
    "brokerClientTlsTrustStore": "/trust.p12",
    "brokerClientTlsTrustStorePassword": "t",
    "brokerClientTlsKeyStore": "/own.p12",
    "brokerClientTlsKeyStorePassword": "o",
}
PEM: dict[str, Json] = {
    "brokerClientTrustCertsFilePath": "/trust.pem",
    "brokerClientCertificateFilePath": "/own.pem",
    "brokerClientKeyFilePath": "/key.pem",
    "tlsAllowInsecureConnection": True,
}
#: Trust, certificate, key, their passwords, whether anybody is trusted.
BROKERS = ("/b.p12", "/b-own.p12", "", "bt", "bo", False)


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ({}, BROKERS),
        (TLS, BROKERS),
        # What a cluster says of TLS counts where it says that there is any: as in Apache.
        (PEM, BROKERS),
        ({**TLS, **PEM}, ("/trust.pem", "/own.pem", "/key.pem", "", "", True)),
        (STORES, ("/trust.p12", "/own.p12", "", "t", "o", False)),
        ({**TLS, "brokerClientTrustCertsFilePath": "/x"}, ("/x", "/b-own.p12", "", "", "bo", False)),
    ],
)
def test_files_of_a_cluster_come_before_those_of_the_broker(document: dict[str, Json], wanted: tuple) -> None:
    own: ClientArguments = {
        "tls_trust_certs_file_path": "/b.p12",
        "tls_trust_certs_password": "bt",
        "tls_certificate_file_path": "/b-own.p12",
        "tls_certificate_password": "bo",
    }
    found = _arguments(document, PeerLinks(own, uses_tls=True))
    assert (
        found.get("tls_trust_certs_file_path"),
        found.get("tls_certificate_file_path"),
        found.get("tls_private_key_file_path", ""),
        found.get("tls_trust_certs_password"),
        found.get("tls_certificate_password"),
        found.get("tls_allow_insecure_connection", False),
    ) == wanted


def test_a_broker_that_is_told_to_speak_tls_to_brokers_never_copies_without() -> None:
    """The key of the broker counted within its cluster alone: messages went to the others in the clear."""

    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            resources = Resources(MemoryMetadataStore(node.runtime))
            config = BrokerConfig(cluster_name="east")
            clusters = OtherClusters(node.runtime, resources, config, links=PeerLinks({}, uses_tls=True))
            await resources.clusters.create("west", DATA)
            assert "no brokerServiceUrlTls and serviceUrlTls, which is where it is reached with TLS" in await refusal(
                clusters
            )
            secured: dict[str, Json] = {
                **DATA,
                "brokerServiceUrlTls": "pulsar+ssl://west:6651",
                "serviceUrlTls": "https://west:8443",
            }
            await resources.clusters.update("west", secured)
            with pytest.raises(SimError, match="TLS is not simulated"):
                await clusters.open("west", TOPIC)
            await clusters.close()

        await world.node("broker").run(on_node)

    sim.run(main)


def mute(command: pb.BaseCommand) -> list[bytes]:
    """A broker in west that lets a producer in and says nothing to who leaves."""
    if command.type == pb.BaseCommand.LOOKUP:
        url = DATA["brokerServiceUrl"]
        return [commands.lookup_connect(command.lookupTopic.request_id, url, "", is_authoritative=True)]
    return [] if command.type == pb.BaseCommand.CLOSE_PRODUCER else polite(command)


def test_nobody_waits_for_a_cluster_that_hangs_to_be_left() -> None:
    async def story(world: sim.SimWorld, node: sim.SimNode) -> None:
        resources, clock = Resources(MemoryMetadataStore(node.runtime)), node.runtime.clock
        for name in ("west", "north"):
            await resources.clusters.create(name, {key: url.replace("west", name) for key, url in DATA.items()})
        clusters = OtherClusters(node.runtime, resources, BrokerConfig(cluster_name="east"))
        Answering.statuses, Answering.body = [200], b'{"partitions":0}'
        west, north = world.node("west"), world.node("north")
        for each in (west, north):
            await serve(each, Answering, 8080)
        await serve(west, lambda: Scripted(mute), 6650)
        await clusters.open("west", TOPIC)
        await resources.clusters.update("west", {**DATA, "serviceUrl": "http://other:8080"})
        begun_s = clock.monotonic()
        asked = asyncio.ensure_future(clusters.answer("west", PROBE_PATH))  # which is reached otherwise now
        assert (await clusters.answer("north", PROBE_PATH)).is_good
        assert clock.monotonic() - begun_s < 1
        with pytest.raises(UnavailableError, match="other:8080"):
            await asked
        await clusters.close()
        assert clusters._closing == set()

    run_among_others(story)


def test_who_brings_a_schema_is_known_as_a_replicator_over_there() -> None:
    """Others are refused where encryption is required, producers are limited or bring no schemas."""
    asked: list[pb.CommandProducer] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == pb.BaseCommand.LOOKUP:
            return mute(command)
        if command.type == pb.BaseCommand.PRODUCER:
            asked.append(command.producer)
        return polite(command)

    async def story(world: sim.SimWorld, node: sim.SimNode) -> None:
        resources = Resources(MemoryMetadataStore(node.runtime))
        await resources.clusters.create("west", DATA)
        clusters = OtherClusters(node.runtime, resources, BrokerConfig(cluster_name="east"))
        Answering.statuses, Answering.body = [200], b'{"partitions":0}'
        west = world.node("west")
        await serve(west, Answering, 8080)
        await serve(west, lambda: Scripted(script), 6650)
        link = await clusters.open("west", TOPIC)
        await link.version_of(SchemaInfo("text", SchemaType.STRING))
        names = [request.producer_name for request in asked]
        # Not the same name: each is there but once at a time.
        assert names == ["pulsar.repl.east-->west", "pulsar.repl.east-->west.schemas"]
        assert cluster_of(names[1]) == "east"
        assert asked[1].schema.type == pb.Schema.String
        await clusters.close()

    run_among_others(story)


def test_nothing_is_opened_when_the_broker_closes() -> None:
    async def scenario(clusters: OtherClusters, resources: Resources) -> None:
        await resources.clusters.create("west", DATA)
        await clusters.close()
        assert await refusal(clusters) == "the broker is closing"

    run_with(scenario)


@pytest.mark.parametrize(("value", "is_earliest"), [("latest", False), ("earliest", True)])
def test_where_it_begins_is_configured(value: str, is_earliest: bool) -> None:
    async def scenario(clusters: OtherClusters, resources: Resources) -> None:
        del resources
        assert (clusters.local, clusters.starts_at_earliest) == ("east", is_earliest)

    run_with(scenario, replication_start_at=value)


def test_what_a_cluster_that_answers_nothing_was_sent_leaves_room_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("geminga.broker.geo.clusters.BYTES_MAX", 2 * TOPIC_BYTES_MAX)
    mebibyte = bytes(1 << 20)
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)

    def at(name: str) -> Callable[[pb.BaseCommand], list[bytes]]:
        def script(command: pb.BaseCommand) -> list[bytes]:
            if command.type != pb.BaseCommand.LOOKUP:
                return polite(command)
            url = DATA["brokerServiceUrl"].replace("west", name)
            return [commands.lookup_connect(command.lookupTopic.request_id, url, "", is_authoritative=True)]

        return script

    async def story(world: sim.SimWorld, node: sim.SimNode) -> None:
        resources = Resources(MemoryMetadataStore(node.runtime))
        clusters = OtherClusters(node.runtime, resources, BrokerConfig(cluster_name="east"))
        Answering.statuses, Answering.body = [200], b'{"partitions":0}'
        for name in ("west", "north"):
            await resources.clusters.create(name, {key: url.replace("west", name) for key, url in DATA.items()})
            there, script = world.node(name), at(name)
            await serve(there, Answering, 8080)
            await serve(there, partial(Scripted, script), 6650)
        await resources.clusters.create("nowhere", {})
        for _ in range(10):
            # What is no cluster to copy to takes no part.
            assert "nowhere has no" in await refusal(clusters, "nowhere")
        links = [await clusters.open("west", TopicName.parse(f"{TOPIC}-{number}")) for number in range(3)]
        other = await clusters.open("north", TOPIC)
        for link in links[:2]:
            for entry in range(TOPIC_BYTES_MAX // len(mebibyte)):
                if not link.is_full:
                    link.send(as_copy(metadata, mebibyte), Position(1, entry), lambda _, __: None)
        assert [link.is_full for link in links] == [True] * 3
        assert not other.is_full
        other.send(as_copy(metadata, bytes(TOPIC_BYTES_MAX - len(mebibyte))), Position(1, 0), lambda _, __: None)
        assert not other.is_full
        async with asyncio.timeout(1):
            await other.room()
        await clusters.close()

    run_among_others(story)


def test_who_waits_for_room_looks_again_when_there_is_less() -> None:
    async def main(_: sim.SimWorld) -> None:
        outgoing = OutgoingBytes()
        outgoing.add(BYTES_MAX)
        assert outgoing.is_full
        waiting = [asyncio.ensure_future(outgoing.changed()) for _ in range(2)]
        waiting.append(asyncio.ensure_future(outgoing.changed()))
        await next_turn()
        waiting[2].cancel()
        await next_turn()
        outgoing.add(5)
        await next_turn()
        assert not any(task.done() for task in waiting[:2])
        outgoing.add(-6)
        await next_turn()
        assert all(task.done() for task in waiting)
        assert not outgoing.is_full

    sim.run(main)


def test_nobody_asks_after_a_cluster_that_was_left() -> None:
    """What was asked before is answered later: no one waits for its being back, nor is it asked anything more."""

    async def story(world: sim.SimWorld, node: sim.SimNode) -> None:
        resources = Resources(MemoryMetadataStore(node.runtime))
        await resources.clusters.create("west", DATA)
        clusters, west = OtherClusters(node.runtime, resources, BrokerConfig()), world.node("west")
        Slow.delay_s, Slow.connections = None, 0
        await serve(west, Slow, 8080)
        names = [TopicName.parse(f"{TOPIC}-{number}") for number in range(OPENING_MAX + 1)]
        opening = [asyncio.ensure_future(clusters.open("west", name)) for name in names]
        await wait_ms(1000)
        await clusters.close()
        await asyncio.wait(opening)
        assert all(isinstance(each.exception(), UnavailableError) for each in opening)
        asked = Slow.connections
        await wait_ms(10 * PROBE_S * 1000)
        assert Slow.connections == asked

    run_among_others(story)


@pytest.mark.parametrize(
    ("chunks", "marker", "told"),
    [(0, 0, (False, False)), (1, 0, (False, False)), (3, 0, (True, False)), (0, UPDATE, (False, True))],
)
def test_chunks_and_markers_are_sent_as_such(chunks: int, marker: int, told: tuple[bool, bool]) -> None:
    """Else the other cluster takes a chunk for a repetition of the one before it."""
    link, sent = _link()
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    if chunks:
        metadata.num_chunks_from_msg = chunks
    if marker:
        metadata.marker_type = marker
    link.send(as_copy(metadata, b"x"), Position(1, 2), lambda _, __: None)
    assert [(entry.is_chunk, entry.is_marker) for entry in sent] == [told]


def test_what_one_turn_answers_is_told_together_and_nothing_behind_what_was_not_stored() -> None:
    """Of one that waited too long the next may be stored all the same: it is not counted in its place."""
    told: list[tuple[int, str]] = []

    async def scenario() -> None:
        outgoing = OutgoingBytes()
        link, sent = _link(outgoing)
        for entry_id in range(7):
            copy = as_copy(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"x")
            link.send(copy, Position(3, entry_id), lambda count, error: told.append((count, str(error or ""))))
        for number, entry in enumerate(sent[:4]):
            entry.on_end(entry.sequence_id, entry.highest_sequence_id, Timeout("no receipt") if number == 2 else None)
        assert told == []
        await next_turn()
        assert told == [(2, ""), (0, "cluster west: 3:2: no receipt")]
        for entry in sent[4:]:
            entry.on_end(entry.sequence_id, entry.highest_sequence_id, AlreadyClosed("it ended"))
        await next_turn()
        assert told[2:] == [told[1]]
        assert outgoing.bytes == 0
        assert not link.is_full

    asyncio.run(scenario())


def _link(outgoing: OutgoingBytes | None = None) -> tuple[RemoteLink, list[WholeEntry]]:
    """One whose producer notes what it is given."""
    sent: list[WholeEntry] = []
    producer = SimpleNamespace(send_encoded=sent.append)
    counted = ClusterBytes(outgoing or OutgoingBytes())
    link = RemoteLink(SimpleNamespace(name="west"), TopicName.parse("t"), producer, counted)  # type: ignore[arg-type]
    return link, sent
