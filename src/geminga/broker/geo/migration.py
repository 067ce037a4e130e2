"""The part of a topic that moves to another cluster: what is there is read here, what is new is published there.

::

    PREPARING --its subscriptions are there--> DRAINING --all is copied elsewhere--> MOVED

While it prepares everything goes on. Then nothing is published here any more: a producer is told once everything before
is answered, so that nothing is stored twice. Consumers stay until their subscription has acknowledged all, and are told
then. What a subscription of the other cluster begins with is what its producers sent there: so those come first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final

from geminga.broker.geo.part import GeoReplication
from geminga.broker.topic.parts import OtherPlace, PartTopic, Stats, TopicPart
from geminga.broker.topic.publish import PublishBatch, Refusal
from geminga.model.errors import GemingaError, TopicMovedError, UnavailableError
from geminga.runtime import get_logger, spawn, wait_ms
from geminga.wire.pulsar import commands

if TYPE_CHECKING:
    from geminga.broker.subscription.consumer import Consumer
    from geminga.broker.topic.producer import Producer

#: Between two looks at what is not acknowledged, or not copied, yet.
CHECK_MS: Final = 1000
#: Between two tries to make what has to be there: doubled from the first to the last.
AGAIN_FIRST_MS: Final = 500
AGAIN_MAX_MS: Final = 60_000

_log = get_logger(__name__)


class Stage(Enum):
    """How far it is."""

    PREPARING = "preparing"
    DRAINING = "draining"
    MOVED = "moved"


class TopicMigration(TopicPart):
    """See the module."""

    __slots__ = ("_place", "_task", "_topic", "reason", "stage")

    name: ClassVar[str] = "migration"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        self._place = _place_of(topic)
        self.stage = Stage.PREPARING
        #: Why it does not go on; empty: it does.
        self.reason = ""
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """Where the cluster, or its namespace, moves. What brokers keep for themselves stays."""
        return not topic.name.is_system and _place_of(topic) is not None

    @property
    def is_idle(self) -> bool:
        """While it prepares nothing is asked of it."""
        return self.stage is Stage.PREPARING

    def policies_changed(self) -> None:
        """Begin, or go on with another place."""
        self._place = _place_of(self._topic)
        if self._task is None and not self._topic.is_closing:
            self._task = spawn(self._run(), name=f"move {self._topic.name}", part=self._topic)

    async def close(self) -> None:
        """Its next owner goes on."""
        self.drop()

    def drop(self) -> None:
        """It stays, or somebody else goes on."""
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
        """Nothing is: it is sent again, there."""
        batch.refusal = Refusal(UnavailableError("The topic moves to another cluster"), disconnects=True)
        return (batch,)

    async def admit_producer(self, producer: Producer) -> None:
        """Raise TopicMovedError, or UnavailableError while what is here is still copied elsewhere."""
        if self.stage is Stage.DRAINING:
            raise UnavailableError(f"Topic {self._topic.name} moves to another cluster: {self.reason}")
        if self.stage is Stage.MOVED and self._place is not None:
            raise TopicMovedError(
                f"Topic {self._topic.name} moved to another cluster", self._place.broker_url, self._place.broker_url_tls
            )

    # ---- moving

    async def _run(self) -> None:
        await self._prepare()
        self.stage = Stage.DRAINING
        self._topic.parts.idleness_changed()
        while self._uncopied():
            self.reason = f"{self._uncopied()} entries are not copied to the clusters of its namespace yet"
            await wait_ms(CHECK_MS)
        self.stage, self.reason = Stage.MOVED, ""
        while True:
            place = self._place
            if place is not None:
                for producer in [*self._topic.producers.values()]:
                    producer.move(place.broker_url, place.broker_url_tls)
                for consumer in self._done_consumers():
                    _move(consumer, place)
            await wait_ms(CHECK_MS)

    async def _prepare(self) -> None:
        again_ms = AGAIN_FIRST_MS
        while True:
            place, clusters = self._place, self._topic.services.remote_clusters
            try:
                if place is not None and clusters is not None:
                    await clusters.prepare(self._topic, place)
                    self.reason = ""
                    return
                self.reason = "it is not known where to"
            except GemingaError as error:
                if self.reason != f"{error}":
                    _log.warning("%s does not move yet: %s", self._topic.name, error)
                self.reason = f"{error}"
            await wait_ms(again_ms)
            again_ms = min(2 * again_ms, AGAIN_MAX_MS)

    def _uncopied(self) -> int:
        part = self._topic.parts.find(GeoReplication)
        return 0 if part is None else sum(copied.backlog for copied in part.replicators.values())

    def _done_consumers(self) -> list[Consumer]:
        """Those whose subscription has acknowledged everything."""
        return [
            consumer
            for subscription in self._topic.subscriptions.values()
            if not subscription.cursor.backlog_count
            for consumer in [*subscription.consumers]
        ]


def _move(consumer: Consumer, place: OtherPlace) -> None:
    moved = commands.topic_migrated(consumer.consumer_id, place.broker_url, place.broker_url_tls, is_producer=False)
    consumer.connection.output.write_soon(moved)
    consumer.disconnect()


def _place_of(topic: PartTopic) -> OtherPlace | None:
    moves = topic.services.moves
    return None if moves is None else moves.place_of(topic.rules)
