"""A consumer on a connection: what it may be sent, what it was sent, and its counters.

Created by SUBSCRIBE, it lives until CLOSE_CONSUMER, the end of the connection, or a disconnect by the broker
(seek, unload, deletion). Counters are plain ints that the statistics read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.shared import Candidate
from geminga.broker.subscription.messages import position_from
from geminga.broker.subscription.ports import SubscriptionServices, SubscriptionTopic
from geminga.broker.subscription.rates import Rates
from geminga.model import EARLIEST, LATEST, Position
from geminga.model.errors import ConsumerBusyError
from geminga.runtime import Buffer, Clock, Contained, Part, Turns
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.entry_head import HEADS_PROPERTY, HEADS_WANTED, entry_head
from geminga.wire.pulsar.hot import encode_message_head
from geminga.wire.pulsar.message_head import MessageHeadEncoder
from geminga.wire.pulsar.metadata import MAGIC_BROKER_ENTRY_METADATA, strip_broker_entry_metadata, texts_of

if TYPE_CHECKING:
    from geminga.broker.core.dispatch.redelivery import RedeliveryTracker
    from geminga.broker.subscription.limits import ConsumerCounts

Exclusive: Final = pb.CommandSubscribe.Exclusive
Shared: Final = pb.CommandSubscribe.Shared
Failover: Final = pb.CommandSubscribe.Failover
Key_Shared: Final = pb.CommandSubscribe.Key_Shared
#: Types whose consumers acknowledge one by one and hold pending acknowledgments.
INDIVIDUAL_ACK_TYPES: Final = frozenset((Shared, Key_Shared))
#: "No epoch": the client does not use consumer epochs (Pulsar's DEFAULT_CONSUMER_EPOCH).
NO_EPOCH: Final = -1
#: A consumer that has just joined hears whether it is active with its first FLOW, else after this many seconds.
#: Clients may know the consumer only after they have read the answer to SUBSCRIBE (the Go client drops what comes
#: before); FLOW shows that they do.
FIRST_ACTIVE_CHANGE_S: Final = 1.0
#: Consumers that are told to go in one turn of the loop: a subscription may have ten thousand.
SENT_AWAY_A_TURN: Final = 100


class ConsumerOutput(Protocol):
    """What is written to its client."""

    @property
    def is_writable(self) -> bool:
        """False while the client takes less than it is sent."""
        ...

    @property
    def is_held(self) -> bool:
        """Whether dispatchers must not write even what they have read: clients take too little."""
        ...

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when it is writable again."""
        ...

    def write_many(self, parts: list[Buffer]) -> None:
        """Send frames with one call of the transport."""
        ...

    def write_soon(self, data: bytes) -> None:
        """Send with everything else of this turn of the loop."""
        ...


class ConsumerMembers(Protocol):
    """Consumers of its connection."""

    @property
    def consumers(self) -> MutableMapping[int, Consumer]:
        """By the client's ids."""
        ...

    def consumer_departs(self, consumer_id: int) -> Callable[[], None]:
        """A consumer is gone, and its client will be told; what is returned is called then."""
        ...


class ConsumerConnection(Protocol):
    """The client's connection, as its consumers use it."""

    @property
    def peer(self) -> str:
        """Address of the client, ``/127.0.0.1:1234``."""
        ...

    @property
    def client_version(self) -> str:
        """What the client calls itself."""
        ...

    @property
    def output(self) -> ConsumerOutput:
        """What is written to it."""
        ...

    @property
    def members(self) -> ConsumerMembers:
        """Who consumes on it."""
        ...

    @property
    def supports_broker_entry_metadata(self) -> bool:
        """Whether the client understands broker entry metadata in front of an entry."""
        ...

    @property
    def permits_are_messages(self) -> bool:
        """Whether its consumers are to be sent no batches beyond their permits."""
        ...

    def check_liveness(self) -> Awaitable[bool]:
        """Whether the client answers; its connection is closed if not."""
        ...

    def send_command(self, command: pb.BaseCommand) -> None:
        """Send a command without payload."""
        ...

    #: The advertised listener through which it came; empty: the default one.
    listener: str


class ConsumerSubscription(Part, Protocol):
    """The subscription of a consumer, persistent or not."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def topic(self) -> SubscriptionTopic:
        """Its topic."""
        ...

    @property
    def services(self) -> SubscriptionServices:
        """What it uses of the broker."""
        ...

    @property
    def consumers(self) -> Sequence[Consumer]:
        """The connected consumers."""
        ...

    def now_ms(self) -> int:
        """Wall-clock time of the broker."""
        ...

    def wake(self) -> None:
        """A consumer can be sent something."""
        ...

    def joined(self) -> None:
        """As :meth:`wake`, when a consumer joined."""
        ...

    def detach(self, consumer: Consumer) -> None:
        """``consumer`` is gone."""
        ...

    async def delete(self, force: bool = False) -> None:
        """Remove it. PreconditionFailedError if it has consumers, unless ``force``."""


class Consumer(ConsumerState):
    """See the module. Hashes and compares by identity."""

    __slots__ = (
        "_first_change",
        "_heads",
        "_is_known",
        "_is_waiting",
        "_output",
        "bytes_out",
        "chunks_out",
        "compacted_from",
        "connected_since_ms",
        "connection",
        "consumer_id",
        "counts",
        "epoch",
        "first_flow_ms",
        "first_sent_ms",
        "is_auto_consume",
        "is_closed",
        "is_counting",
        "is_durable",
        "key_shared_meta",
        "last_acked_ms",
        "last_consumed_ms",
        "last_flow_ms",
        "messages_acked",
        "messages_out",
        "messages_redelivered",
        "metadata",
        "partition",
        "rates",
        "reads_compacted",
        "subscription",
        "type",
    )

    def __init__(
        self,
        connection: ConsumerConnection,
        subscription: ConsumerSubscription,
        request: pb.CommandSubscribe,
        *,
        name: str,
        partition: int,
        now_ms: int,
    ) -> None:
        super().__init__(name, priority_level=request.priority_level)
        self.connection = connection
        if connection.permits_are_messages:
            self.batches_most = 0
        self._output = connection.output
        self.subscription = subscription
        self.consumer_id: int = request.consumer_id
        self.type: pb.CommandSubscribe.SubType = request.subType
        #: Grows with each redelivery the client asked for; messages of an older one are dropped by the client.
        self.epoch: int = request.consumer_epoch if request.HasField("consumer_epoch") else NO_EPOCH
        self.key_shared_meta: pb.KeySharedMeta | None = (
            request.keySharedMeta if request.HasField("keySharedMeta") else None
        )
        self.metadata: dict[str, str] = texts_of(request.metadata)
        #: Index of the topic's partition, -1 for none.
        self.partition = partition
        #: Reads with whatever schema a message has, so that its coming says nothing about the topic's schema.
        self.is_auto_consume = request.HasField("schema") and request.schema.type == pb.Schema.AutoConsume
        #: A reader that only counts: it is sent the heads of entries.
        self.is_counting = (
            self.metadata.get(HEADS_PROPERTY) == HEADS_WANTED and not request.durable and self.type == Exclusive
        )
        #: It wants the newest message of each key only, as far as the topic was compacted.
        self.reads_compacted = request.read_compacted and self.type in (Exclusive, Failover)
        #: Where such a reader asked to begin, which may be before all that the log has; None: it did not say.
        self.is_durable: bool = request.durable
        self.compacted_from = _start_of(request) if self.reads_compacted and not request.durable else None
        self.connected_since_ms = now_ms
        self.is_closed = False
        #: Where it is counted since it joined; None: nowhere.
        self.counts: ConsumerCounts | None = None
        self.messages_out = 0
        self.bytes_out = 0
        #: Entries sent that were parts of larger messages.
        self.chunks_out = 0
        self.messages_acked = 0
        self.messages_redelivered = 0
        self.last_acked_ms = 0
        self.last_consumed_ms = 0
        self.last_flow_ms = 0
        #: When it was sent its first message, and asked for it; 0: not yet.
        self.first_sent_ms = 0
        self.first_flow_ms = 0
        #: Rates between scrapes, kept by the statistics.
        self.rates: Rates | None = None
        #: Made when the first message is sent.
        self._heads: MessageHeadEncoder | None = None
        self._is_waiting = False
        #: The client has shown that it knows this consumer, or has had the time for it.
        self._is_known = False
        #: Until it may be told: whether it is active, and when it is told at the latest.
        self._first_change: tuple[bool, asyncio.TimerHandle] | None = None

    @property
    def begins_at_end(self) -> bool:
        """Whether a reader of compacted messages wants what comes from now on."""
        return self.reads_compacted and not self.is_durable and self.compacted_from in (None, LATEST)

    def can_receive(self) -> bool:
        """Whether it has permits, is not blocked, and its connection takes more; else dispatch resumes by itself."""
        if self._permits <= 0 or self.was_blocked:
            return False
        if self._output.is_writable:
            return True
        if not self._is_waiting:
            self._is_waiting = True
            self._output.on_writable(self._on_writable)
        return False

    def flow(self, permits: int) -> None:
        """FLOW: the client takes ``permits`` more messages."""
        self.permits += permits
        self.last_flow_ms = self.subscription.now_ms()
        if not self.first_flow_ms:
            self.first_flow_ms = self.last_flow_ms
        if not self._is_known:
            self._is_known = True
            self._send_first_change()
        self.subscription.wake()

    def send(self, entries: Sequence[Candidate], *, redeliveries: RedeliveryTracker | None, now_ms: int) -> None:
        """Write MESSAGE frames for ``entries`` with one call; their permits are the dispatcher's business."""
        parts: list[Buffer] = []
        heads = self._heads
        if heads is None:
            epoch = None if self.epoch == NO_EPOCH else self.epoch
            heads = self._heads = MessageHeadEncoder(self.consumer_id, self.partition, epoch)
        encode = heads.encode
        counts = redeliveries or None
        keeps_broker_metadata = self.connection.supports_broker_entry_metadata
        is_counting = self.is_counting
        message_count = byte_count = chunk_count = 0
        for entry in entries:
            data = entry.data
            if not keeps_broker_metadata and data[:2] == MAGIC_BROKER_ENTRY_METADATA:
                data = strip_broker_entry_metadata(data)
            if is_counting:
                data = entry_head(data)
            ledger_id, entry_id = position = entry.position
            size = len(data)
            count = 0 if counts is None else counts.count(position)
            if not count and entry.ack_set is None:
                parts.append(encode(ledger_id, entry_id, size))
            else:
                parts.append(self._rare_head(position, size, count, entry.ack_set))
            parts.append(data)
            message_count += entry.message_count
            byte_count += size
            if entry.is_chunk:
                chunk_count += 1
        self.messages_out += message_count
        self.bytes_out += byte_count
        self.chunks_out += chunk_count
        self.last_consumed_ms = now_ms
        if not self.first_sent_ms:
            self.first_sent_ms = now_ms
        self._output.write_many(parts)

    def start_epoch(self, epoch: int) -> None:
        """The client counts a redelivery: messages carry ``epoch`` from now on."""
        self.epoch = epoch
        self._heads = None

    def _rare_head(self, position: Position, size: int, count: int, ack_set: Sequence[int] | None) -> bytes:
        epoch = None if self.epoch == NO_EPOCH else self.epoch
        return encode_message_head(self.consumer_id, *position, self.partition, size, count, ack_set, epoch)

    def notify_active_change(self, *, is_active: bool) -> None:
        """ACTIVE_CONSUMER_CHANGE, when the client can be sure to know the consumer."""
        if self._is_known:
            self._send_active_change(is_active)
            return
        if self._first_change is not None:
            timer = self._first_change[1]
        else:
            timer = asyncio.get_running_loop().call_later(FIRST_ACTIVE_CHANGE_S, self._first_change_due)
        self._first_change = (is_active, timer)

    def _first_change_due(self) -> None:
        with Contained(self.subscription, "the news of the active consumer", is_last=True):
            self._send_first_change()

    def _send_first_change(self) -> None:
        if self._first_change is None:
            return
        is_active, timer = self._first_change
        timer.cancel()
        self._first_change = None
        self._is_known = True
        self._send_active_change(is_active)

    def _send_active_change(self, is_active: bool) -> None:
        self.connection.send_command(
            pb.BaseCommand(
                type=pb.BaseCommand.ACTIVE_CONSUMER_CHANGE,
                active_consumer_change=pb.CommandActiveConsumerChange(
                    consumer_id=self.consumer_id, is_active=is_active
                ),
            )
        )

    def notify_end_of_topic(self) -> None:
        """REACHED_END_OF_TOPIC."""
        self.connection.send_command(
            pb.BaseCommand(
                type=pb.BaseCommand.REACHED_END_OF_TOPIC,
                reachedEndOfTopic=pb.CommandReachedEndOfTopic(consumer_id=self.consumer_id),
            )
        )

    def disconnect(self) -> None:
        """Tell the client to look the topic up and subscribe again; what it holds is given back."""
        if self.is_closed:
            return
        self.notify_closed()
        self.close()

    def notify_closed(self) -> None:
        """CLOSE_CONSUMER."""
        farewell = partial(commands.close_consumer, self.consumer_id, commands.UNREQUESTED)
        self.subscription.topic.life.send_away(self.connection, farewell, self._departs)

    def _departs(self) -> Callable[[], None]:
        return self.connection.members.consumer_departs(self.consumer_id)

    def connection_lost(self) -> None:
        """The connection ended."""
        self.close()

    def close(self) -> None:
        """It is gone: the client closed it, or its connection ended. Doing it twice is fine."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._first_change is not None:
            self._first_change[1].cancel()
            self._first_change = None
        if self.connection.members.consumers.get(self.consumer_id) is self:
            del self.connection.members.consumers[self.consumer_id]
        if self.counts is not None:
            self.counts.left(self)
            self.counts = None
        self.subscription.detach(self)

    def _on_writable(self) -> None:
        self._is_waiting = False
        if not self.is_closed:
            self.may_receive()
            self.subscription.wake()


async def send_away(consumers: Iterable[Consumer], clock: Clock) -> None:
    """Disconnect them, some in each turn of the loop; all at once where who asked is called off."""
    await Turns(clock, steps_max=SENT_AWAY_A_TURN).with_each(Consumer.disconnect, consumers)


def check_key_policy(present: pb.KeySharedMeta | None, wanted: pb.KeySharedMeta | None) -> None:
    """Raise ConsumerBusyError where a Key_Shared consumer that wants the one is to join those that have the other."""
    present, wanted = present or pb.KeySharedMeta(), wanted or pb.KeySharedMeta()
    if (
        wanted.keySharedMode != present.keySharedMode
        or wanted.allowOutOfOrderDelivery != present.allowOutOfOrderDelivery
    ):
        raise ConsumerBusyError("Subscription has a different key shared policy")


def _start_of(request: pb.CommandSubscribe) -> Position | None:
    if request.start_message_rollback_duration_sec > 0:
        return None
    if request.HasField("start_message_id"):
        return position_from(request.start_message_id)
    return EARLIEST if request.initialPosition == pb.CommandSubscribe.Earliest else None
