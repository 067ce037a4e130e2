"""Each policy at each level that has it: on a loaded topic at once, after an unload, after a restart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga.broker.subscription.dispatch_shared import SharedDispatch
from geminga.broker.topic.delays import LongestDelay
from geminga.broker.topic.message_size import MessageSize
from geminga.broker.upkeep.policies import PolicyUpkeep
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.position import EARLIEST
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker, send_frame
from support.worlds.policy_levels import LEVELS, NAME, run_quietly, seconds, set_namespace, set_topic, topic_of

MINUTE_S = 60
#: Whether a topic behaves as the policy wants: told after every way that the topic can have come to know it.
Look = Callable[[BrokerWorld], Awaitable[object]]


async def set_at(world: BrokerWorld, level: str, keys: dict[str, str], value: object) -> None:
    if level == "namespace":
        await set_namespace(world, keys[level], value)
    elif level == "topic":
        await set_topic(world, keys[level], value)


async def seen_everywhere(world: BrokerWorld, look: Look) -> list[object]:
    """What is seen at once, after an unload, and after a restart."""
    seen = [await look(world)]
    await world.broker.registry.unload(NAME)
    seen.append(await look(world))
    await world.restart()
    return [*seen, await look(world)]


def holds_at_each_level(
    level: str, keys: dict[str, str], value: object, look: Look, expected: object, **of_broker: object
) -> None:
    """With ``value`` at ``level`` alone ``expected`` is seen; without it something else."""

    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        if level != "broker":
            assert await look(world) != expected
        await set_at(world, level, keys, value)
        assert await seen_everywhere(world, look) == [expected] * 3
        if level != "broker":
            await set_at(world, level, keys, None)
            assert all(one != expected for one in await seen_everywhere(world, look))

    run_quietly(scenario, **(of_broker if level == "broker" else {}))


class Guests:
    """Producers and consumers, each on a connection of its own, that leave together."""

    def __init__(self, world: BrokerWorld) -> None:
        self._world = world
        self._clients: list[Client] = []

    async def producer(self, **fields: object) -> int:
        """The error that a new producer is told; -1: it was let in."""
        client = await self._client()
        client.request_producer(TOPIC, **fields)
        return await self._answer(client)

    async def consumer(self, subscription: str = "s") -> int:
        """The same of a consumer."""
        client = await self._client()
        request = pb.CommandSubscribe(
            topic=TOPIC, subscription=subscription, subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=1
        )
        client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        return await self._answer(client)

    async def leave(self) -> None:
        """All go; their subscriptions too."""
        for client in self._clients:
            client.lose()
        self._clients.clear()
        await seconds(0.1)
        topic = await topic_of(self._world)
        for name in list(topic.subscriptions):
            await topic.delete_subscription(name, force=True)

    async def _client(self) -> Client:
        self._clients.append(await self._world.client())
        return self._clients[-1]

    async def _answer(self, client: Client) -> int:
        await client.wait_for_news()
        command, _ = client.received.popleft()
        return command.error.error if command.type == Type.ERROR else -1


async def new_producer(world: BrokerWorld, **fields: object) -> int:
    """The error that a new producer is told, who leaves again; -1: it was let in."""
    guests = Guests(world)
    answer = await guests.producer(**fields)
    await guests.leave()
    return answer


async def new_consumer(world: BrokerWorld) -> int:
    """The same of a consumer."""
    guests = Guests(world)
    answer = await guests.consumer()
    await guests.leave()
    return answer


async def counted(world: BrokerWorld, attach: Callable[[Guests, int], Awaitable[int]]) -> tuple[int, int]:
    """How many are let in of five, and the error of the first that is not (-1: nobody)."""
    guests = Guests(world)
    answers = [await attach(guests, number) for number in range(5)]
    await guests.leave()
    let_in = answers.count(-1)
    return let_in, answers[let_in] if let_in < len(answers) else -1


LIMITS = {
    "maxProducers": (
        {"namespace": "max_producers_per_topic", "topic": "maxProducerPerTopic"},
        "producers_per_topic_max",
        lambda world: counted(world, lambda guests, _: guests.producer()),
        (2, pb.ProducerBusy),
    ),
    "maxConsumers": (
        {"namespace": "max_consumers_per_topic", "topic": "maxConsumerPerTopic"},
        "max_consumers_per_topic",
        lambda world: counted(world, lambda guests, number: guests.consumer(f"s{number}")),
        (2, pb.ConsumerBusy),
    ),
    "maxConsumersPerSubscription": (
        {"namespace": "max_consumers_per_subscription", "topic": "maxConsumersPerSubscription"},
        "max_consumers_per_subscription",
        lambda world: counted(world, lambda guests, _: guests.consumer()),
        (2, pb.ConsumerBusy),
    ),
    "maxSubscriptionsPerTopic": (
        {"namespace": "max_subscriptions_per_topic", "topic": "maxSubscriptionsPerTopic"},
        "max_subscriptions_per_topic",
        lambda world: counted(world, lambda guests, number: guests.consumer(f"s{number}")),
        (2, pb.NotAllowedError),
    ),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("policy", LIMITS)
def test_limit_of_each_level_holds(policy: str, level: str) -> None:
    keys, setting, look, expected = LIMITS[policy]
    holds_at_each_level(level, keys, 2, look, expected, **{setting: 2})


@pytest.mark.parametrize("policy", LIMITS)
def test_no_limit_of_the_topic_beats_the_limit_of_the_namespace(policy: str) -> None:
    keys, _, look, _ = LIMITS[policy]

    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await set_at(world, "namespace", keys, 1)
        assert (await look(world))[0] == 1
        await set_at(world, "topic", keys, 0)
        assert await seen_everywhere(world, look) == [(5, -1)] * 3

    run_quietly(scenario)


def test_clients_of_one_address_are_counted_by_themselves() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        guests = Guests(world)
        names = ("", "", "", "pulsar.repl.west-->standalone")
        answers = [await guests.producer(**({"producer_name": name} if name else {})) for name in names]
        # A replicator is many clients' of another cluster.
        assert answers == [-1, -1, pb.ProducerBusy, -1]
        assert [await guests.consumer(f"s{number}") for number in range(3)] == [-1, -1, pb.ConsumerBusy]
        other = Client(world.broker, address="10.0.0.1")
        await other.connect()
        await other.create_producer()
        await other.subscribe(subscription="s0", subType=pb.CommandSubscribe.Shared)

    run_quietly(scenario, producers_per_address_max=2, max_consumers_per_address=2)


@pytest.mark.parametrize("level", LEVELS)
def test_subscriptions_on_demand_by_level(level: str) -> None:
    keys = dict.fromkeys(("namespace", "topic"), "autoSubscriptionCreationOverride")

    async def look(world: BrokerWorld) -> object:
        return (await counted(world, lambda guests, _: guests.consumer()))[1]

    holds_at_each_level(
        level,
        keys,
        {"allowAutoSubscriptionCreation": False},
        look,
        pb.SubscriptionNotFound,
        allow_auto_subscription_creation=False,
    )


def test_subscriptions_on_demand_are_allowed_by_a_topic_in_a_namespace_that_forbids_them() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await set_namespace(world, "autoSubscriptionCreationOverride", {"allowAutoSubscriptionCreation": False})
        assert await new_consumer(world) == pb.SubscriptionNotFound
        await set_topic(world, "autoSubscriptionCreationOverride", {"allowAutoSubscriptionCreation": True})
        assert await new_consumer(world) == -1

    run_quietly(scenario)


def schema(kind: int, data: bytes = b"") -> pb.Schema:
    return pb.Schema(name="s", type=kind, schema_data=data)


STRING = schema(pb.Schema.String)
RECORD = schema(pb.Schema.Avro, b'{"type":"record","name":"R","fields":[]}')


@pytest.mark.parametrize("level", LEVELS)
def test_schemas_follow_the_topic(level: str) -> None:
    """A strategy, and whether producers need a schema."""
    strategies = {"namespace": "schema_compatibility_strategy", "topic": "schemaCompatibilityStrategy"}
    enforced = {"namespace": "schema_validation_enforced", "topic": "schemaValidationEnforced"}

    async def look(world: BrokerWorld) -> object:
        return [await new_producer(world, schema=one) for one in (STRING, RECORD)]

    async def look_without(world: BrokerWorld) -> object:
        return await new_producer(world)

    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        assert await new_producer(world, schema=STRING) == -1
        if level != "broker":
            assert await look(world) == [-1, pb.IncompatibleSchema]
            assert await look_without(world) == -1
        await set_at(world, level, strategies, "ALWAYS_COMPATIBLE")
        await set_at(world, level, enforced, True)
        assert await seen_everywhere(world, look) == [[-1, -1]] * 3
        assert await seen_everywhere(world, look_without) == [pb.IncompatibleSchema] * 3

    of_broker = {"schema_compatibility_strategy": "ALWAYS_COMPATIBLE", "schema_validation_enforced": True}
    run_quietly(scenario, **(of_broker if level == "broker" else {}))


def test_schema_policies_of_a_topic_beat_those_of_its_namespace() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await set_namespace(world, "schema_compatibility_strategy", "ALWAYS_COMPATIBLE")
        await set_namespace(world, "schema_validation_enforced", True)
        assert await new_producer(world, schema=STRING) == -1
        await set_topic(world, "schemaCompatibilityStrategy", "ALWAYS_INCOMPATIBLE")
        await set_topic(world, "schemaValidationEnforced", False)
        assert await new_producer(world, schema=RECORD) == pb.IncompatibleSchema
        assert await new_producer(world) == -1

    run_quietly(scenario)


@pytest.mark.parametrize("level", LEVELS)
def test_subscriptions_expire_by_topic(level: str) -> None:
    keys = {"namespace": "subscription_expiration_time_minutes", "topic": "subscriptionExpirationTimeInMinutes"}

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_at(world, level, keys, 10)
        await topic.create_subscription("idle", EARLIEST)
        await seconds(8 * MINUTE_S)
        await PolicyUpkeep(world.broker).expire_subscriptions(topic)
        assert "idle" in topic.subscriptions
        await world.restart()
        topic = await topic_of(world)
        await seconds(6 * MINUTE_S)
        await PolicyUpkeep(world.broker).expire_subscriptions(topic)
        assert "idle" not in topic.subscriptions

    run_quietly(scenario, **({"subscription_expiry_minutes": 10} if level == "broker" else {}))


def test_policy_that_changes_while_its_topic_loads_is_followed() -> None:
    """The change comes at each moment of the load: the topic that comes of it knows the new value."""

    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        world.metadata.faults.delay_ms_max = 50
        for number in range(30):
            await world.broker.registry.unload(NAME)
            loading = world.client()
            client = await loading
            client.request_producer(TOPIC, producer_id=1)
            await seconds(0.003 * number)
            await set_topic(world, "maxProducerPerTopic", 100 + number)
            await set_namespace(world, "max_consumers_per_topic", 200 + number)
            await client.wait_for_news()
            limits = (await topic_of(world)).limits
            assert (limits.producers, limits.consumers) == (100 + number, 200 + number), number
            client.lose()

    run_quietly(scenario)


@pytest.mark.parametrize("deduplication", [False, True])
def test_entries_larger_than_the_topic_takes_are_refused_and_no_others(deduplication: bool) -> None:
    async def answers(world: BrokerWorld) -> list[bool]:
        """Of messages of four sizes that come with one read, whether they are stored."""
        client = await world.publisher()
        for sequence_id, size in enumerate((10, 2000, 10, 3000)):
            client.send_message(sequence_id, b"x" * size)
        found = []
        for _ in range(4):
            while not client.received:
                await client.wait_for_news()
            command, _ = client.received.popleft()
            assert command.type in (Type.SEND_RECEIPT, Type.SEND_ERROR)
            if command.type == Type.SEND_ERROR:
                assert command.send_error.error == pb.NotAllowedError
                assert command.send_error.message == "Exceed maximum message size"
            found.append(command.type == Type.SEND_RECEIPT)
        client.lose()
        await seconds(0.1)
        return found

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        assert await answers(world) == [True] * 4
        assert topic.parts.find(MessageSize) is None
        await set_topic(world, "maxMessageSize", 1000)
        assert await seen_everywhere(world, answers) == [[True, False, True, False]] * 3
        await set_topic(world, "maxMessageSize", 2500)
        assert await answers(world) == [True, True, True, False]
        await set_topic(world, "maxMessageSize", 0)
        assert await answers(world) == [True] * 4
        assert (await topic_of(world)).parts.find(MessageSize) is None

    run_quietly(scenario, deduplication=deduplication)


@pytest.mark.parametrize("level", LEVELS)
def test_messages_that_wait_for_too_long_are_refused_and_no_others(level: str) -> None:
    async def look(world: BrokerWorld) -> object:
        """Of messages that come with one read and wait for 0, 2, 5 and 6 s: what they are answered."""
        client = await world.publisher()
        now_ms = world.runtime.clock.wall_ms()
        for sequence_id, delay_ms in enumerate((0, 2000, 5000, 6000)):
            metadata = {"publish_time": now_ms, "deliver_at_time": now_ms + delay_ms}
            client.send_message(sequence_id, metadata=metadata if delay_ms else {})
        found = []
        for _ in range(4):
            await client.wait_for_news()
            command, _ = client.received.popleft()
            found.append(command.send_error.message if command.type == Type.SEND_ERROR else "")
        client.lose()
        await seconds(0.1)
        return found

    delays = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 5000}
    value: object = delays if level == "namespace" else 5000
    keys = {"namespace": "delayed_delivery_policies", "topic": "delayedDeliveryMaxDelayInMillis"}
    expected = ["", "", "", "Exceeds max allowed delivery delay of 5000 milliseconds"]
    holds_at_each_level(level, keys, value, look, expected, delayed_delivery_longest_ms=5000)


def test_messages_that_do_not_wait_are_not_asked_how_long() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_topic(world, "delayedDeliveryMaxDelayInMillis", 5000)
        part = topic.parts.find(LongestDelay)
        assert part is not None
        await set_topic(world, "delayedDeliveryMaxDelayInMillis", 6000)
        assert part.longest_ms == 6000
        await set_topic(world, "delayedDeliveryEnabled", False)
        assert topic.parts.find(LongestDelay) is None

    run_quietly(scenario)


KEYS = [pb.EncryptionKeys(key="k", value=b"v")]


@pytest.mark.parametrize("topic", [TOPIC, "non-persistent://public/default/direct"])
def test_what_is_not_encrypted_is_refused_where_the_namespace_says_so(topic: str) -> None:
    """1. Who does not encrypt is sent away and refused. 2. Of one read what has keys is taken. 3. No more so."""

    async def scenario(world: BrokerWorld) -> None:
        plain, client = await world.client(), await world.client()
        await plain.create_producer(topic)
        await client.create_producer(topic, encrypted=True)
        await set_namespace(world, "encryption_required", True)
        assert (await plain.expect(Type.CLOSE_PRODUCER)).close_producer.producer_id == 1
        plain.request_producer(topic)
        refused = await plain.error()
        assert (refused.error, refused.message) == (pb.MetadataError, f"Encryption is required in {topic}")
        each = ({"encryption_keys": KEYS}, {}, {"encryption_keys": KEYS}, {}, {"marker_type": 20})
        client.send_bytes(b"".join(send_frame(number, metadata=fields) for number, fields in enumerate(each)))
        found: list[object] = []
        for _ in each:
            await client.wait_for_news()
            command, _ = client.received.popleft()
            found.append(command.send_error.message or command.send_receipt.sequence_id)
        assert found == [0, "Messages must be encrypted", 2, "Messages must be encrypted", 4]
        await set_namespace(world, "encryption_required", False)
        await plain.create_producer(topic)
        client.send_message(5)
        await client.receipt()

    run_quietly(scenario)


def test_a_replicator_copies_what_is_encrypted_and_nothing_else() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await set_namespace(world, "encryption_required", True)
        client = await world.client()
        fields = {"replicated_from": "west"}
        await client.create_producer(producer_name="pulsar.repl.west-->standalone")
        for number, more in enumerate(({"encryption_keys": KEYS}, {}, {"encryption_keys": KEYS})):
            client.send_message(number, metadata={**fields, **more})
        await client.receipt()
        assert (await client.expect(Type.SEND_ERROR)).send_error.message == "Messages must be encrypted"
        # Nothing overtakes what was refused.
        await client.expect(Type.CLOSE_PRODUCER)
        assert (await topic_of(world)).publishing.messages_in == 1

    run_quietly(scenario)


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_new_is_sent_while_ranges_are_too_many(level: str) -> None:
    """1. Every second message is acknowledged. 2. Nothing new comes. 3. A range less: it goes on. 4. Off: too."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        sender, client = await world.client(), await world.client()
        await sender.create_producer()
        await client.subscribe(subscription="s", subType=pb.CommandSubscribe.Shared, permits=6)
        key = "dispatcherPauseOnAckStatePersistentEnabled"
        await set_at(world, level, {"namespace": key, "topic": key}, True)
        for number in range(20):
            await sender.publish(number, b"%d" % number)
        ids = [(await client.expect(Type.MESSAGE)).message.message_id for _ in range(6)]

        async def acknowledge(*numbers: int) -> list[int]:
            """What comes then."""
            ack = pb.CommandAck(
                consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[ids[number] for number in numbers]
            )
            client.send(pb.BaseCommand(type=Type.ACK, ack=ack))
            client.send(pb.BaseCommand(type=Type.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=2)))
            await seconds(1)
            found = [command.message.message_id for command, _ in client.received if command.type == Type.MESSAGE]
            client.received.clear()
            ids.extend(found)
            return [ids.index(each) for each in found]

        assert await acknowledge(1) == [6, 7]
        assert await acknowledge(3) == [8, 9]
        assert await acknowledge(5) == []
        dispatch = topic.subscriptions["s"].dispatch
        assert isinstance(dispatch, SharedDispatch)
        assert dispatch.pause.is_on
        assert await acknowledge(2) == [10, 11, 12, 13]
        assert not dispatch.pause.is_on
        assert await acknowledge(7) == []
        await set_at(world, level, {"namespace": key, "topic": key}, False)
        if level != "broker":
            await seconds(1)
            assert len([command for command, _ in client.received if command.type == Type.MESSAGE]) == 2

    ledgers = ManagedLedgerConfig(max_ranges_in_entry=2)
    run_quietly(scenario, ledger_config=ledgers, **({"dispatcher_pause": True} if level == "broker" else {}))


def test_who_comes_back_while_dispatch_is_paused_gets_what_is_between_the_ranges() -> None:
    """Else nothing would ever be acknowledged again, and nobody would get anything."""

    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await set_topic(world, "dispatcherPauseOnAckStatePersistentEnabled", True)
        sender, client = await world.client(), await world.client()
        await sender.create_producer()
        await client.subscribe(subscription="s", subType=pb.CommandSubscribe.Shared, permits=6)
        for number in range(10):
            await sender.publish(number, b"%d" % number)
        ids = [(await client.expect(Type.MESSAGE)).message.message_id for _ in range(6)]
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids[1::2])
        client.send(pb.BaseCommand(type=Type.ACK, ack=ack))
        await seconds(1)
        await world.restart()
        client = await world.subscriber(subscription="s", subType=pb.CommandSubscribe.Shared, permits=6)
        again = [(await client.expect(Type.MESSAGE)).message.message_id for _ in range(3)]
        assert again == ids[::2]
        await seconds(1)
        assert not client.received
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=again)
        client.send(pb.BaseCommand(type=Type.ACK, ack=ack))
        assert (await client.expect(Type.MESSAGE)).message.message_id.entryId == ids[-1].entryId + 1

    run_quietly(scenario, ledger_config=ManagedLedgerConfig(max_ranges_in_entry=2))


def inactive(mode: str = "delete_when_no_subscriptions", after_s: int = 600, is_on: bool = True) -> dict[str, object]:
    return {"deleteWhileInactive": is_on, "inactiveTopicDeleteMode": mode, "maxInactiveDurationSeconds": after_s}


INACTIVE = {"namespace": "inactive_topic_policies", "topic": "inactiveTopicPolicies"}
#: The broker itself keeps topics.
KEEPS = {"keep_alive_interval_s": 1_000_000, "delete_inactive_topics": False}


@pytest.mark.parametrize("level", ["namespace", "topic"])
@pytest.mark.parametrize("moment", ["at once", "after an unload", "after a restart"])
def test_topic_goes_when_its_own_policies_say_so(level: str, moment: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await set_at(world, level, INACTIVE, inactive())
        if moment == "after an unload":
            await world.broker.registry.unload(NAME)
        elif moment == "after a restart":
            await world.restart()
        await topic_of(world)
        await seconds(540)
        assert await world.broker.registry.exists(NAME)
        await seconds(121)
        assert not await world.broker.registry.exists(NAME)

    run_with_broker(scenario, **KEEPS)


def test_topic_stays_where_its_own_policies_keep_it_from_the_brokers() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await set_namespace(world, "inactive_topic_policies", inactive())
        await set_topic(world, "inactiveTopicPolicies", inactive(is_on=False))
        await seconds(3000)
        assert await world.broker.registry.exists(NAME)
        await set_topic(world, "inactiveTopicPolicies", None)
        await seconds(700)
        assert not await world.broker.registry.exists(NAME)

    run_with_broker(scenario, keep_alive_interval_s=1_000_000)


@pytest.mark.parametrize("hold", ["subscription", "backlog", "retention", "delayed"])
def test_what_a_topic_still_needs_keeps_it_whatever_its_policies_say(hold: str) -> None:
    """The mode of the topic's own policies decides of subscriptions; a backlog and retention hold it in both."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        subscription = await topic.create_subscription("s", EARLIEST)
        if hold in ("backlog", "delayed"):
            client = await world.publisher()
            later = world.runtime.clock.wall_ms() + 10_000_000
            client.send_message(0, metadata={"deliver_at_time": later} if hold == "delayed" else {})
            await client.receipt()
            client.lose()
        if hold == "retention":
            await set_topic(world, "retentionPolicies", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
        caught_up = inactive("delete_when_subscriptions_caught_up")
        await set_topic(world, "inactiveTopicPolicies", inactive() if hold == "subscription" else caught_up)
        await seconds(3000)
        assert await world.broker.registry.exists(NAME)
        # What held it goes.
        if hold == "subscription":
            await set_topic(world, "inactiveTopicPolicies", caught_up)
        elif hold == "retention":
            await set_topic(world, "retentionPolicies", None)
        else:
            await subscription.cursor.clear_backlog()
        await seconds(800)
        assert not await world.broker.registry.exists(NAME)

    run_with_broker(scenario, **KEEPS)
