"""What every broker story stands on: who is connected, what was promised, and what is durable by now."""

from __future__ import annotations

from typing import Final

from geminga.broker.resources.partitioned_topics import PARTITIONED_TOPICS_PATH
from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.memory import MemoryMetadata
from geminga.metadata.ports import MUST_NOT_EXIST
from geminga.runtime.ports import Clock
from geminga.sim import SimWorld
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.stories.broker_model import Left, Message, Rules, SubscriptionModel, TopicModel
from support.stories.story_clients import Consumer, StoryClient
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import seconds

Sub = pb.CommandSubscribe

TOPICS: Final = ("persistent://public/default/a", "persistent://public/default/b-partition-0")
#: Each subscription always has the same type.
SUBSCRIPTIONS: Final = {"one": Sub.Exclusive, "many": Sub.Shared, "spare": Sub.Failover, "keys": Sub.Key_Shared}
#: Virtual seconds without any news after which a broker has said what it had to say.
QUIET_S: Final = 2.5
#: Milliseconds after which an acknowledgment without a response is durable.
PLAIN_ACK_MS: Final = 3000


class StoryGround:
    """See the module. Made once for all lives; what a life has, it gets when the broker starts."""

    broker_world: BrokerWorld
    clock: Clock

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("broker story")
        self.node = world.node("broker")
        self.server = MemoryMetadata()
        # No client makes a partition of what is not there.
        tree, path = self.server.tree, f"{PARTITIONED_TOPICS_PATH}/public/default/persistent/b"
        tree.put(path, b'{"partitions":1}', expected_version=MUST_NOT_EXIST, session=tree.open_session(), now_ms=0)
        self.faults = MetadataFaults()
        self.topics = {name: TopicModel(name) for name in TOPICS}
        self.number = 0
        #: Rules that may be in force: one, or two after a change that was cut off.
        self.namespace_rules: list[Rules] = [Rules()]
        #: Retention of single topics; None: not set. Several after a change that was cut off.
        self.topic_retention: dict[str, list[tuple[int, int] | None]] = {name: [None] for name in TOPICS}
        self.deduplicates = self.rng.random() < 0.5
        self.has_wrong_clocks = self.rng.random() < 0.4
        self.deletes_caught_up = self.rng.random() < 0.15
        #: Sent and without a receipt, by topic, in order: a producer sends them again.
        self.unanswered: dict[str, list[Message]] = {name: [] for name in TOPICS}
        #: Acknowledged without a response: (when, topic, subscription, number).
        self.plain_acks: list[tuple[int, str, SubscriptionModel, int]] = []
        self.producers: dict[str, StoryClient] = {}
        self.consumers: list[Consumer] = []
        self.ports = 50_000
        #: What happened, for the report of a failure.
        self.told: list[str] = []
        #: What was compared how often, for the test that the story says something.
        self.checks: dict[str, int] = {"read": 0, "delivered": 0, "deleted": 0, "kept": 0}

    @property
    def now_ms(self) -> int:
        return self.clock.wall_ms()

    def lapse(self) -> None:
        """Let the models know what the policies allow to go by now."""
        for name, model in self.topics.items():
            for rules in self.namespace_rules:
                for retention in self.topic_retention[name]:
                    model.lapse(rules if retention is None else rules._replace(retention=retention), self.now_ms)
        self.settle_plain_acks(self.now_ms - PLAIN_ACK_MS)

    def settle_plain_acks(self, until_ms: int | None) -> None:
        """Those made before ``until_ms`` (None: all) are durable by now."""
        left = []
        for item in self.plain_acks:
            at_ms, name, subscription, number = item
            if until_ms is not None and at_ms > until_ms:
                left.append(item)
            elif subscription is self.topics[name].subscriptions.get(subscription.name):
                message = self.topics[name].messages.get(number)
                if message is not None and not message.is_repeated and message.is_stored:
                    subscription.left[number] = Left.DONE
        self.plain_acks = left

    def tell(self, *what: object) -> None:
        """Remember what happened, for the report of a failure."""
        self.told.append(f"{self.world.now:12.3f} " + " ".join(map(str, what)))

    # ---- who is there

    def notice_departures(self) -> None:
        """Whom the broker sent away is not connected any more."""
        for name, client in list(self.producers.items()):
            if client.is_gone:
                client.lose()
                del self.producers[name]
        for consumer in list(self.consumers):
            if consumer.client.is_gone:
                self.forget(consumer)

    def forget(self, consumer: Consumer) -> None:
        consumer.client.lose()
        self.consumers.remove(consumer)
        consumer.subscription.has_consumer = False
        consumer.subscription.last_used_ms = self.now_ms

    async def client(self) -> StoryClient:
        self.ports += 1
        client = StoryClient(self.broker_world.broker, self.ports)
        await client.connect()
        return client

    async def part_from_everyone(self) -> None:
        for client in self.producers.values():
            client.lose()
        self.producers.clear()
        for consumer in list(self.consumers):
            self.forget(consumer)
        await seconds(0.1)

    async def leave(self) -> None:
        if self.producers and self.rng.random() < 0.4:
            name = self.rng.choice(sorted(self.producers))
            self.producers.pop(name).lose()
        elif self.consumers:
            self.forget(self.rng.choice(self.consumers))
        await seconds(0.05)
