"""Subscriptions on a real managed ledger in memory, with a connection that writes down what it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from geminga import sim
from geminga.bookkeeper.client import BookKeeper
from geminga.bookkeeper.local_pool import LocalBookiePool
from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.core.delayed.delivery import TopicDelays
from geminga.broker.core.dispatch.recent_candidates import RecentCandidates
from geminga.broker.core.rate_limit import Rate
from geminga.broker.handlers import subscription as handlers
from geminga.broker.policies.core.rates import TopicRates
from geminga.broker.publishing.life import TopicLife
from geminga.broker.publishing.rates import NO_THROTTLES, TopicThrottling
from geminga.broker.subscription.consumer import Consumer
from geminga.broker.subscription.due_messages import forget_acknowledged
from geminga.broker.subscription.last_message_id import NO_TAIL
from geminga.broker.subscription.limits import ConsumerCounts, TopicLimits
from geminga.broker.subscription.subscribe import create_subscription, subscribe
from geminga.managed_ledger import AppendResult, ManagedLedger, ManagedLedgerConfig, ManagedLedgerFactory
from geminga.managed_ledger.shared.entry_cache import EntryCache
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model import EARLIEST, GemingaError, Position, TopicName
from geminga.runtime import spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.frame import FrameDecoder
from geminga.wire.pulsar.metadata import encode_entry, split_entry

Sub = pb.CommandSubscribe


class Received:
    """A MESSAGE as the client sees it."""

    def __init__(self, command: pb.CommandMessage, headers_and_payload: bytes):
        metadata, offset = split_entry(headers_and_payload)
        assert metadata is not None
        self.metadata = metadata
        self.payload = headers_and_payload[offset:]
        self.text = self.payload.decode()
        self.id = command.message_id
        self.position = Position(command.message_id.ledgerId, command.message_id.entryId)
        self.redelivery_count = command.redelivery_count
        self.ack_set = list(command.ack_set)
        self.epoch = command.consumer_epoch if command.HasField("consumer_epoch") else None
        self.consumer_id = command.consumer_id


class RecordingConnection:
    """The surface of a connection; decodes every frame that is written to it."""

    def __init__(self, topic: RecordedTopic):
        self.peer = "/127.0.0.1:4711"
        #: One object plays all parts of a connection that subscriptions use.
        self.output = self.members = self
        self.client_version = "test"
        self.supports_broker_entry_metadata = False
        self.permits_are_messages = False
        self.consumers: dict[int, Consumer] = {}
        self.requests: dict[tuple[int, int], int] = {}
        self.is_closed = False
        self.is_writable = True
        self.is_held = False
        self.is_alive = True
        self.messages: list[Received] = []
        self.commands: list[pb.BaseCommand] = []
        self.write_calls = 0
        self._decoder = FrameDecoder(5 * 1024 * 1024)
        self._callbacks: list[Callable[[], None]] = []

    def write(self, data: bytes) -> None:
        for command, payload in self._decoder.feed(bytes(data)):
            decoded = pb.BaseCommand.FromString(command)
            if decoded.type == pb.BaseCommand.MESSAGE:
                self.messages.append(Received(decoded.message, payload))
            else:
                self.commands.append(decoded)

    #: At once: no turn of the loop is waited for.
    write_soon = write

    @staticmethod
    def answer_gone(consumer_id: int, answer: Callable[[], None]) -> None:
        answer()

    def write_many(self, parts: list[bytes]) -> None:
        self.write_calls += 1
        self.write(b"".join(parts))

    def send_command(self, command: pb.BaseCommand) -> None:
        self.commands.append(command)

    @staticmethod
    def told(error: GemingaError) -> str:
        return error.told

    def send_success(self, request_id: int) -> None:
        self.commands.append(
            pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess(request_id=request_id))
        )

    def send_error(self, request_id: int, error: GemingaError) -> None:
        self.commands.append(
            pb.BaseCommand(
                type=pb.BaseCommand.ERROR,
                error=pb.CommandError(request_id=request_id, error=int(error.server_error), message=str(error)),
            )
        )

    def on_writable(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def run(self, work: Coroutine[None, None, None], name: str) -> None:
        spawn(work, name=name)

    def run_in_turns(self, work: Coroutine[None, None, None]) -> None:
        spawn(work, name="long command")

    def request_ended(self, key: tuple[int, int], request_id: int) -> bool:
        return self.requests.pop(key, None) == request_id and not self.is_closed

    def check_liveness(self) -> Awaitable[bool]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(self.is_alive)
        return future

    def set_writable(self) -> None:
        self.is_writable = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def drop(self) -> None:
        """The connection ends."""
        self.is_closed = True
        for consumer in list(self.consumers.values()):
            consumer.connection_lost()

    def of_type(self, command_type: int) -> list[pb.BaseCommand]:
        return [command for command in self.commands if command.type == command_type]

    def texts(self, consumer_id: int | None = None) -> list[str]:
        return [m.text for m in self.messages if consumer_id in (None, m.consumer_id)]


class RecordedTopic:
    """A topic as subscriptions need it, over a real managed ledger."""

    def __init__(self, runtime: object, ledger: ManagedLedger, name: str, config: BrokerConfig):
        self.name = TopicName.parse(name)
        self.life = TopicLife(self.name, runtime.clock)
        self.ledger = ledger
        self.subscriptions: dict[str, object] = {}
        self.limits = TopicLimits(
            consumers=config.max_consumers_per_topic,
            consumers_per_subscription=config.max_consumers_per_subscription,
            subscriptions=config.max_subscriptions_per_topic,
        )
        self.consumer_counts = ConsumerCounts()
        self.services = SimpleNamespace(
            runtime=runtime,
            config=config,
            unacked_budget=config.new_unacked_budget(),
            has_transactions=False,
            pending_ack_logs=None,
            registrations=None,
            recent_candidates=RecentCandidates(),
            consumer_kind=None,
            ledgers=SimpleNamespace(bookkeeper=SimpleNamespace(available_count=lambda: 1, read_only_count=lambda: 0)),
        )
        self.throttles = TopicThrottling(NO_THROTTLES, runtime.clock.monotonic, self, self._published)
        self.messages_in = self.bytes_in = 0
        self.sequence_id = 0
        self.unacked_limits = config.unacked_limits
        self.ack_ranges_max: int | None = None
        self.delivery_tick_ms = config.delayed_delivery_tick_time_ms
        self._delays = TopicDelays(
            tick_ms=self.delivery_tick_ms, is_strict=config.is_delayed_delivery_deliver_at_time_strict
        )
        self.hides = ()
        self.hidden_tail = NO_TAIL
        #: Who is asked which entries are sent; set by tests of that.
        self.filters = None
        self.parts = SimpleNamespace(stats=dict, find=lambda _: None)
        self.compacted = None
        #: Set by :func:`with_topic`.
        self.bookie = MemoryBookie()
        self.cache = EntryCache(0)
        ledger.tail.add_listener(self._entries_available)

    async def get(self, name: TopicName, *, create: bool) -> RecordedTopic:
        """As a registry that has this topic alone."""
        assert name == self.name
        return self

    def _entries_available(self) -> None:
        for subscription in list(self.subscriptions.values()):
            subscription.wake()

    def _published(self) -> tuple[int, int]:
        return self.messages_in, self.bytes_in

    def hold_to(self, **rates: Rate) -> None:
        """Other rates hold from now on."""
        self.throttles.apply(TopicRates(**rates))
        for subscription in self.subscriptions.values():
            subscription.apply_rates()

    def broke(self, what: str, error: BaseException) -> None:
        raise error

    def delays(self) -> TopicDelays | None:
        return self._delays if self.services.config.delayed_delivery_enabled else None

    def forget_delays(self) -> None:
        cursors = [subscription.cursor for subscription in self.subscriptions.values()]
        forget_acknowledged(self._delays, self.ledger, cursors, self)

    async def subscribe(self, connection: RecordingConnection, request: Sub) -> Consumer:
        return await subscribe(self, connection, request)

    def connect(self) -> RecordingConnection:
        return RecordingConnection(self)

    async def create_subscription(self, name: str, position: Position = EARLIEST):
        return await create_subscription(self, name, position)

    async def publish(self, *texts: str, key: str | None = None, batch: int = 0, **fields) -> list[Position]:
        """Publish each text as an entry; with ``batch``, as a batch of that many messages (its payload is opaque)."""
        entries = []
        for text in texts:
            metadata = pb.MessageMetadata(
                producer_name="p",
                sequence_id=self.sequence_id,
                publish_time=fields.pop("publish_time", 0) or self.services.runtime.clock.wall_ms(),
                **fields,
            )
            self.sequence_id += 1
            if key is not None:
                metadata.partition_key = key
            if batch:
                metadata.num_messages_in_batch = batch
            entries.append(encode_entry(metadata, text.encode()))
        return await self.append(entries)

    async def append(self, entries: list[bytes]) -> list[Position]:
        future = asyncio.get_running_loop().create_future()
        positions: list[Position] = []

        def done(result: AppendResult) -> None:
            assert result.error is None
            positions.extend(Position(result.ledger_id, result.first_entry_id + i) for i in range(result.count))
            if len(positions) == len(entries):
                future.set_result(None)

        self.ledger.append(entries, done)
        await future
        await settle()
        return positions

    async def joined(self, sub_type: int = Sub.Shared, **fields) -> RecordingConnection:
        """A connection with a consumer, made with the ``fields`` of :meth:`join`."""
        connection = self.connect()
        await self.join(connection, sub_type, **fields)
        return connection

    async def join(
        self,
        connection: RecordingConnection,
        sub_type: int = Sub.Shared,
        *,
        consumer_id: int = 1,
        name: str = "c",
        subscription: str = "sub",
        permits: int = 1000,
        **fields,
    ) -> Consumer:
        request = Sub(
            topic=str(self.name),
            subscription=subscription,
            subType=sub_type,
            consumer_id=consumer_id,
            request_id=1,
            consumer_name=name,
            initialPosition=fields.pop("initialPosition", Sub.Earliest),
            **fields,
        )
        consumer = await self.subscribe(connection, request)
        if permits:
            handlers.handle_flow(connection, consumer_id, permits)
        await settle()
        return consumer


def acknowledge(
    connection: RecordingConnection,
    positions: Iterable[Position],
    *,
    consumer_id: int = 1,
    ack_type: pb.CommandAck.AckType = pb.CommandAck.Individual,
    ack_set: Sequence[int] = (),
    **fields: Any,
) -> None:
    """What the client of a consumer sends for entries, or for the messages of batches that ``ack_set`` leaves out."""
    ids = [pb.MessageIdData(ledgerId=p.ledger_id, entryId=p.entry_id, ack_set=ack_set) for p in positions]
    ack = pb.CommandAck(consumer_id=consumer_id, ack_type=ack_type, message_id=ids, **fields)
    raw = pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack).SerializeToString()
    handlers.handle_ack_bytes(connection, raw)


def redeliver(
    connection: RecordingConnection,
    positions: Iterable[Position] = (),
    *,
    consumer_id: int = 1,
    epoch: int | None = None,
) -> None:
    """What the client of a consumer sends that wants entries again, or all that it has without ``positions``."""
    ids = [pb.MessageIdData(ledgerId=p.ledger_id, entryId=p.entry_id) for p in positions]
    request = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id, message_ids=ids, consumer_epoch=epoch)
    handlers.handle_redeliver(connection, pb.BaseCommand(redeliverUnacknowledgedMessages=request))


async def settle(seconds: float = 0.0) -> None:
    """Let everything that is ready run, and virtual time pass."""
    loop = asyncio.get_running_loop()
    for _ in range(30):
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future
    if seconds:
        future = loop.create_future()
        loop.call_later(seconds, future.set_result, None)
        await future
        await settle()


def with_topic(
    scenario: Callable[[RecordedTopic], Coroutine[object, object, None]],
    *,
    name: str = "persistent://public/default/t",
    entries_per_ledger: int = 50_000,
    cache_size_mb: int = 32,
    mark_delete_rate: float = 1.0,
    cursor_memory_bytes: int = 1 << 30,
    seed: int = 0,
    **config: object,
) -> None:
    """Run ``scenario`` in virtual time on a fresh topic with ``config``; Failover does not wait unless told."""
    config.setdefault("active_consumer_failover_delay_ms", 0)

    async def on_node(node) -> None:
        runtime = node.runtime
        metadata = MemoryMetadataStore(runtime)
        bookie = MemoryBookie()
        bookkeeper = BookKeeper(runtime, metadata, LocalBookiePool({"b1": bookie}))
        ledgers = ManagedLedgerFactory(
            runtime,
            metadata,
            bookkeeper,
            ManagedLedgerConfig(
                max_entries_per_ledger=entries_per_ledger,
                min_rollover_minutes=0,
                cache_size_mb=cache_size_mb,
                mark_delete_rate_limit=mark_delete_rate,
            ),
        )
        ledgers.cursor_memory.limit_bytes = cursor_memory_bytes
        topic_name = TopicName.parse(name)
        ledger = await ledgers.open(topic_name.managed_ledger_name)
        ledger.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        topic = RecordedTopic(runtime, ledger, name, BrokerConfig(**config))
        topic.bookie, topic.cache = bookie, ledgers.cache
        await scenario(topic)
        for subscription in list(topic.subscriptions.values()):
            await subscription.close()
        await ledgers.close()

    async def main(world) -> None:
        await world.node("broker").run(on_node)

    sim.run(main, seed)
