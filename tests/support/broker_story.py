"""Lives of a whole broker with random policies: clients come and go, time passes, sweeps run, the power fails.

What a client was promised is kept in :mod:`support.broker_model`, outside of the node, and compared with what the
broker says and delivers. Background work runs by the broker's own timers while virtual time passes; nothing is called
by hand.
"""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookkeeper import MetadataLiveLedgers
from geminga.broker.config import BrokerConfig
from geminga.broker.service import Broker
from geminga.broker.subscription import seek
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.runtime import is_halted
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.broker_model import ENTRIES_PER_LEDGER, Left, Message, Rules, SubscriptionModel, TopicModel
from support.broker_world import BrokerWorld, Client
from support.policy_levels import set_namespace, set_topic

Type = pb.BaseCommand
Sub = pb.CommandSubscribe

LIVES: Final = 4
STEPS: Final = 26
TOPICS: Final = ("persistent://public/default/a", "persistent://public/default/b-partition-0")
#: Each subscription always has the same type.
SUBSCRIPTIONS: Final = {"one": Sub.Exclusive, "many": Sub.Shared, "spare": Sub.Failover, "keys": Sub.Key_Shared}
PRODUCER: Final = "p"
#: Virtual seconds without any news after which a broker has said what it had to say.
QUIET_S: Final = 2.5
#: Milliseconds after which an acknowledgement without a response is durable.
PLAIN_ACK_MS: Final = 3000
#: Milliseconds after its time by which a delayed message must be there, beside its tick.
LATENESS_MS: Final = 2500

#: Milliseconds after which it is durable that a consumer came, and by which that may be older.
NOTED_MS: Final = 1000
STALE_NOTE_MS: Final = 60_000

RETENTIONS: Final = ((0, 0), (0, 0), (-1, -1), (10, -1), (-1, 1), (60, 1))
TTLS_S: Final = (0, 0, 120, 3600)
EVICTIONS: Final = (0, 0, 0, 3000, 40_000)
EVICTION_AGES_S: Final = (0, 0, 0, 600)
EXPIRIES_MIN: Final = (0, 0, 30)
#: How wrong a clock is: an hour slow or fast, not there (it says 0), in the far future.
CLOCK_ERRORS_MS: Final = (-3_600_000, 3_600_000, -(1 << 50), 1 << 50)
SIZES: Final = (10, 10, 200, 3000, 150_000)
#: How long nothing happens; most background work looks every one to five minutes.
PAUSES_S: Final = (0.01, 0.5, 4, 70, 200, 700, 4000)

LEDGERS: Final = ManagedLedgerConfig(
    max_entries_per_ledger=ENTRIES_PER_LEDGER, min_rollover_minutes=0, cursor_max_entries_per_ledger=20
)
BOOKIE: Final = BookieConfig(flush_interval_ms=20_000, gc_wait_time_ms=300_000, journal_pre_alloc_size_mb=0.01)


class StoryClient(Client):
    """Keeps messages, receipts and errors apart, and remembers whom the broker sent away."""

    def __init__(self, broker: Broker, port: int) -> None:
        self.messages: list[tuple[pb.CommandMessage, bytes]] = []
        self.receipts: list[int] = []
        self.was_sent_away = False
        super().__init__(broker, port)

    def _on_write(self, data: bytes) -> None:
        for raw, payload in self._decoder.feed(data):
            command = pb.BaseCommand.FromString(bytes(raw))
            if command.type == Type.MESSAGE:
                self.messages.append((command.message, payload))
            elif command.type == Type.SEND_RECEIPT:
                self.receipts.append(command.send_receipt.sequence_id)
            elif command.type == Type.PING:
                pong = pb.BaseCommand(type=Type.PONG, pong=pb.CommandPong())
                asyncio.get_running_loop().call_soon(self.send, pong)
            elif command.type in (Type.SEND_ERROR, Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER):
                self.was_sent_away = True
            else:
                self.received.append((command, payload))
        self._news.set()

    @property
    def is_gone(self) -> bool:
        return self.is_closed or self.was_sent_away

    async def request(self, command: pb.BaseCommand) -> pb.BaseCommand | None:
        """The answer (SUCCESS of any kind, or ERROR); None if the connection ended or it did not come."""
        self.send(command)
        for _ in range(120):
            while self.received:
                answer = self.received.popleft()[0]
                if answer.type != Type.ACTIVE_CONSUMER_CHANGE:
                    return answer
            if self.is_closed:
                return None
            await pause(0.5)
        return None


async def pause(seconds: float) -> None:
    """Let virtual time pass."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, future.set_result, None)
    await future


class Consumer:
    """A consumer on a connection of its own."""

    def __init__(self, client: StoryClient, topic: str, subscription: SubscriptionModel) -> None:
        self.client = client
        self.topic = topic
        self.subscription = subscription
        self.since_ms = client.broker.runtime.clock.wall_ms()
        #: Received and neither acknowledged nor given back: number -> id.
        self.held: dict[int, pb.MessageIdData] = {}

    def acknowledge(self, ids: list[pb.MessageIdData], *, cumulative: bool, request_id: int | None) -> None:
        kind = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
        ack = pb.CommandAck(consumer_id=1, ack_type=kind, message_id=ids)
        if request_id is not None:
            ack.request_id = request_id
        self.client.send(pb.BaseCommand(type=Type.ACK, ack=ack))


class BrokerStory:
    """See the module's docstring."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("broker story")
        self.node = world.node("broker")
        self.server = MemoryMetadata()
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

    # ---- one life

    async def live(self, node: SimNode, *, is_last: bool) -> None:
        store = MemoryMetadataStore(node.runtime, self.server, self.faults)
        bookie = await LocalBookie.open(node.runtime, "/data", BOOKIE, ledgers=MetadataLiveLedgers(store))
        config = BrokerConfig(
            keep_alive_interval_s=1_000_000,
            deduplication=self.deduplicates,
            is_delayed_delivery_deliver_at_time_strict=True,
            delete_inactive_topics_mode=(
                "delete_when_subscriptions_caught_up" if self.deletes_caught_up else "delete_when_no_subscriptions"
            ),
            dispatcher_read_failure_backoff_initial_ms=100,
            dispatcher_read_failure_backoff_max_ms=1000,
        )
        self.broker_world = BrokerWorld(node.runtime, config, LEDGERS, bookie=bookie, store=store)
        self.clock = node.runtime.clock
        await self.broker_world.start()
        for _ in range(STEPS):
            await self.step()
        if is_last:
            await self.part_from_everyone()
            for name in TOPICS:
                await self.check_everything(name)
        if is_last or self.rng.random() < 0.4:
            await self.part_from_everyone()
            await self.broker_world.stop()
            await bookie.close()
            self.settle_plain_acks(None)

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

    async def step(self) -> None:
        self.lapse()
        self.notice_departures()
        name = self.rng.choice(TOPICS)
        roll = self.rng.random()
        if roll < 0.24:
            await self.publish(name)
        elif roll < 0.36:
            await self.subscribe(name)
        elif roll < 0.52:
            await self.consume()
        elif roll < 0.60:
            await self.leave()
        elif roll < 0.64:
            await self.unsubscribe()
        elif roll < 0.68:
            await self.seek()
        elif roll < 0.72:
            await self.unload(name)
        elif roll < 0.80:
            await self.change_policies(name)
        elif roll < 0.83:
            await self.read_everything(name)
        elif roll < 0.87:
            await self.drain(name, self.rng.choice(sorted(SUBSCRIPTIONS)))
        elif roll < 0.90:
            await self.part_from_everyone()
            await pause(self.rng.choice((130, 400)))
        elif roll < 0.93:
            await self.expire(name)
        else:
            await pause(self.rng.choice(PAUSES_S))
        self.lapse()
        for each in TOPICS:
            await self.check_existence(each)

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
        await pause(0.1)

    async def leave(self) -> None:
        if self.producers and self.rng.random() < 0.4:
            name = self.rng.choice(sorted(self.producers))
            self.producers.pop(name).lose()
        elif self.consumers:
            self.forget(self.rng.choice(self.consumers))
        await pause(0.05)

    # ---- producing

    async def producer(self, name: str) -> StoryClient | None:
        """The topic's producer, connected again if need be; it has sent again what was not answered."""
        client = self.producers.get(name)
        if client is not None:
            return client
        client = await self.client()
        request = pb.CommandProducer(
            topic=name, producer_id=1, request_id=client.next_request_id(), producer_name=PRODUCER
        )
        answer = await client.request(pb.BaseCommand(type=Type.PRODUCER, producer=request))
        if answer is None or answer.type != Type.PRODUCER_SUCCESS:
            client.lose()
            return None
        self.topics[name].exists = True
        self.producers[name] = client
        for message in self.unanswered[name]:
            message.copies_max += not self.deduplicates
            self.send(client, message)
        await self.receipts(name, client)
        return client

    def send(self, client: StoryClient, message: Message) -> None:
        metadata: dict[str, int] = {"publish_time": message.claimed_ms}
        if message.deliver_at_ms:
            metadata["deliver_at_time"] = message.deliver_at_ms
        payload = b"%012d" % message.number + b"x" * (message.size - 12)
        client.send_message(message.number, payload, metadata=metadata, producer_name=PRODUCER)

    async def publish(self, name: str) -> None:
        client = await self.producer(name)
        if client is None:
            return
        for _ in range(self.rng.randint(1, 6)):
            self.number += 1
            now_ms = self.now_ms
            delay_ms = self.rng.choice((0, 0, 0, 0, 3000, 40_000, 400_000))
            size = max(12, self.rng.choice(SIZES))
            error_ms = self.rng.choice(CLOCK_ERRORS_MS) if self.has_wrong_clocks and self.rng.random() < 0.4 else 0
            message = Message(self.number, size, now_ms, now_ms + delay_ms if delay_ms else 0, error_ms)
            self.topics[name].sent(message)
            self.unanswered[name].append(message)
            if client.is_gone:
                break
            self.send(client, message)
            self.tell("sent", name, message)
        await self.receipts(name, client)
        self.tell("unanswered", name, [message.number for message in self.unanswered[name]])

    async def receipts(self, name: str, client: StoryClient) -> None:
        """Wait for them a while; what is answered is promised."""
        for _ in range(40):
            await pause(0.05)
            for number in client.receipts:
                if any(message.number == number for message in self.unanswered[name]):
                    self.topics[name].stored(number)
                    self.unanswered[name] = [m for m in self.unanswered[name] if m.number != number]
            client.receipts.clear()
            if not self.unanswered[name] or client.is_gone:
                return

    # ---- consuming

    async def subscribe(self, topic: str, name: str | None = None) -> Consumer | None:
        """A consumer on a durable subscription that has none."""
        name = name or self.rng.choice(sorted(SUBSCRIPTIONS))
        model = self.topics[topic]
        if any(c.topic == topic and c.subscription.name == name for c in self.consumers):
            return None
        await self.check_subscriptions(topic)
        earliest = self.rng.random() < 0.6
        known = model.subscriptions.get(name)
        if known is None:
            known = model.subscribed(name, self.now_ms, earliest=earliest)
            known.may_be_gone = True
        client = await self.client()
        request = pb.CommandSubscribe(
            topic=topic,
            subscription=name,
            subType=SUBSCRIPTIONS[name],
            consumer_id=1,
            request_id=client.next_request_id(),
            initialPosition=Sub.Earliest if earliest else Sub.Latest,
        )
        answer = await client.request(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        if answer is None or answer.type != Type.SUCCESS:
            client.lose()
            return None
        model.exists = True
        if model.subscriptions.get(name) is not known:
            known = model.subscribed(name, self.now_ms, earliest=earliest)
        known.may_be_gone, known.has_consumer = False, True
        consumer = Consumer(client, topic, known)
        self.consumers.append(consumer)
        self.tell("subscribed", topic, name, "earliest" if earliest else "latest", known.left)
        return consumer

    async def receive(self, consumer: Consumer, permits: int) -> list[int]:
        """Ask for messages and take what comes until nothing more does; each must be one that may come."""
        client, model = consumer.client, self.topics[consumer.topic]
        flow = pb.CommandFlow(consumer_id=1, messagePermits=permits)
        client.send(pb.BaseCommand(type=Type.FLOW, flow=flow))
        numbers: list[int] = []
        quiet = 0
        while quiet < 5 and not client.is_gone:
            await pause(QUIET_S / 5)
            quiet += 1
            for command, payload in client.messages:
                quiet = 0
                number = number_of(payload)
                numbers.append(number)
                self.check_delivery(model, consumer.subscription, number)
                consumer.held[number] = command.message_id
            client.messages.clear()
        self.tell("received", consumer.topic, consumer.subscription.name, numbers)
        return numbers

    def check_delivery(self, model: TopicModel, subscription: SubscriptionModel, number: int) -> None:
        message = model.messages.get(number)
        where = f"{model.name} {subscription.name}: message {number}"
        assert message is not None, f"{where} was never sent, or its topic was deleted"
        assert subscription.left.get(number) is not Left.DONE, f"{where} came again after it was acknowledged"
        if SUBSCRIPTIONS[subscription.name] in (Sub.Shared, Sub.Key_Shared):
            assert self.now_ms >= message.deliver_at_ms, f"{where} came early"
        self.checks["delivered"] += 1

    async def consume(self) -> None:
        if not self.consumers:
            return
        consumer = self.rng.choice(self.consumers)
        await self.receive(consumer, self.rng.choice((1, 5, 50)))
        if not consumer.held or consumer.client.is_gone:
            return
        subscription = consumer.subscription
        may_be_cumulative = SUBSCRIPTIONS[subscription.name] in (Sub.Exclusive, Sub.Failover)
        numbers = sorted(consumer.held)
        cumulative = may_be_cumulative and self.rng.random() < 0.4
        chosen = [self.rng.choice(numbers)] if cumulative else [n for n in numbers if self.rng.random() < 0.6]
        if not chosen:
            redeliver = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
            if not may_be_cumulative:
                redeliver.message_ids.extend(consumer.held.values())
            command = pb.BaseCommand(
                type=Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=redeliver
            )
            consumer.client.send(command)
            consumer.held.clear()
            return
        await self.acknowledge(consumer, chosen, cumulative=cumulative)

    async def acknowledge(self, consumer: Consumer, chosen: list[int], *, cumulative: bool) -> None:
        subscription, model = consumer.subscription, self.topics[consumer.topic]
        ids = [consumer.held[number] for number in chosen]
        affected = [n for n in model.messages if n <= chosen[0]] if cumulative else chosen
        if cumulative and any(model.messages[n].is_repeated or not model.messages[n].is_stored for n in affected):
            # Where copies lie in the log, numbers are not positions.
            affected_surely: list[int] = []
            affected = sorted(model.messages)
        else:
            affected_surely = affected
        for number in affected:
            subscription.unsure(number)
            consumer.held.pop(number, None)
        self.lapse()
        if self.rng.random() < 0.4:
            self.tell("acknowledged plainly", consumer.topic, subscription.name, chosen, "cumulative" * cumulative)
            consumer.acknowledge(ids, cumulative=cumulative, request_id=None)
            self.plain_acks += [(self.now_ms, consumer.topic, subscription, n) for n in affected_surely]
            await pause(0.01)
            return
        request_id = consumer.client.next_request_id()
        consumer.acknowledge(ids, cumulative=cumulative, request_id=request_id)
        self.tell("acknowledged", consumer.topic, subscription.name, chosen, "cumulative" * cumulative)
        for _ in range(40):
            await pause(0.05)
            while consumer.client.received:
                answer = consumer.client.received.popleft()[0]
                if answer.type == Type.ACK_RESPONSE and answer.ackResponse.request_id == request_id:
                    if not answer.ackResponse.HasField("error"):
                        self.plain_acks += [(0, consumer.topic, subscription, n) for n in affected_surely]
                        self.settle_plain_acks(0)
                    return
            if consumer.client.is_gone:
                return

    async def unsubscribe(self) -> None:
        if not self.consumers:
            return
        consumer = self.rng.choice(self.consumers)
        consumer.subscription.may_be_gone = True
        self.lapse()
        request = pb.CommandUnsubscribe(consumer_id=1, request_id=consumer.client.next_request_id())
        answer = await consumer.client.request(pb.BaseCommand(type=Type.UNSUBSCRIBE, unsubscribe=request))
        self.tell("unsubscribed", consumer.topic, consumer.subscription.name, answer)
        self.forget(consumer)
        if answer is None:
            # It may go any moment, or be made anew: nobody knows what it holds.
            for number in self.topics[consumer.topic].messages:
                consumer.subscription.unsure(number)
        elif answer.type == Type.SUCCESS:
            self.topics[consumer.topic].subscriptions.pop(consumer.subscription.name, None)

    async def seek(self) -> None:
        if not self.consumers:
            return
        consumer = self.rng.choice(self.consumers)
        model, subscription = self.topics[consumer.topic], consumer.subscription
        target: int | None = None
        request = pb.CommandSeek(consumer_id=1, request_id=consumer.client.next_request_id())
        if consumer.held and self.rng.random() < 0.5:
            target = self.rng.choice(sorted(consumer.held))
            request.message_id.CopyFrom(consumer.held[target])
        elif self.rng.random() < 0.7:
            target = 0
            request.message_id.ledgerId = request.message_id.entryId = (1 << 64) - 1
        else:
            request.message_id.ledgerId = request.message_id.entryId = (1 << 63) - 1
        is_exact = target in (0, None) or not any(m.is_repeated for m in model.messages.values())
        for number in model.messages:
            subscription.unsure(number)
        self.plain_acks = [item for item in self.plain_acks if item[2] is not subscription]
        answer = await consumer.client.request(pb.BaseCommand(type=Type.SEEK, seek=request))
        self.tell("sought", consumer.topic, subscription.name, target, answer)
        if answer is not None and answer.type == Type.SUCCESS and is_exact:
            model.sought(subscription, target)
        consumer.held.clear()
        self.notice_departures()

    # ---- administration

    async def unload(self, name: str) -> None:
        try:
            await self.broker_world.broker.unload_topic(TopicName.parse(name))
            self.tell("unloaded", name)
        except GemingaError:
            return
        if not is_halted():
            left = []
            for item in self.plain_acks:
                if item[1] == name:
                    left.append((0, *item[1:]))
                else:
                    left.append(item)
            self.plain_acks = left
            self.settle_plain_acks(0)

    async def expire(self, topic: str) -> None:
        """An administrator expires what is older than so many seconds, as over HTTP."""
        model = self.topics[topic]
        if not model.subscriptions or not model.exists:
            return
        known = model.subscriptions[self.rng.choice(sorted(model.subscriptions))]
        age_s = self.rng.choice((1, 60, 600))
        model.expired(known, age_s, self.now_ms)
        try:
            loaded = await self.broker_world.broker.get_topic(TopicName.parse(topic), create=False)
            if known.name in loaded.subscriptions:
                await seek.expire(loaded.subscriptions[known.name], age_s * 1000)
        except GemingaError:
            return
        self.tell("expired", topic, known.name, age_s)
        model.expired(known, age_s, self.now_ms)

    async def change_policies(self, name: str) -> None:
        if self.rng.random() < 0.25:
            await self.change_topic_policy(name)
            return
        action = self.rng.choice(("consumer_backlog_eviction", "producer_exception", "producer_request_hold"))
        size, age = self.rng.choice(EVICTIONS), self.rng.choice(EVICTION_AGES_S)
        evicts = action == "consumer_backlog_eviction"
        rules = Rules(
            retention=self.rng.choice(RETENTIONS),
            ttl_s=self.rng.choice(TTLS_S),
            evict_bytes=size if evicts else 0,
            evict_s=age if evicts else 0,
            expiry_min=self.rng.choice(EXPIRIES_MIN),
        )
        minutes, mebibytes = rules.retention
        quotas: dict[str, object] = {}
        if size:
            quotas["destination_storage"] = {"limitSize": size, "limitTime": -1, "policy": action}
        if age:
            quotas["message_age"] = {"limitSize": -1, "limitTime": age, "policy": action}
        old = self.namespace_rules[-1]
        changes = {
            "retention_policies": {"retentionTimeInMinutes": minutes, "retentionSizeInMB": mebibytes},
            "message_ttl_in_seconds": rules.ttl_s,
            "backlog_quota_map": quotas,
            "subscription_expiration_time_minutes": rules.expiry_min,
        }
        # One field after the other: on the way any mixture may be in force.
        between = [
            rules._replace(retention=old.retention),
            old._replace(retention=rules.retention),
            old._replace(retention=rules.retention, ttl_s=rules.ttl_s),
        ]
        self.namespace_rules = [*self.namespace_rules, *between, rules]
        self.lapse()
        try:
            for key, value in changes.items():
                await set_namespace(self.broker_world, key, value)
        except GemingaError:
            return
        if not is_halted():
            self.tell(rules, quotas)
            self.lapse()
            self.namespace_rules = [rules]

    async def change_topic_policy(self, name: str) -> None:
        """Retention of the topic's own; only where the topic is there, as the REST path demands."""
        if not await self.broker_world.broker.topic_exists(TopicName.parse(name)):
            return
        retention = self.rng.choice([None, *RETENTIONS])
        value = None
        if retention is not None:
            value = {"retentionTimeInMinutes": retention[0], "retentionSizeInMB": retention[1]}
        self.topic_retention[name].append(retention)
        self.lapse()
        try:
            whole = TopicName.parse(name).partitioned_topic
            await set_topic(self.broker_world, "retentionPolicies", value, whole)
        except GemingaError:
            return
        if not is_halted():
            self.tell("retention of", name, retention)
            self.lapse()
            self.topic_retention[name] = [retention]

    # ---- checks

    async def check_existence(self, name: str) -> None:
        """A topic that is gone took nothing along that was promised."""
        model = self.topics[name]
        self.notice_departures()
        if not model.exists or await self.broker_world.broker.topic_exists(TopicName.parse(name)):
            self.checks["kept"] += model.exists
            return
        self.lapse()
        if self.deletes_caught_up:
            for subscription in model.subscriptions.values():
                if not subscription.has_consumer and not model.expected(subscription, 1 << 62):
                    subscription.may_be_gone = True
        lost = model.why_it_must_exist()
        assert not lost, f"{name} was deleted with {lost}; rules {self.namespace_rules} {self.topic_retention[name]}"
        self.checks["deleted"] += 1
        self.tell("was deleted", name)
        model.vanished()
        self.plain_acks = [item for item in self.plain_acks if item[1] != name]
        self.unanswered[name].clear()
        if not TopicName.parse(name).is_partition:
            self.topic_retention[name] = [None]

    async def check_subscriptions(self, name: str) -> None:
        """Every subscription that was promised is there; what may be gone and is, is forgotten."""
        await self.check_existence(name)
        model = self.topics[name]
        if not model.exists:
            return
        try:
            topic = await self.broker_world.broker.get_topic(TopicName.parse(name), create=False)
        except GemingaError:
            return
        self.lapse()
        for subscription in list(model.subscriptions.values()):
            if subscription.name not in topic.subscriptions:
                assert subscription.may_be_gone, f"{name}: subscription {subscription.name} is gone"
                del model.subscriptions[subscription.name]

    async def read_everything(self, name: str, *, is_second: bool = False) -> None:
        """A reader from the beginning gets all that was promised, in order and nothing else."""
        await self.check_existence(name)
        model = self.topics[name]
        if not model.exists:
            return
        promised = model.promised()
        client = await self.client()
        request = pb.CommandSubscribe(
            topic=name,
            subscription="reader",
            subType=Sub.Exclusive,
            consumer_id=1,
            request_id=client.next_request_id(),
            durable=False,
            initialPosition=Sub.Earliest,
        )
        request.start_message_id.ledgerId = request.start_message_id.entryId = (1 << 64) - 1
        answer = await client.request(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        if answer is None or answer.type != Type.SUCCESS:
            client.lose()
            return
        flow = pb.CommandFlow(consumer_id=1, messagePermits=10_000)
        client.send(pb.BaseCommand(type=Type.FLOW, flow=flow))
        seen: list[int] = []
        quiet = 0
        while quiet < 5:
            await pause(QUIET_S / 5)
            quiet = 0 if client.messages else quiet + 1
            seen += [number_of(payload) for _, payload in client.messages]
            client.messages.clear()
        if client.is_gone:
            return
        client.lose()
        await pause(0.05)
        self.lapse()
        found = set(seen)
        still = set(model.promised())
        missing = [number for number in promised if number in still and number not in found]
        if missing and not is_second and any(rules.ttl_s for rules in self.namespace_rules):
            # Time to live is looked at each few minutes, for readers too: not twice within seconds.
            await self.read_everything(name, is_second=True)
            return
        assert not missing, f"{name}: a reader did not get {missing} of {promised}; rules {self.namespace_rules}"
        assert found <= model.messages.keys(), (
            f"{name}: a reader got what was never sent: {found - set(model.messages)}"
        )
        first_copies = list(dict.fromkeys(seen))
        # Of one that was sent again the first copy may be deleted already, before those of its neighbours.
        once = [number for number in first_copies if not model.messages[number].is_repeated]
        assert once == sorted(once), f"{name}: out of order: {seen}"
        if self.deduplicates:
            assert len(seen) == len(first_copies), f"{name}: stored twice: {seen}"
        self.tell("read", name, seen, "promised", promised)
        self.checks["read"] += 1

    async def check_everything(self, name: str) -> None:
        """Readers and every subscription get what was promised."""
        await self.read_everything(name)
        await self.check_subscriptions(name)
        for subscription in sorted(self.topics[name].subscriptions):
            await self.drain(name, subscription)

    async def drain(self, topic: str, name: str) -> None:
        """A consumer with room for all gets everything that is left and due, if there is such a subscription."""
        if name not in self.topics[topic].subscriptions:
            return
        consumer = await self.subscribe(topic, name)
        if consumer is None:
            return
        received = set(await self.receive(consumer, 10_000))
        self.lapse()
        due_ms = self.now_ms - int(QUIET_S * 1000) - LATENESS_MS
        expected = self.topics[topic].expected(consumer.subscription, due_ms)
        if not consumer.client.is_gone:
            missing = [number for number in expected if number not in received]
            assert not missing, f"{topic} {name}: {missing} of {expected} did not come; got {sorted(received)}"
            self.forget(consumer)
            await pause(0.05)

    # ---- the story

    def plan(self) -> None:
        """Decide where this life ends."""
        self.faults = MetadataFaults(delay_ms_max=self.rng.choice((0, 0, 3)))
        if self.rng.random() < 0.2:
            self.faults.unknown_before_percent = self.faults.unknown_after_percent = 4.0
        roll = self.rng.random()
        if roll < 0.35:
            self.world.crash_at_disk_step(self.node, self.rng.randint(5, 150))
        elif roll < 0.7:
            boot = self.node.boot
            self.world.loop.call_later(self.rng.choice((1, 30, 600)) * self.rng.random(), self.cut, boot)

    def cut(self, boot: object) -> None:
        if self.node.boot is boot:
            self.world.crash(self.node, reason="cut off")

    async def run(self) -> None:
        """Some lives, most of which end in a crash, then one that must find everything."""
        for _ in range(LIVES - 1):
            self.node.start()
            self.plan()
            try:
                await self.node.run(lambda node: self.live(node, is_last=False))
            except NodeCrashedError:
                pass
            self.crashed()
            await self.world.sleep(self.rng.choice((0.01, 1, 2000)))
        self.node.disk.on_step = None
        self.faults = MetadataFaults()
        self.node.start()
        await self.node.run(lambda node: self.live(node, is_last=True))

    def crashed(self) -> None:
        """Connections are gone, and acknowledgements without a response may be."""
        self.world.crash(self.node, power_loss=self.rng.random() < 0.7, reason="end of life")
        self.node.disk.on_step = None
        self.producers.clear()
        self.tell("crashed")
        self.plain_acks.clear()
        for consumer in self.consumers:
            subscription = consumer.subscription
            subscription.has_consumer = False
            # That it came is known; how long it stayed need not be.
            if self.node.clock.wall_ms() - consumer.since_ms >= NOTED_MS:
                subscription.last_used_ms = consumer.since_ms
        self.consumers.clear()
        for model in self.topics.values():
            for subscription in model.subscriptions.values():
                subscription.last_used_ms -= STALE_NOTE_MS


def number_of(payload: bytes) -> int:
    """The number at the beginning of the message behind an entry's metadata."""
    size = int.from_bytes(payload[6:10], "big")
    return int(payload[10 + size : 22 + size])


async def broker_story(world: SimWorld) -> None:
    """The scenario; a failure tells its story."""
    story = BrokerStory(world)
    try:
        await story.run()
    except BaseException as error:
        error.add_note("\n".join(story.told))
        raise
