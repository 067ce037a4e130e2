"""A broker, a proxy that does to connections whatever networks do, and clients of ours on nodes of their own.

Clients reach the broker through the proxy only: lookup gives the proxy's address. The proxy cuts at any byte, goes
silent in the middle, or says things no broker says; which, and after how many bytes, is seeded per connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import geminga.client as gc
from geminga import sim
from geminga.bookkeeper import BookKeeper, BookKeeperConfig
from geminga.bookkeeper.local_pool import LocalBookiePool
from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.composition.service import Broker
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.connection.connection import TURN_COMMANDS_MAX, Connection
from geminga.broker.ownership.endpoints import Endpoint
from geminga.broker.ownership.ports import HERE, Owner, Unknown
from geminga.broker.ownership.sole import SoleOwnership
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.managed_ledger import ManagedLedgerConfig, ManagedLedgerFactory
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn
from geminga.wire.pulsar.batch import decode_batch
from geminga.wire.pulsar.compression import decompress
from geminga.wire.pulsar.metadata import split_entry

T = TypeVar("T")

PORT = 6650
URL = f"pulsar://proxy:{PORT}"
#: Of transactions, where the broker has them.
COORDINATORS = 3
#: Short times, so that faults are noticed within some virtual seconds.
CLIENT: gc.ClientArguments = {
    "operation_timeout_ms": 8_000,
    "connection_timeout_ms": 2_000,
    "keep_alive_interval_ms": 2_000,
    "initial_backoff_ms": 20,
    "maximum_backoff_ms": 500,
}
_ENDPOINTS = [Endpoint("internal", URL, "", "http://proxy:8080", "")]
_IMPOSSIBLE_SIZES = (b"\x7f\xff\xff\xff\x00\x00\x00\x04", b"\x00\x00\x00\x08\xff\xff\xff\xff")
FAULTS = ("none", "cut up", "cut down", "cut down", "silence", "garbage", "oversize", "refuse")
#: Labels under which a world counts what really happened, for ``Report.check``.
STRUCK = tuple(f"network.{fault}" for fault in dict.fromkeys(FAULTS) if fault != "none")
SLOW = ("broker.slow", "broker.stalled")


async def insist(world: sim.SimWorld, attempt: Callable[[], Awaitable[T]], again_s: float = 0.1) -> T:
    """What a client is asked for, again after errors that may pass."""
    while True:
        try:
            return await attempt()
        except (gc.ProducerBusy, gc.ConsumerBusy):
            pass  # the broker has not noticed yet that an attempt's connection is gone
        except gc.PulsarException as error:
            if not error.retriable:
                raise
        await world.sleep(again_s)


class Stored(NamedTuple):
    """A message as the topic has it."""

    payload: bytes
    ledger_id: int
    entry_id: int
    batch_index: int
    producer_name: str


class Until(SoleOwnership):
    """Everything is here, until it is another broker's."""

    def __init__(self) -> None:
        self.is_over = False

    async def owner_of(self, name: TopicName, *, is_authoritative: bool = False) -> Owner:
        return Unknown() if self.is_over else HERE


class BrokerOnNode:
    """A real broker over memory storage, listening on the simulated network."""

    def __init__(self, node: sim.SimNode, *, turn_commands_max: int = TURN_COMMANDS_MAX, **settings) -> None:
        self.runtime = node.runtime
        self.turn_commands_max = turn_commands_max
        self.config = BrokerConfig(**settings)
        self.metadata = MemoryMetadataStore(self.runtime)
        self.bookie = MemoryBookie()
        self.restarts = 0
        self.broker = self._new_broker()

    def _new_broker(self) -> Broker:
        pool = LocalBookiePool({"bookie": self.bookie})
        bookkeeper = BookKeeper(self.runtime, self.metadata, pool, BookKeeperConfig())
        self.ledgers = ManagedLedgerFactory(self.runtime, self.metadata, bookkeeper, ManagedLedgerConfig())
        self._ownership = Until()
        return Broker(
            self.runtime,
            self.metadata,
            self.ledgers,
            self.config,
            Resources(self.metadata),
            version="test",
            ownership=self._ownership,
        )

    async def start(self) -> None:
        coordinators = COORDINATORS if self.config.transaction_coordinator_enabled else 0
        setup = ClusterSetup("standalone", {"brokerServiceUrl": URL}, transaction_coordinators=coordinators)
        await initialize_cluster(self.broker.resources, setup)
        await self.broker.start(_ENDPOINTS)
        await self.runtime.network.listen(self._new_connection, "0.0.0.0", PORT)

    def _new_connection(self) -> Connection:
        return self.broker.new_connection(turn_commands_max=self.turn_commands_max)

    async def abandon(self) -> None:
        """Cut all connections without a word; another broker takes over and fences what this one still writes.

        It opens nothing any more: it would take topics away from the other one for ever.
        """
        self.restarts += 1
        abandoned = self.broker
        self._ownership.is_over = True
        self.broker = self._new_broker()
        for connection in list(abandoned.connections.open):
            connection.close("the broker is gone")
        await self.broker.start(_ENDPOINTS)

    async def restart(self) -> None:
        """Stop cleanly, come back on the same storage."""
        self.restarts += 1
        await self.broker.close()
        await self.ledgers.close()
        self.broker = self._new_broker()
        await self.broker.start(_ENDPOINTS)

    async def be_slow(self, world: sim.SimWorld, seconds: float) -> None:
        """For some time the broker's answers trickle, or it stalls: longer than clients wait for a sign of life."""
        node, proxy = world.node("broker"), world.node("proxy")
        if world.rng("slow", self.restarts, world.now).random() < 0.5:
            world.points.hits["broker.stalled"] += 1
            world.pause(node, seconds)
            return
        world.points.hits["broker.slow"] += 1
        world.network.set_bandwidth(node, proxy, 2000)
        try:
            await world.sleep(seconds)
        finally:
            world.network.set_bandwidth(node, proxy, None)

    async def messages(self, topic: str) -> list[Stored]:
        """Everything that is stored, in order."""
        loaded = await self.broker.registry.get(TopicName.parse(topic), create=True)
        ledger = loaded.ledger
        found: list[Stored] = []
        chunks: dict[str, list[bytes]] = {}
        position = ledger.ledgers.first_position
        while position <= ledger.extent.last_confirmed_position:
            entries = await ledger.reader.read_range(position, 1000, 1 << 30)
            if not entries:
                break
            for entry in entries:
                found += _messages_of(entry.data, entry.ledger_id, entry.entry_id, chunks)
            position = ledger.ledgers.next_position(Position(entries[-1].ledger_id, entries[-1].entry_id))
        return found


def _messages_of(data: bytes, ledger_id: int, entry_id: int, chunks: dict[str, list[bytes]]) -> list[Stored]:
    metadata, offset = split_entry(data)
    assert metadata is not None
    payload = data[offset:]
    name = metadata.producer_name
    if metadata.num_chunks_from_msg > 1:
        if metadata.chunk_id == 0:
            chunks[metadata.uuid] = []
        parts = chunks.get(metadata.uuid)
        if parts is None or metadata.chunk_id > len(parts):
            return []  # its beginning never came: consumers drop it
        if metadata.chunk_id == len(parts):
            parts.append(payload)
        if metadata.chunk_id < metadata.num_chunks_from_msg - 1:
            return []
        payload = b"".join(parts)
        assert len(payload) == metadata.total_chunk_msg_size
    if metadata.compression:
        payload = decompress(metadata.compression, payload, metadata.uncompressed_size)
    if not metadata.HasField("num_messages_in_batch"):
        return [Stored(payload, ledger_id, entry_id, -1, name)]
    batch = decode_batch(payload, metadata.num_messages_in_batch)
    return [Stored(one, ledger_id, entry_id, index, name) for index, (_, one) in enumerate(batch)]


class _Side(asyncio.Protocol):
    """One end of a proxied connection."""

    def __init__(self, relay: _Relay, direction: str) -> None:
        self.relay = relay
        self.direction = direction
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport) -> None:
        self.transport = transport
        if self.direction == "up":
            self.relay.accepted()

    def data_received(self, data: bytes) -> None:
        self.relay.passed(self.direction, data)

    def connection_lost(self, exc) -> None:
        self.relay.lost(self)


class _Relay:
    """A connection from a client ("up" are its bytes) to the broker, with one fault."""

    def __init__(self, proxy: HostileProxy) -> None:
        self.proxy = proxy
        #: What happens to it, and after how many bytes.
        self.fault, self.left = proxy.next_fault()
        self.client = _Side(self, "up")
        self.broker = _Side(self, "down")
        self.waiting: list[bytes] = []
        self.is_silent = False

    def accepted(self) -> None:
        if self.fault == "refuse":
            self.proxy.struck(self.fault)
            self.client.transport.abort()
            return
        spawn(self._connect(), name="proxy connects")

    async def _connect(self) -> None:
        try:
            await self.proxy.runtime.network.connect(lambda: self.broker, "broker", PORT)
        except OSError:
            self.client.transport.abort()
            return
        for data in self.waiting:
            self.broker.transport.write(data)

    def passed(self, direction: str, data: bytes) -> None:
        if self.is_silent:
            return
        if direction == self._fault_direction():
            if len(data) > self.left:
                self._forward(direction, data[: self.left])
                self._strike()
                return
            self.left -= len(data)
        self._forward(direction, data)

    def _fault_direction(self) -> str:
        return {"none": "", "refuse": "", "cut up": "up"}.get(self.fault, "down")

    def _forward(self, direction: str, data: bytes) -> None:
        if direction == "down":
            self.client.transport.write(data)
        elif self.broker.transport is None:
            self.waiting.append(data)
        else:
            self.broker.transport.write(data)

    def _strike(self) -> None:
        self.proxy.struck(self.fault)
        rng = self.proxy.rng
        if self.fault == "silence":
            self.is_silent = True
        elif self.fault == "garbage":
            self.is_silent = True
            self.client.transport.write(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 200))))
        elif self.fault == "oversize":
            self.is_silent = True
            self.client.transport.write(rng.choice(_IMPOSSIBLE_SIZES))
        else:
            self.close()

    def close(self) -> None:
        for side in (self.client, self.broker):
            if side.transport is not None:
                side.transport.abort()

    def lost(self, side: _Side) -> None:
        other = self.broker if side is self.client else self.client
        # A broker that is gone says so, unless the connection is one of those that hear nothing.
        if other.transport is not None and not (self.is_silent and side is self.broker):
            other.transport.close()


class HostileProxy:
    """See the module's docstring."""

    def __init__(self, world: sim.SimWorld, node: sim.SimNode) -> None:
        self.runtime = node.runtime
        self.rng = world.rng("proxy")
        self._points = world.points
        #: New connections may get a fault.
        self.is_hostile = True
        #: Faults of the next connections, before those that are drawn.
        self.planned: list[tuple[str, int]] = []

    async def start(self) -> None:
        await self.runtime.network.listen(lambda: _Relay(self).client, "0.0.0.0", PORT)

    def next_fault(self) -> tuple[str, int]:
        """What happens to the next connection, and after how many bytes."""
        if self.planned:
            return self.planned.pop(0)
        fault = self.rng.choice(FAULTS) if self.is_hostile else "none"
        # Often within the handshake, sometimes far into the data.
        return fault, self.rng.randrange(self.rng.choice([120, 120, 600, 3000, 20_000]))

    def struck(self, fault: str) -> None:
        """A fault happened, not only was meant to."""
        self._points.hits[f"network.{fault}"] += 1
