"""The part of a topic that moves to another cluster: what is there is read here, what is new is published there.

::

    PREPARING --its subscriptions are there--> DRAINING --all is copied elsewhere, still all there--> MOVED
        ^                                         |
        +-------- something can not be made ------+

While it prepares everything goes on. Then nothing is published here any more: a producer is told once everything before
is answered, so that nothing is stored twice. Consumers stay until their subscription has acknowledged all, and are told
then. What a subscription of the other cluster begins with is what its producers sent there: so those come first; one
that comes later is made there alone. That a topic moved is a property of its log: no later owner takes messages again.
So is where to: while it moved and everything is made in yet another place, nobody is led away.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final

from geminga.broker.geo.part import GeoReplication
from geminga.broker.publishing.stamps import message_count
from geminga.broker.topic.parts import AdmitsSubscriptions, OtherPlace, PartTopic, Stats, TakesLeave
from geminga.broker.topic.publish import BatchProducer, PublishBatch
from geminga.model.errors import GemingaError, TopicMovedError, UnavailableError
from geminga.runtime import Turns, get_logger, spawn, wait_ms
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.metadata import peek_metadata

if TYPE_CHECKING:
    from geminga.broker.subscription.consumer import Consumer
    from geminga.broker.topic.producer import Producer

#: Between two looks at what is not acknowledged, or not copied, yet.
CHECK_MS: Final = 1000
#: Between two looks at producers that are being sent away.
LEAVING_MS: Final = 20
#: So long the rest of messages in parts is waited for: who hangs in the midst of one holds up nobody else.
PARTS_MS_MAX: Final = 5000
#: So long subscriptions that are being made are waited for; then it goes on here, and tries again.
SUBSCRIPTIONS_MS_MAX: Final = 10_000
#: Why one does not go on that has not been tried.
OTHERS_FIRST: Final = "other topics prepare before it"
#: So long a producer waits for the first try, where nobody here wants what it publishes.
FIRST_TRY_MS_MAX: Final = 5000
#: Property of a managed ledger: nothing is published here any more (Pulsar's name).
MOVED_PROPERTY: Final = "migrated"
#: The same: the place where everything was made for it, a JSON list of its four addresses. A log that an older broker
#: wrote has none, and its clients are led to whatever place holds when it is loaded.
MADE_PROPERTY: Final = "geminga.migrated-to"
#: Between two tries to make what has to be there: doubled from the first to the last.
AGAIN_FIRST_MS: Final = 500
AGAIN_MAX_MS: Final = 60_000
#: Clients that are led away in one turn of the loop, at most.
TOLD_A_TURN: Final = 100

_log = get_logger(__name__)


class Stage(Enum):
    """How far it is."""

    PREPARING = "preparing"
    DRAINING = "draining"
    MOVED = "moved"


class TopicMigration(AdmitsSubscriptions, TakesLeave):
    """See the module."""

    __slots__ = ("_leaving", "_made", "_midst", "_place", "_task", "_topic", "_was_tried", "reason", "stage")

    name: ClassVar[str] = "migration"

    def __init__(self, topic: PartTopic) -> None:
        super().__init__()
        self._topic = topic
        self._place = _place_of(topic)
        stored = topic.ledger.stored.properties
        self.stage = Stage.MOVED if MOVED_PROPERTY in stored else Stage.PREPARING
        #: Where everything was made when it moved (:data:`MADE_PROPERTY`).
        self._made = stored.get(MADE_PROPERTY, _text_of(self._place))
        #: Why it does not go on; empty: it does.
        self.reason = ""
        self._task: asyncio.Task[None] | None = None
        #: It moved, or could not yet.
        self._was_tried = asyncio.Event()
        #: Producers of which something was dropped: they send it again when they are gone from here.
        self._leaving: set[BatchProducer] = set()
        #: Producers in the midst of a message in parts, of which the first are stored here: so is the rest.
        self._midst: set[BatchProducer] = set()

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """Where the cluster, or its namespace, moves. What brokers keep for themselves stays."""
        return not topic.name.is_system and _place_of(topic) is not None

    @classmethod
    async def prepare(cls, topic: PartTopic, *, is_wanted: bool) -> None:
        """One that does not move, or not any more, takes messages."""
        stored = topic.ledger.stored
        if not is_wanted and MOVED_PROPERTY in stored.properties:
            own = (MOVED_PROPERTY, MADE_PROPERTY)
            await stored.set_properties({key: text for key, text in stored.properties.items() if key not in own})

    def policies_changed(self) -> None:
        """Begin, or go on with another place."""
        self._place = _place_of(self._topic)
        if self._task is None and not self._topic.is_closing:
            self._task = spawn(self._run(), name=f"move {self._topic.name}", part=self._topic)

    async def leave(self) -> None:
        """Those of whom something was dropped are gone when nothing moves any more: they would overtake that."""
        self.drop()
        self.stage = Stage.PREPARING
        await self._all_left()

    async def close(self) -> None:
        """Its next owner goes on."""
        self.drop()

    def drop(self) -> None:
        """It stays, or somebody else goes on."""
        self._was_tried.set()
        if self._task is not None:
            self._task.cancel()

    async def delete(self) -> None:
        """What is in the other cluster stays there."""
        self.drop()

    def stats(self) -> Stats:
        """How far it is, why not further, where it goes."""
        place = self._place
        return {
            "stage": self.stage.value,
            "reason": self.reason,
            "url": "" if place is None else place.broker_url or place.broker_url_tls,
        }

    # ---- who publishes

    def admit(self, batch: PublishBatch) -> Iterable[PublishBatch]:
        """From the draining on nothing is but the rest of a message in parts that began here: its producer is sent away
        behind the answers of what came before, and sends again what was not taken."""
        producer = batch.producer
        if self.stage is Stage.PREPARING and producer not in self._leaving:
            self._follow_parts(batch)
            return (batch,)
        count = 0 if producer in self._leaving or not batch.chunks else _rest_count(batch.entries)
        if count == batch.count:
            self._follow_parts(batch)
            return (batch,)
        self._leaving.add(producer)
        self._midst.discard(producer)
        if not count:
            producer.disconnect_soon()
            return ()
        # Behind the answer of what is taken now.
        asyncio.get_running_loop().call_soon(producer.disconnect_soon)
        taken = batch.cut(0, count, sum(map(message_count, batch.entries[:count])))
        taken.chunks = count
        return (taken,)

    def _follow_parts(self, batch: PublishBatch) -> None:
        if batch.chunks and _goes_on(batch.entries[-1]):
            if batch.producer not in self._midst:
                # One whose successor has its name is not told of when it is gone.
                self._midst = {producer for producer in self._midst if not producer.is_closed} | {batch.producer}
        elif self._midst:
            self._midst.discard(batch.producer)

    async def admit_producer(self, producer: Producer) -> None:
        """Raise TopicMovedError, or UnavailableError while what is here is still copied elsewhere.

        Where no subscription is here it is waited for that it moves, or can not yet: those that want what comes may be
        there alone, as of a topic that is made while all move.
        """
        if self.stage is Stage.PREPARING and not self._topic.subscriptions and not self._topic.producers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_TRY_MS_MAX / 1000):
                    await self._was_tried.wait()
        self._admit()

    def producer_left(self, producer: Producer) -> None:
        """The rest of what it began will not come, nor anything else."""
        self._midst.discard(producer)
        self._leaving.discard(producer)

    async def admit_subscription(self) -> None:
        """The same: a new one is made in the other cluster alone."""
        self._admit()

    def _admit(self) -> None:
        if self.stage is Stage.DRAINING:
            raise UnavailableError(f"Topic {self._topic.name} moves to another cluster: {self.reason}")
        if self.stage is Stage.MOVED and self._place is not None:
            if self._made != _text_of(self._place):
                raise UnavailableError(f"Topic {self._topic.name} moves on to another cluster: {self.reason}")
            raise TopicMovedError(
                f"Topic {self._topic.name} moved to another cluster", self._place.broker_url, self._place.broker_url_tls
            )

    # ---- moving

    async def _run(self) -> None:
        again_ms = AGAIN_FIRST_MS
        while self.stage is not Stage.MOVED:
            try:
                await self._move()
            except GemingaError as error:
                self._fails(error)
                self._was_tried.set()
                await self._all_left()
                self.stage = Stage.PREPARING
                await wait_ms(again_ms)
                again_ms = min(2 * again_ms, AGAIN_MAX_MS)
        self.reason = ""
        again_ms = AGAIN_FIRST_MS
        while True:
            self._leaving = {producer for producer in self._leaving if not producer.is_closed}
            place = self._place
            if place is not None and self._made != _text_of(place):
                try:
                    async with self._turn():
                        await self._make_and_note()
                except GemingaError as error:
                    self._fails(error)
                    await wait_ms(again_ms)
                    again_ms = min(2 * again_ms, AGAIN_MAX_MS)
                    continue
                self.reason, again_ms = "", AGAIN_FIRST_MS
            elif place is not None:
                turns = Turns(self._topic.services.runtime.clock, steps_max=TOLD_A_TURN)
                await lead_producers(turns, self._topic.attendance.all(), place)
                for subscription in [*self._topic.subscriptions.values()]:
                    # Looked at when its turn comes: it may have been moved back.
                    if not subscription.cursor.backlog_count:
                        await lead_consumers(turns, subscription.consumers, place)
            await wait_ms(CHECK_MS)

    async def _move(self) -> None:
        """Until it moved. Raises GemingaError: then it goes on here."""
        self.reason = self.reason or OTHERS_FIRST
        async with self._turn():
            self.reason = "" if self.reason == OTHERS_FIRST else self.reason
            await self._make()
        self.stage = Stage.DRAINING
        self.reason = "the rest of a message in parts is waited for"
        for _ in range(PARTS_MS_MAX // LEAVING_MS):
            self._midst = {producer for producer in self._midst if not producer.is_closed}
            if not self._midst:
                break
            await wait_ms(LEAVING_MS)
        self.reason = ""
        while self._uncopied():
            self.reason = f"{self._uncopied()} entries are not copied to the clusters of its namespace yet"
            await wait_ms(CHECK_MS)
        self.reason = "the last of its subscriptions are made there"
        # Subscriptions that came meanwhile; no other can come any more once those are made that were let in before.
        await self._subscriptions_made()
        await self._make_and_note()
        self.stage = Stage.MOVED
        self._was_tried.set()

    async def _all_left(self) -> None:
        """What they send until then would overtake what was dropped."""
        while not all(producer.is_closed for producer in self._leaving):
            await wait_ms(LEAVING_MS)
        self._leaving.clear()

    async def _subscriptions_made(self) -> None:
        for _ in range(SUBSCRIPTIONS_MS_MAX // LEAVING_MS):
            if not self.made_now:
                return
            await wait_ms(LEAVING_MS)
        raise UnavailableError(f"{self.made_now} subscriptions are being made, for more than {SUBSCRIPTIONS_MS_MAX} ms")

    def _fails(self, error: GemingaError) -> None:
        if self.reason != f"{error}":
            _log.warning("%s does not move yet: %s", self._topic.name, error)
        self.reason = f"{error}"

    async def _make_and_note(self) -> None:
        """From then on clients are led there, whoever serves the topic."""
        made = _text_of(await self._make())
        await self._topic.ledger.stored.add_properties({MOVED_PROPERTY: "true", MADE_PROPERTY: made})
        self._made = made

    def _turn(self) -> AbstractAsyncContextManager[object]:
        clusters = self._topic.services.remote_clusters
        return contextlib.nullcontext() if clusters is None else clusters.moving_turn()

    async def _make(self) -> OtherPlace:
        """Where everything is made now: it may change meanwhile."""
        place, clusters = self._place, self._topic.services.remote_clusters
        if place is None or clusters is None:
            raise UnavailableError("it is not known where to")
        await clusters.prepare(self._topic, place)
        return place

    def _uncopied(self) -> int:
        part = self._topic.parts.find(GeoReplication)
        return 0 if part is None else sum(copied.backlog for copied in part.replicators.values())


def _goes_on(entry: bytes) -> bool:
    """Whether it is a part of a message, and not the last."""
    metadata = peek_metadata(entry)
    return metadata is not None and metadata.chunk_id < metadata.num_chunks_from_msg - 1


def _rest_count(entries: Sequence[bytes]) -> int:
    """How many of the first are parts of a message that began before them."""
    for count, entry in enumerate(entries):
        metadata = peek_metadata(entry)
        if metadata is None or metadata.num_chunks_from_msg < 2 or not metadata.chunk_id:
            return count
    return len(entries)


async def lead_producers(turns: Turns, producers: Iterable[Producer], place: OtherPlace) -> None:
    """To the other cluster, some in each turn; whoever is left stays where who asked is called off."""
    for producer in [*producers]:
        if turns.is_over():
            await turns.next()
        producer.move(place.broker_url, place.broker_url_tls)


async def lead_consumers(turns: Turns, consumers: Iterable[Consumer], place: OtherPlace) -> None:
    """The same of consumers."""
    for consumer in [*consumers]:
        if turns.is_over():
            await turns.next()
        if consumer.is_closed:
            continue  # meanwhile
        moved = commands.topic_migrated(consumer.consumer_id, place.broker_url, place.broker_url_tls, is_producer=False)
        consumer.connection.output.write_soon(moved)
        consumer.disconnect()


def _text_of(place: OtherPlace | None) -> str:
    """As :data:`MADE_PROPERTY`; empty: there is none."""
    if place is None:
        return ""
    return json.dumps([place.service_url, place.service_url_tls, place.broker_url, place.broker_url_tls])


def _place_of(topic: PartTopic) -> OtherPlace | None:
    moves = topic.services.moves
    return None if moves is None else moves.place_of(topic.rules)
