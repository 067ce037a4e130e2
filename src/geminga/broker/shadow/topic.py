"""A topic that shows another one's messages: read as any topic, with subscriptions of its own; written only there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from geminga.broker.core.deletion import TopicFacts
from geminga.broker.shadow.part import ShadowFollowing
from geminga.broker.topic.delays import DelayedDelivery
from geminga.broker.topic.parts import TopicPart
from geminga.broker.topic.persistence import LedgerPersistence
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.topic.quota_guard import BacklogQuotas
from geminga.broker.topic.retention import Retention
from geminga.broker.topic.services import TopicServices
from geminga.managed_ledger import ManagedLedger
from geminga.managed_ledger.rules.shadow import source_topic
from geminga.model.errors import NotAllowedError
from geminga.model.position import Position
from geminga.model.topic_name import SHADOW_SOURCE, TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.core.new_subscription import Properties
    from geminga.broker.subscription.consumer import Consumer, ConsumerConnection
    from geminga.broker.subscription.subscription import Subscription
    from geminga.broker.topic.transaction_buffer import TransactionBuffer

#: What it may have beside its log: what is about reading. Offloading, compaction, deduplication and copies to other
#: clusters are the source's.
KINDS: Final[tuple[type[TopicPart], ...]] = (Retention, LedgerPersistence, BacklogQuotas, DelayedDelivery)


class ShadowTopic(PersistentTopic):
    """See the module."""

    __slots__ = ("following",)

    def __init__(self, services: TopicServices, name: TopicName, ledger: ManagedLedger) -> None:
        """As of :class:`PersistentTopic`."""
        #: What follows the source; None while the topic is being loaded.
        self.following: ShadowFollowing | None = None
        super().__init__(services, name, ledger, (*(kind for kind in services.parts if kind in KINDS), ShadowFollowing))
        self.schema_topic = source_topic(ledger.stored.properties[SHADOW_SOURCE], name)

    async def load(self) -> None:
        """As :meth:`Topic.load`."""
        await super().load()
        self.following = following = self.parts.find(ShadowFollowing)
        if following is not None:
            # Who makes a shadow reads nothing of a source that does not name it, schemas among it.
            self.until_shown = following.until_known

    async def use_transactions(self) -> TransactionBuffer:
        """Raises NotAllowedError."""
        raise _only_there(self, "takes no transactions")

    async def subscribe(self, connection: ConsumerConnection, request: pb.CommandSubscribe) -> Consumer:
        """As :meth:`Topic.subscribe`, once it is known where the newest message is."""
        if request.read_compacted:
            raise _only_there(self, "has nothing that was compacted")
        if self.following is not None:
            await self.following.until_known()
        return await super().subscribe(connection, request)

    async def create_subscription(
        self, name: str, position: Position, properties: Properties | None = None, *, is_replicated: bool = False
    ) -> Subscription:
        """As :meth:`Topic.create_subscription`, once it is known where the newest message is."""
        if is_replicated:
            raise _only_there(self, "is in no other cluster")
        if self.following is not None:
            await self.following.until_known()
        return await super().create_subscription(name, position, properties)

    async def terminate(self) -> Position:
        """Raises NotAllowedError."""
        raise _only_there(self, "ends with its source")

    async def truncate(self) -> None:
        """Raises NotAllowedError."""
        raise _only_there(self, "stores nothing")

    def deletion_facts(self) -> TopicFacts:
        """As :meth:`Topic.deletion_facts`; the source that names it is as good as a producer."""
        facts = super().deletion_facts()
        return facts._replace(clients=facts.clients + (self.following is not None and self.following.is_listed))


def _only_there(topic: ShadowTopic, what: str) -> NotAllowedError:
    return NotAllowedError(f"Topic {topic.name} shows another one, {topic.schema_topic}, and {what}")
