"""Producers within the broker: what a request publishes goes the way of what a connection sends.

So schemas, exclusive access, rates, quotas, deduplication and limits hold for both. A :class:`TopicOutlet` is what a
connection is to producers, of one topic, for all requests that publish there at a time; each name of a producer is one
producer. All of it is gone when the last request has its answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.broker.core.producer_access import AccessMode
from geminga.broker.topic.producer import Producer
from geminga.broker.topic.publish import PublishBatch
from geminga.model.errors import GemingaError, RemoteError, TooManyRequestsError, UnavailableError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import decode_command
from geminga.wire.pulsar.frame import FrameDecoder
from geminga.wire.pulsar.metadata import encode_entry
from geminga.wire.pulsar.varint import signed64

if TYPE_CHECKING:
    from geminga.broker.publishing.publish_throttle import PublishThrottle
    from geminga.broker.rest.message_routes.core.produce_request import Outgoing
    from geminga.broker.topic.base import Topic

#: Seconds after which a message that is not known to be stored is told to be so.
STORED_S_MAX: Final = 30.0
#: Seconds that a request waits for a publish rate: before it publishes, and for its answer.
PACED_S_MAX: Final = 30.0
#: Name of producers whose requests name none, as in Pulsar.
PRODUCER_NAME: Final = "RestProducer"
#: What producers are called in statistics.
CLIENT_VERSION: Final = "Geminga-HTTP"
#: Bytes of a frame that an answer can be.
_ANSWER_BYTES_MAX: Final = 1 << 20


class Stored(NamedTuple):
    """Where a message is; -1:-1 where deduplication knows that it is there already."""

    ledger_id: int
    entry_id: int


#: What came of one message.
Outcome = Stored | GemingaError


class RefusedSendError(RemoteError):
    """The topic did not take a message; the text is the broker's."""


class _Pacing:
    """What ``ProducerPublishes`` asks: whether a rate holds what is published."""

    def __init__(self, on_free: Callable[[], None]) -> None:
        """``on_free`` is called when the last rate that held it has room again."""
        self._on_free = on_free
        self._holding: list[PublishThrottle] = []
        self._free: asyncio.Event = asyncio.Event()
        self._free.set()

    @property
    def is_held(self) -> bool:
        """Whether a rate holds it."""
        return bool(self._holding)

    async def until_free(self) -> bool:
        """Whether no rate holds it any more, within :data:`PACED_S_MAX`."""
        try:
            async with asyncio.timeout(PACED_S_MAX):
                while self._holding:  # again, where another one overdrew it meanwhile
                    await self._free.wait()
        except TimeoutError:
            return False
        return True

    def publish_is_rated(self) -> None:
        """One publish follows the other here: nothing is to be cut."""

    def hold_for_rate(self, throttle: PublishThrottle, /) -> None:
        """A rate is used up."""
        if throttle not in self._holding:
            self._holding.append(throttle)
        self._free.clear()

    def free_of_rate(self, throttle: PublishThrottle, /) -> None:
        """It has room again."""
        if throttle in self._holding:
            self._holding.remove(throttle)
        if not self._holding:
            self._free.set()
            self._on_free()

    def publish_started(self, count: int, size_bytes: int) -> None:
        """Bodies of requests are counted by the HTTP server."""

    def publish_finished(self, count: int, size_bytes: int) -> None:
        """As above."""


class _Members:
    """The producers, as ``ProducerMembers`` has them."""

    def __init__(self, closed: Callable[[int], None]) -> None:
        self.producers: MutableMapping[int, Producer] = {}
        self.waiting_producers: MutableMapping[int, Producer] = {}
        self._closed = closed

    def producer_closed_by_broker(self, producer_id: int) -> None:
        """It is sent away."""
        self.producers.pop(producer_id, None)
        self._closed(producer_id)


class _NamedProducer:
    """One producer, and what it has sent without an answer."""

    def __init__(self) -> None:
        #: Made, and used, one after the other.
        self.turn = asyncio.Lock()
        self.producer: Producer | None = None
        #: Requests that use it.
        self.users = 0
        self.last_sequence_id = -1
        #: In the order they were sent, which is that of the answers.
        self.waiting: deque[asyncio.Future[Outcome]] = deque()

    def answer(self, outcome: Outcome) -> None:
        """Of the message that waits for longest."""
        if self.waiting:
            found = self.waiting.popleft()
            if not found.done():
                found.set_result(outcome)

    def fail_all(self, error: GemingaError) -> None:
        """Nobody knows what came of those that wait."""
        while self.waiting:
            self.answer(error)


class TopicOutlet:
    """See the module; ``ProducerConnection`` of its producers."""

    listener = ""
    client_version = CLIENT_VERSION
    supports_partial_producer = False

    def __init__(self, topic: Topic, peer: str, on_unused: Callable[[TopicOutlet], None]) -> None:
        """``peer``: who came first, for the statistics. ``on_unused`` is called when nothing needs it any more."""
        self.topic = topic
        self.peer = peer
        self._on_unused = on_unused
        self.publishes = _Pacing(self._look_whether_used)
        self.members = _Members(self._closed_by_broker)
        self._by_name: dict[str, _NamedProducer] = {}
        self._by_id: dict[int, _NamedProducer] = {}
        self._last_id = 0

    @property
    def output(self) -> TopicOutlet:
        """What its producers write to."""
        return self

    def check_liveness(self) -> Awaitable[bool]:
        """A request is under way, or the producer would be gone."""
        return _yes()

    def write_soon(self, data: bytes) -> None:
        """Answers to what was published, one or several."""
        for frame, _ in FrameDecoder(_ANSWER_BYTES_MAX).feed(data):
            command = decode_command(frame)
            if command.type == pb.BaseCommand.SEND_RECEIPT:
                receipt = command.send_receipt
                self._answer(
                    receipt.producer_id,
                    Stored(signed64(receipt.message_id.ledgerId), signed64(receipt.message_id.entryId)),
                )
            elif command.type == pb.BaseCommand.SEND_ERROR:
                self._answer(command.send_error.producer_id, RefusedSendError(command.send_error.message))

    async def publish(
        self, name: str, messages: Sequence[Outgoing], sequence_ids: Sequence[int | None]
    ) -> list[Outcome]:
        """Publish in order, as producer ``name``; what came of each. Raises what keeps a producer out, and
        TooManyRequestsError while a rate is used up: nothing is stored then."""
        if not await self.publishes.until_free():
            raise TooManyRequestsError(f"a publish rate of {self.topic.name} is used up; try again later")
        named = self._by_name.setdefault(name, _NamedProducer())
        named.users += 1
        try:
            async with named.turn:
                producer = await self._connected(name, named)
                outcomes = self._send(producer, named, messages, sequence_ids)
            found = await _all_of(outcomes)
        finally:
            named.users -= 1
            if not named.users:
                self._close(name, named)
        # Who overdraws a rate waits: with its answer, for it has nothing else to send.
        await self.publishes.until_free()
        return found

    async def _connected(self, name: str, named: _NamedProducer) -> Producer:
        producer = named.producer
        if producer is not None and not producer.is_closed:
            return producer
        topic = self.topic
        self._last_id += 1
        producer = Producer(
            topic,
            self,
            producer_id=self._last_id,
            name=name,
            epoch=0,
            is_user_provided_name=True,
            access_mode=AccessMode.SHARED,
            topic_epoch=None,
            is_encrypted=False,
            metadata={},
            connected_since_ms=topic.services.runtime.clock.wall_ms(),
        )
        await topic.attendance.add(producer)
        if producer.is_closed:
            raise UnavailableError(f"{topic.name} is moving; try again")
        self.members.producers[producer.producer_id] = producer
        self._by_id[producer.producer_id] = named
        named.producer = producer
        named.last_sequence_id = max(named.last_sequence_id, producer.publishing.last_sequence_id(name))
        return producer

    def _send(
        self,
        producer: Producer,
        named: _NamedProducer,
        messages: Sequence[Outgoing],
        sequence_ids: Sequence[int | None],
    ) -> list[asyncio.Future[Outcome]]:
        entries, pairs = [], []
        for message, given in zip(messages, sequence_ids, strict=True):
            sequence_id = named.last_sequence_id + 1 if given is None else given
            named.last_sequence_id = max(named.last_sequence_id, sequence_id)
            message.metadata.producer_name = producer.name
            message.metadata.sequence_id = sequence_id
            entries.append(encode_entry(message.metadata, message.payload))
            pairs.append((sequence_id, sequence_id))
        loop = asyncio.get_running_loop()
        outcomes: list[asyncio.Future[Outcome]] = [loop.create_future() for _ in entries]
        named.waiting.extend(outcomes)
        producer.publish(PublishBatch(producer, entries, pairs, len(entries)))
        return outcomes

    def _answer(self, producer_id: int, outcome: Outcome) -> None:
        named = self._by_id.get(producer_id)
        if named is not None:
            named.answer(outcome)

    def _closed_by_broker(self, producer_id: int) -> None:
        named = self._by_id.pop(producer_id, None)
        if named is not None:
            named.producer = None
            named.fail_all(
                UnavailableError(f"{self.topic.name} is moving: the message may be stored or not; send again")
            )

    def _close(self, name: str, named: _NamedProducer) -> None:
        del self._by_name[name]
        producer = named.producer
        if producer is not None:
            self.members.producers.pop(producer.producer_id, None)
            self._by_id.pop(producer.producer_id, None)
            producer.connection_lost()
        self._look_whether_used()

    def _look_whether_used(self) -> None:
        """It stays as long as a rate holds who came last: who comes next waits for it, too."""
        if not self._by_name and not self.publishes.is_held:
            self._on_unused(self)


class Outlets:
    """Of all topics, for as long as somebody publishes."""

    def __init__(self) -> None:
        self._by_topic: dict[str, TopicOutlet] = {}

    def __len__(self) -> int:
        return len(self._by_topic)

    async def publish(
        self,
        topic: Topic,
        peer: str,
        name: str,
        messages: Sequence[Outgoing],
        sequence_ids: Sequence[int | None],
    ) -> list[Outcome]:
        """See :meth:`TopicOutlet.publish`."""
        key = str(topic.name)
        outlet = self._by_topic.get(key)
        if outlet is None or outlet.topic is not topic:
            # What is published at one that was closed has its answers all the same.
            outlet = self._by_topic[key] = TopicOutlet(topic, peer, self._drop)
        return await outlet.publish(name or PRODUCER_NAME, messages, sequence_ids)

    def _drop(self, outlet: TopicOutlet) -> None:
        if self._by_topic.get(str(outlet.topic.name)) is outlet:
            del self._by_topic[str(outlet.topic.name)]


async def _all_of(outcomes: Iterable[asyncio.Future[Outcome]]) -> list[Outcome]:
    """What is known after :data:`STORED_S_MAX` seconds at the most."""
    found = list(outcomes)
    if found:
        await asyncio.wait(found, timeout=STORED_S_MAX)
    late = UnavailableError(f"not known to be stored after {STORED_S_MAX:g} s; it may be")
    return [one.result() if one.done() else late for one in found]


async def _yes() -> bool:
    return True
