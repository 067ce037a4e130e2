"""A broker over memory storage in a simulated node, and clients that speak frames to it without a socket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from geminga import sim
from geminga.bookie import LocalBookie
from geminga.bookkeeper import BookKeeper, BookKeeperConfig
from geminga.bookkeeper.local_pool import LocalBookiePool
from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.access.anonymous import OPEN
from geminga.broker.access.ports import Access
from geminga.broker.composition.service import Broker
from geminga.broker.composition.traces import Traces
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.connection.connection import TURN_COMMANDS_MAX
from geminga.broker.ownership.endpoints import Endpoint
from geminga.broker.ownership.ports import Ownership
from geminga.broker.registry.ports import SharingClusters
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.broker.topic.persistent import PersistentTopic
from geminga.lake.store import LakeStore
from geminga.managed_ledger import ManagedLedgerConfig, ManagedLedgerFactory
from geminga.metadata.divided import DividedMetadataStore
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.runtime import Runtime
from geminga.sim.threads import SimThreads
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import decode_command, encode_command
from geminga.wire.pulsar.frame import FrameDecoder, encode_frame_head
from geminga.wire.pulsar.metadata import encode_entry

T = TypeVar("T")
Type = pb.BaseCommand

#: Virtual seconds a client waits for an answer.
PATIENCE_S = 60.0
TOPIC = "persistent://public/default/topic"


class MemoryTransport(asyncio.Transport):
    """What a connection writes, as a list; reading and closing as the loop's own transports do it."""

    def __init__(self, peername: tuple[str, int] = ("127.0.0.1", 40000)) -> None:
        super().__init__({"peername": peername})
        self.protocol: asyncio.Protocol | None = None
        self.written: list[bytes] = []
        self.is_reading_paused = False
        self.buffered_bytes = 0
        self.on_write: Callable[[bytes], None] = self.written.append
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self.on_write(bytes(data))

    def writelines(self, list_of_data) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return self.buffered_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            assert self.protocol is not None
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class Client:
    """One connection of a client that checks nothing by itself."""

    def __init__(
        self,
        broker: Broker,
        port: int = 40000,
        *,
        turn_commands_max: int = TURN_COMMANDS_MAX,
        address: str = "127.0.0.1",
    ) -> None:
        self.broker = broker
        self.transport = MemoryTransport((address, port))
        self.transport.on_write = self._on_write
        self.connection = broker.new_connection(turn_commands_max=turn_commands_max)
        self.transport.protocol = self.connection
        self.received: deque[tuple[pb.BaseCommand, bytes]] = deque()
        self._decoder = FrameDecoder(1 << 30)
        self._news = asyncio.Event()
        self._request_id = 0
        self.connection.connection_made(self.transport)

    def _on_write(self, data: bytes) -> None:
        for command, payload in self._decoder.feed(data):
            self.received.append((decode_command(command), payload))
        self._news.set()

    @property
    def is_closed(self) -> bool:
        return self.transport.is_closing()

    def next_request_id(self) -> int:
        self._request_id += 1
        return self._request_id

    def send_bytes(self, data: bytes) -> None:
        self.connection.data_received(data)

    def send(self, command: pb.BaseCommand) -> None:
        self.send_bytes(encode_command(command))

    async def wait_for_news(self) -> None:
        """Until something was received that nobody took yet."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.received:
                self._news.clear()
                await self._news.wait()

    async def expect(self, kind: int) -> pb.BaseCommand:
        """The next command of this kind; others before it are dropped, except errors."""
        return (await self.expect_with_payload(kind))[0]

    async def expect_with_payload(self, kind: int) -> tuple[pb.BaseCommand, bytes]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                while self.received:
                    command, payload = self.received.popleft()
                    if command.type == kind:
                        return command, payload
                    assert command.type != Type.ERROR, str(command)
                await self.wait_for_news()

    async def connect(self, role: str = "", original: str = "") -> pb.CommandConnected:
        """``role``: what it says it is (:class:`support.house.deciding.TakenAtTheirWord`), for ``original``."""
        request = pb.CommandConnect(client_version="test", protocol_version=21)
        if role:
            request.auth_method_name, request.auth_data = "word", role.encode()
        if original:
            request.original_principal = original
        self.send(pb.BaseCommand(type=Type.CONNECT, connect=request))
        return (await self.expect(Type.CONNECTED)).connected

    def request_producer(self, topic: str = TOPIC, producer_id: int = 1, **fields) -> int:
        request_id = self.next_request_id()
        request = pb.CommandProducer(topic=topic, producer_id=producer_id, request_id=request_id, **fields)
        self.send(pb.BaseCommand(type=Type.PRODUCER, producer=request))
        return request_id

    async def create_producer(self, topic: str = TOPIC, producer_id: int = 1, **fields) -> pb.CommandProducerSuccess:
        self.request_producer(topic, producer_id, **fields)
        return (await self.expect(Type.PRODUCER_SUCCESS)).producer_success

    async def close_producer(self, producer_id: int = 1) -> None:
        request = pb.CommandCloseProducer(producer_id=producer_id, request_id=self.next_request_id())
        self.send(pb.BaseCommand(type=Type.CLOSE_PRODUCER, close_producer=request))
        await self.expect(Type.SUCCESS)

    def send_message(self, sequence_id: int, payload: bytes = b"payload", producer_id: int = 1, **fields) -> None:
        self.send_bytes(send_frame(sequence_id, payload, producer_id, **fields))

    async def receipt(self) -> pb.CommandSendReceipt:
        return (await self.expect(Type.SEND_RECEIPT)).send_receipt

    async def publish(self, sequence_id: int, payload: bytes = b"payload", producer_id: int = 1) -> tuple[int, int]:
        """(ledger id, entry id) of a message sent now."""
        self.send_message(sequence_id, payload, producer_id)
        receipt = await self.receipt()
        assert receipt.sequence_id == sequence_id
        return receipt.message_id.ledgerId, receipt.message_id.entryId

    async def error(self) -> pb.CommandError:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                while self.received:
                    command, _ = self.received.popleft()
                    if command.type == Type.ERROR:
                        return command.error
                await self.wait_for_news()

    async def check_error(self, code: int, words: str) -> None:
        """Raises AssertionError unless the next error is of that code and says these words."""
        error = await self.error()
        assert error.error == code
        assert words in error.message

    def request_subscribe(self, topic: str = TOPIC, consumer_id: int = 1, **fields) -> None:
        request = pb.CommandSubscribe(
            topic=topic,
            subscription=fields.pop("subscription", "sub"),
            subType=fields.pop("subType", pb.CommandSubscribe.Exclusive),
            consumer_id=consumer_id,
            request_id=self.next_request_id(),
            initialPosition=pb.CommandSubscribe.Earliest,
            **fields,
        )
        self.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))

    async def subscribe(self, topic: str = TOPIC, consumer_id: int = 1, permits: int = 1000, **fields) -> None:
        self.request_subscribe(topic, consumer_id, **fields)
        await self.expect(Type.SUCCESS)
        self.flow(permits, consumer_id)

    def flow(self, permits: int, consumer_id: int = 1) -> None:
        flow = pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)
        self.send(pb.BaseCommand(type=Type.FLOW, flow=flow))

    def lose(self) -> None:
        """The connection breaks."""
        self.transport.close()


def send_frame(sequence_id: int, payload: bytes = b"payload", producer_id: int = 1, **fields) -> bytes:
    """A SEND frame of one message; ``entry``: as it stands instead."""
    producer_name = fields.pop("producer_name", "producer")
    metadata_fields = {"publish_time": 1, **fields.pop("metadata", {})}
    metadata = pb.MessageMetadata(producer_name=producer_name, sequence_id=sequence_id, **metadata_fields)
    entry = fields.pop("entry", None) or encode_entry(metadata, payload)
    send = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id, **fields)
    command = pb.BaseCommand(type=Type.SEND, send=send).SerializeToString()
    return encode_frame_head(command, len(entry)) + entry


class BrokerWorld:
    """A broker, what is below it, and its clients."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        ledger_config: ManagedLedgerConfig,
        *,
        server: MemoryMetadata | None = None,
        store: MemoryMetadataStore | DividedMetadataStore | None = None,
        bookie: MemoryBookie | LocalBookie | None = None,
        ownership: Ownership | None = None,
        access: Access = OPEN,
        bookies: int = 1,
        is_shared: bool = False,
        telemetry: Traces | None = None,
        lake_store: LakeStore | None = None,
        sharing: Callable[[Resources], SharingClusters] | None = None,
    ) -> None:
        """``server`` (or a ``store`` on it) and ``bookie``: the storage of a broker before; else new and empty.

        ``ownership``: which topics are the broker's; None: all. ``bookies``: so many. ``is_shared``: another broker may
        be there that does not know yet that it lost its topics. ``telemetry``: spans. ``lake_store``: where
        ledgers are offloaded to. ``sharing``: who has its configuration in ``store``, too.
        """
        runtime = replace(runtime, threads=SimThreads(inline=True))
        self.lake_store = lake_store
        self.telemetry = telemetry
        self.sharing = sharing
        self.is_shared = is_shared
        self.ownership = ownership
        self.access = access
        self.runtime = runtime
        self.config = config
        self.ledger_config = ledger_config
        self.metadata = store or MemoryMetadataStore(runtime, server)
        self.bookie = bookie or MemoryBookie()
        self.more_bookies = {f"bookie-{number}": MemoryBookie() for number in range(2, bookies + 1)}
        self.resources = Resources(self.metadata)
        self._ports = 40000
        self.broker = self._new_broker()

    def _new_broker(self) -> Broker:
        pool = LocalBookiePool(dict(self._bookies()))
        bookkeeper = BookKeeper(self.runtime, self.metadata, pool, BookKeeperConfig())
        self.ledgers = ManagedLedgerFactory(
            self.runtime,
            self.metadata,
            bookkeeper,
            self.ledger_config,
            is_shared=self.is_shared,
            open_lake_store=None if self.lake_store is None else self._open_lake,
        )
        return Broker(
            self.runtime,
            self.metadata,
            self.ledgers,
            self.config,
            self.resources,
            version="test",
            ownership=self.ownership,
            access=self.access,
            telemetry=self.telemetry,
            sharing=None if self.sharing is None else self.sharing(self.resources),
        )

    def _bookies(self) -> Mapping[str, MemoryBookie | LocalBookie]:
        return {"bookie": self.bookie, **self.more_bookies}

    def _open_lake(self, driver: str, properties: Mapping[str, str]) -> LakeStore:
        del driver, properties
        assert self.lake_store is not None
        return self.lake_store

    async def start(self) -> None:
        setup = ClusterSetup(
            "standalone",
            {"brokerServiceUrl": "pulsar://broker:6650"},
            transaction_coordinators=2 if self.config.transaction_coordinator_enabled else 0,
        )
        await initialize_cluster(self.resources, setup)
        await self.broker.start(ENDPOINTS)

    async def restart(self) -> None:
        """Stop cleanly and start again on the same storage."""
        await self.stop()
        self.broker = self._new_broker()
        await self.broker.start(ENDPOINTS)

    async def stop(self) -> None:
        await self.broker.close()
        await self.ledgers.close()

    @property
    def topic(self) -> PersistentTopic:
        """:data:`TOPIC`, which is loaded."""
        topic = self.broker.topics[TOPIC]
        assert isinstance(topic, PersistentTopic)
        return topic

    def metadata_nodes(self, below: str = "/") -> dict[str, tuple[bytes, int]]:
        """Value and version of each, by path."""
        tree = self.metadata.server.tree
        found: dict[str, tuple[bytes, int]] = {}
        for name in tree.children(below):
            path = f"{below.rstrip('/')}/{name}"
            node = tree.get(path)
            if node is not None:
                found[path] = (node.value, node.stat.version)
            found.update(self.metadata_nodes(path))
        return found

    async def client(self, role: str = "", original: str = "", *, turn_commands_max: int = TURN_COMMANDS_MAX) -> Client:
        self._ports += 1
        client = Client(self.broker, self._ports, turn_commands_max=turn_commands_max)
        await client.connect(role, original)
        return client

    async def publisher(self, topic: str = TOPIC, producer_id: int = 1, **fields) -> Client:
        """A client with a producer of the topic."""
        client = await self.client()
        await client.create_producer(topic, producer_id, **fields)
        return client

    async def subscriber(self, topic: str = TOPIC, consumer_id: int = 1, permits: int = 1000, **fields) -> Client:
        """A client with a consumer of the topic, that may be sent so many messages."""
        client = await self.client()
        await client.subscribe(topic, consumer_id, permits, **fields)
        return client


ENDPOINTS = [
    Endpoint("internal", "pulsar://broker:6650", "", "http://broker:8080", ""),
    Endpoint("external", "pulsar://example.org:7000", "pulsar+ssl://example.org:7001"),
]


def run_with_broker(
    scenario: Callable[[BrokerWorld], Awaitable[T]],
    *,
    ledger_config: ManagedLedgerConfig | None = None,
    ownership: Ownership | None = None,
    access: Access = OPEN,
    seed: int = 0,
    bookie: MemoryBookie | None = None,
    bookies: int = 1,
    telemetry: Traces | None = None,
    lake_store: LakeStore | None = None,
    **settings,
) -> T:
    """Run ``scenario`` with a started broker in virtual time; it is stopped afterwards."""

    async def main(world: sim.SimWorld) -> T:
        async def on_node(node: sim.SimNode) -> T:
            broker_world = BrokerWorld(
                node.runtime,
                BrokerConfig(**settings),
                ledger_config or ManagedLedgerConfig(),
                ownership=ownership,
                access=access,
                bookie=bookie,
                bookies=bookies,
                telemetry=telemetry,
                lake_store=lake_store,
            )
            await broker_world.start()
            result = await scenario(broker_world)
            await broker_world.stop()
            return result

        return await world.node("broker").run(on_node)

    return sim.run(main, seed=seed)
