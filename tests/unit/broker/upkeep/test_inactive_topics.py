"""Deletion of topics that nobody uses, and everything that holds them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.resources import Resources
from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.registry import schema_id_of
from geminga.broker.topic.persistent import DELETION_PROPERTY, PersistentTopic
from geminga.broker.upkeep import inactive_topics
from geminga.managed_ledger import AppendResult, ManagedLedgerConfig, ManagedLedgerFactory
from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.model.errors import GemingaError, TopicNotFoundError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.metadata_behind import MetadataBehind
from support.worlds.metadata_stores import UnreachableStore
from support.worlds.policy_levels import LEVELS, NAMESPACE, SMALL_LEDGERS, seconds, set_namespace, set_topic

T = TypeVar("T")

NAME = TopicName.parse(TOPIC)
SWEEP_S = 10
#: The stream of a virtual week is not pinged; sweeps are frequent.
QUIET = {"delete_inactive_topics_frequency_s": SWEEP_S, "keep_alive_interval_s": 1_000_000}
FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
AN_HOUR = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}


async def opened(world: BrokerWorld, name: TopicName = NAME) -> PersistentTopic:
    topic = await world.broker.registry.get(name, create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


async def fill(topic: PersistentTopic, count: int) -> None:
    """Store ``count`` entries."""
    stored = asyncio.get_running_loop().create_future()
    left = count

    def done(result: AppendResult) -> None:
        nonlocal left
        assert result.error is None
        left -= result.count
        if not left:
            stored.set_result(None)

    topic.ledger.append([b"message %d" % number for number in range(count)], done)
    await stored


async def stored_entries(world: BrokerWorld, name: TopicName = NAME) -> int:
    """Entries that can be read from the beginning by a broker that loads the topic now."""
    await world.broker.registry.unload(name)
    ledger = (await world.broker.registry.get(name, create=False)).ledger
    count, position = 0, Position(-1, -1)
    while entries := await ledger.reader.read_range(position, 5000, 1 << 30):
        count += len(entries)
        position = ledger.ledgers.next_position(entries[-1].position)
    return count


async def set_retention(world: BrokerWorld, level: str, value: object) -> None:
    if level == "namespace":
        await set_namespace(world, "retention_policies", value)
    elif level == "topic":
        await set_topic(world, "retentionPolicies", value)


def broker_retention(level: str, minutes: int, mb: int) -> dict[str, int]:
    return {"default_retention_minutes": minutes, "default_retention_mb": mb} if level == "broker" else {}


def test_topic_nobody_uses_is_deleted() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.registry.get(NAME, create=True)
        await seconds(125)
        assert not await world.broker.registry.exists(NAME)

    run_with_broker(scenario)


def test_topics_behind_those_of_one_turn_are_deleted_by_the_same_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inactive_topics, "TOPICS_PER_TURN", 2)

    async def scenario(world: BrokerWorld) -> None:
        for index in range(5):
            await world.broker.registry.get(TopicName.parse(f"topic-{index}"), create=True)
        await seconds(SWEEP_S - 1)
        assert len(world.broker.topics) == 5
        await seconds(SWEEP_S)
        assert not world.broker.topics

    run_with_broker(scenario, **QUIET, delete_inactive_topics_after_s=SWEEP_S - 1)


def test_topic_with_a_subscription_or_a_producer_stays() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.registry.get(NAME, create=True)
        await topic.create_subscription("sub", EARLIEST)
        other = TopicName.parse("other")
        await (await world.client()).create_producer(str(other))
        await seconds(50)
        assert await world.broker.registry.exists(NAME)
        assert await world.broker.registry.exists(other)

    run_with_broker(scenario, **QUIET)


def test_subscription_named_like_a_cursor_of_the_broker_keeps_its_topic_over_a_restart() -> None:
    """Every name that begins with "pulsar." was taken for a cursor of the broker: the topic went, and its position."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.registry.get(NAME, create=True)
        await topic.create_subscription("pulsar.billing", EARLIEST)
        await world.restart()
        assert list((await world.broker.registry.get(NAME, create=False)).subscriptions) == ["pulsar.billing"]
        await seconds(200)
        assert await world.broker.registry.exists(NAME)

    run_with_broker(scenario, **QUIET)


def test_caught_up_subscriptions_do_not_keep_a_topic_in_that_mode() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.registry.get(NAME, create=True)
        await topic.create_subscription("sub", EARLIEST)
        behind = await opened(world, TopicName.parse("behind"))
        await behind.create_subscription("sub", EARLIEST)
        await fill(behind, 1)
        await seconds(25)
        assert not await world.broker.registry.exists(NAME)
        assert await world.broker.registry.exists(behind.name)

    run_with_broker(scenario, **QUIET, delete_inactive_topics_mode="delete_when_subscriptions_caught_up")


def test_nothing_is_deleted_when_switched_off() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.registry.get(NAME, create=True)
        await seconds(1000)
        assert await world.broker.registry.exists(NAME)

    run_with_broker(scenario, delete_inactive_topics=False)


# ---- retention


@pytest.mark.parametrize("level", LEVELS)
def test_idle_topic_under_retention_without_limit_keeps_its_20000_messages(level: str) -> None:
    """No subscription, no producer: the sweep came within a minute or two and took all of it."""

    async def scenario(world: BrokerWorld) -> None:
        await set_retention(world, level, FOR_EVER)
        await fill(await opened(world), 20_000)
        await seconds(100 * SWEEP_S)
        assert await world.broker.registry.exists(NAME), "deleted with 20000 messages under retention -1/-1"
        assert await stored_entries(world) == 20_000

    run_with_broker(scenario, **QUIET, **broker_retention(level, -1, -1))


@pytest.mark.parametrize("level", LEVELS)
def test_idle_topic_goes_when_its_retention_time_has_passed_since_its_last_use(level: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await set_retention(world, level, AN_HOUR)
        await fill(await opened(world), 10)
        await seconds(1800)
        client = await world.publisher()
        await client.close_producer()
        await seconds(3600 - 1)
        assert await world.broker.registry.exists(NAME)
        await seconds(2 * SWEEP_S)
        assert not await world.broker.registry.exists(NAME)

    run_with_broker(scenario, **QUIET, **broker_retention(level, 60, -1))


def test_empty_topic_under_retention_without_limit_stays_and_goes_when_the_policy_does() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await set_namespace(world, "retention_policies", FOR_EVER)
        await opened(world)
        await seconds(10 * SWEEP_S)
        assert await world.broker.registry.exists(NAME)
        await set_namespace(world, "retention_policies", None)
        await seconds(2 * SWEEP_S)
        assert not await world.broker.registry.exists(NAME)

    run_with_broker(scenario, **QUIET)


def test_retention_of_the_topic_wins_over_that_of_its_namespace() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await set_namespace(world, "retention_policies", FOR_EVER)
        await set_topic(world, "retentionPolicies", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
        await fill(await opened(world), 1)
        await seconds(3 * SWEEP_S)
        assert not await world.broker.registry.exists(NAME)

    run_with_broker(scenario, **QUIET)


def test_expired_messages_are_acknowledged_and_still_retained() -> None:
    """A time to live takes messages from subscriptions; an expired subscription goes; retention holds the rest."""

    async def scenario(world: BrokerWorld) -> None:
        await set_namespace(world, "retention_policies", FOR_EVER)
        topic = await opened(world)
        subscription = await topic.create_subscription("sub", EARLIEST)
        await fill(topic, 50)
        await seconds(1200)
        assert subscription.cursor.backlog_count == 0
        await seconds(7200)
        assert not topic.subscriptions
        await seconds(10 * SWEEP_S)
        assert await stored_entries(world) == 50

    run_with_broker(
        scenario,
        **QUIET,
        ledger_config=SMALL_LEDGERS,
        message_ttl_s=60,
        message_expiry_check_minutes=1,
        subscription_expiry_minutes=60,
    )


def test_policy_that_no_watch_told_of_holds_at_the_moment_of_deletion() -> None:
    """Another broker set it: what is remembered says that the topic may go."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await opened(world)
        await fill(topic, 10)
        world.metadata.faults.watch_lost_percent = 100
        await world.resources.namespaces.set_policy(NAMESPACE, "retention_policies", FOR_EVER)
        assert topic.rules.retention.limits == (0, 0)
        await seconds(10 * SWEEP_S)
        assert await world.broker.registry.exists(NAME), "deleted under a policy that was stored before"
        assert await stored_entries(world) == 10

    run_with_broker(scenario, **QUIET)


def test_policy_that_a_server_which_lags_behind_does_not_know_holds_at_the_moment_of_deletion() -> None:
    async def scenario(node: sim.SimNode) -> None:
        store = MetadataBehind(node.runtime)
        world = BrokerWorld(node.runtime, BrokerConfig(**QUIET), ManagedLedgerConfig(), store=store)
        await world.start()
        await fill(await opened(world), 10)
        path = f"/admin/policies/{NAMESPACE}"
        before = await store.get(path)
        store.faults.watch_lost_percent = 100
        await world.resources.namespaces.set_policy(NAMESPACE, "retention_policies", FOR_EVER)
        store.nodes_before[path] = before
        await seconds(10 * SWEEP_S)
        assert await world.broker.registry.exists(NAME), "deleted under a policy that was stored before"
        assert await stored_entries(world) == 10
        await world.stop()

    async def main(world: sim.SimWorld) -> None:
        await world.node("broker").run(scenario)

    sim.run(main)


def test_policy_of_the_topic_set_while_it_is_closed_keeps_it() -> None:
    """The change comes between the second look and the deletion: what was judged is not what would be deleted."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await opened(world)
        await fill(topic, 10)
        await set_topic(world, "messageTTLInSeconds", 77)
        policies = await world.broker.policies.topics.get(NAME)

        async def nothing_holds(_: object) -> None:
            # As if it was changed at once after the answer.
            await set_topic(world, "retentionPolicies", FOR_EVER)

        with pytest.raises(GemingaError):
            await world.broker.registry.delete_unless(topic, nothing_holds)
        assert policies is not None
        assert await stored_entries(world) == 10
        kept = await world.broker.policies.topics.get(NAME)
        assert kept is not None
        assert kept.document["retentionPolicies"] == FOR_EVER

    run_with_broker(scenario, delete_inactive_topics=False)


async def with_all_that_a_topic_has(world: BrokerWorld) -> PersistentTopic:
    topic = await opened(world)
    await fill(topic, 10)
    info = SchemaInfo("s", SchemaType.STRING, b"")
    await world.broker.schemas.registry.put_if_absent(schema_id_of(NAME), info, Strategy.FULL)
    await set_topic(world, "messageTTLInSeconds", 77)
    return topic


async def what_is_left_when_cut_off(world: BrokerWorld, writes: int, *, is_changed: bool = False) -> str:
    """Of an idle topic whose broker reaches the store for so many more writes: all of it, or nothing."""
    store = UnreachableStore(world.runtime, world.metadata.server)
    world.metadata, world.resources = store, Resources(store)
    await world.restart()
    topic = await with_all_that_a_topic_has(world)

    async def nothing_holds(_: object) -> None:
        store.writes_left = writes
        if is_changed:
            await set_topic(world, "retentionPolicies", FOR_EVER)

    try:
        await world.broker.registry.delete_unless(topic, nothing_holds)
        is_done = True
    except GemingaError:
        is_done = False
    store.writes_left = None
    await world.restart()
    try:
        again = await world.broker.registry.get(NAME, create=False)
    except TopicNotFoundError:
        assert await world.broker.policies.topics.get(NAME) is None
        assert not await world.broker.schemas.registry.has_schema(schema_id_of(NAME))
        return "deleted" if is_done else "finished"
    assert DELETION_PROPERTY not in again.ledger.stored.properties
    assert not again.life.is_going
    assert await stored_entries(world) == 10
    assert await world.broker.schemas.registry.has_schema(schema_id_of(NAME))
    policies = await world.broker.policies.topics.get(NAME)
    assert policies is not None, f"policies are gone, and the topic is not: {writes} writes"
    assert policies.document["messageTTLInSeconds"] == 77
    return "there"


def test_broker_that_is_gone_amid_an_idle_topics_deletion_leaves_all_that_it_has_or_nothing() -> None:
    def outcome(writes: int) -> str:
        return run_with_broker(lambda world: what_is_left_when_cut_off(world, writes), delete_inactive_topics=False)

    outcomes = [outcome(writes) for writes in range(12)]
    assert [*dict.fromkeys(outcomes)] == ["there", "finished", "deleted"], outcomes


def test_policies_that_change_keep_a_topic_also_where_its_deletion_was_noted_and_cut_off() -> None:
    def outcome(writes: int) -> str:
        return run_with_broker(
            lambda world: what_is_left_when_cut_off(world, writes, is_changed=True), delete_inactive_topics=False
        )

    assert {outcome(writes) for writes in range(6)} == {"there"}


# ---- who else is promised something


def test_reader_that_leaves_after_hours_does_not_make_a_topic_idle_for_hours() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await opened(world)
        reader = await world.subscriber(durable=False)
        await seconds(40_000)
        reader.lose()
        await seconds(250)
        assert world.broker.topics.get(TOPIC) is topic, "the time with a Reader counted as idle"
        await seconds(400)
        assert not await world.broker.registry.exists(NAME)

    run_with_broker(scenario, **QUIET, delete_inactive_topics_after_s=300)


def test_reader_that_was_sent_away_by_a_seek_keeps_its_topic_in_each_mode() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await opened(world)
        await fill(topic, 5)
        reader = await world.subscriber(durable=False)
        seek = pb.CommandSeek(consumer_id=1, request_id=reader.next_request_id(), message_publish_time=0)
        reader.send(pb.BaseCommand(type=pb.BaseCommand.SEEK, seek=seek))
        await reader.expect(pb.BaseCommand.SUCCESS)
        await seconds(3 * SWEEP_S)
        assert not topic.subscriptions["sub"].consumers
        assert world.broker.topics.get(TOPIC) is topic

    run_with_broker(scenario, **QUIET, delete_inactive_topics_mode="delete_when_subscriptions_caught_up")


def test_cursor_of_another_cluster_that_is_behind_keeps_the_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await opened(world)
        cursor = await topic.ledger.open_cursor("pulsar.repl.east", initial=EARLIEST)
        await fill(topic, 5)
        await seconds(10 * SWEEP_S)
        assert world.broker.topics.get(TOPIC) is topic
        cursor.acknowledge_cumulative(topic.ledger.extent.last_confirmed_position)
        await seconds(3 * SWEEP_S)
        assert not await world.broker.registry.exists(NAME)

    run_with_broker(scenario, **QUIET)


#: A sweep when the test wants it, of topics that were idle for a second.
BY_HAND = {"delete_inactive_topics_frequency_s": 1000, "delete_inactive_topics_after_s": 1}
#: How long before the sweep (or behind it) a client comes; the store takes up to a tenth of a second for each answer.
LEADS_MS = (-150, -100, -60, -30, -10, -1, 0, 1, 5, 20, 60, 120, 200, 400)


async def sweep_and(world: BrokerWorld, lead_ms: int, coming: Awaitable[T]) -> T:
    """What ``coming`` gives, begun so long before or after a sweep, which is awaited too."""
    world.metadata.faults.delay_ms_max = 100
    sweep = world.broker._inactive_topics.sweep()
    first, second = (coming, sweep) if lead_ms < 0 else (sweep, coming)
    begun = asyncio.ensure_future(first)
    if lead_ms:
        await seconds(abs(lead_ms) / 1000)
    other = asyncio.ensure_future(second)
    await asyncio.wait([begun, other])
    (other if lead_ms < 0 else begun).result()
    return (begun if lead_ms < 0 else other).result()


def test_subscription_that_is_answered_for_is_there_after_a_sweep() -> None:
    """A slow store: the sweep comes before, while and after the subscription's cursor is made."""

    def outcome(lead_ms: int) -> str:
        async def scenario(world: BrokerWorld) -> str:
            topic = await opened(world)
            await fill(topic, 5)
            await seconds(2)

            async def create() -> str:
                try:
                    await topic.create_subscription("sub", EARLIEST)
                except GemingaError:
                    return "refused"
                return "made"

            answer = await sweep_and(world, lead_ms, create())
            if answer == "made":
                kept = await opened(world)
                assert set(kept.subscriptions) == {"sub"}, f"{lead_ms} ms: answered for and gone"
                assert kept.subscriptions["sub"].cursor.backlog_count == 5
            return answer

        return run_with_broker(scenario, **BY_HAND)

    assert {outcome(lead_ms) for lead_ms in LEADS_MS} == {"made", "refused"}


def test_message_that_got_a_receipt_while_the_topic_went_is_stored() -> None:
    """A producer that comes between the look and the deletion is served by the topic, or by the next of its name."""

    def entries(lead_ms: int) -> int:
        async def scenario(world: BrokerWorld) -> int:
            topic = await opened(world)
            await fill(topic, 5)
            await seconds(2)
            client = await world.client()

            async def publish() -> None:
                while True:
                    client.request_producer()
                    await client.wait_for_news()
                    command, _ = client.received.popleft()
                    if command.type == pb.BaseCommand.PRODUCER_SUCCESS:
                        break
                    assert command.error.error == pb.ServiceNotReady
                await client.publish(0)

            await sweep_and(world, lead_ms, publish())
            return await stored_entries(world)

        return run_with_broker(scenario, **BY_HAND)

    assert {entries(lead_ms) for lead_ms in LEADS_MS} == {1, 6}


def test_topic_of_another_owner_loses_nothing() -> None:
    """This broker lost the topic without noticing: neither its ledgers nor cursors, schemas or policies go."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await opened(world)
        await fill(topic, 5)
        schema_id = schema_id_of(NAME)
        info = SchemaInfo("s", SchemaType.STRING, b"")
        await world.broker.schemas.registry.put_if_absent(schema_id, info, Strategy.FULL)
        await set_topic(world, "messageTTLInSeconds", 77)
        cursor = await topic.ledger.open_cursor("pulsar.repl.east", initial=EARLIEST)
        cursor.acknowledge_cumulative(topic.ledger.extent.last_confirmed_position)
        others = ManagedLedgerFactory(world.runtime, world.metadata, world.ledgers.bookkeeper, world.ledger_config)
        taken = await others.open(NAME.managed_ledger_name)
        await taken.stored.set_properties({"owner": "another"})
        await seconds(10 * SWEEP_S)
        assert TOPIC not in world.broker.topics
        assert await world.metadata.exists(ledger_path(NAME.managed_ledger_name))
        assert await world.broker.schemas.registry.has_schema(schema_id)
        assert await world.broker.policies.topics.get(NAME) is not None
        await others.close()
        again = await opened(world)
        assert list(again.ledger.cursors) == ["pulsar.repl.east"]
        assert await stored_entries(world) == 5

    run_with_broker(scenario, **QUIET)


# ---- partitions


def test_partitions_go_one_by_one_and_their_topic_stays_unless_it_is_configured() -> None:
    whole = TopicName.parse("persistent://public/default/whole")

    async def story(world: BrokerWorld) -> int:
        await world.broker.partitions.create(whole, 3)
        for index in range(3):  # what is never used is never loaded, and looked at only then
            await opened(world, whole.with_partition(index))
        await (await opened(world, whole.with_partition(1))).create_subscription("sub", EARLIEST)
        await seconds(5 * SWEEP_S)
        exist = [await world.broker.registry.exists(whole.with_partition(index)) for index in range(3)]
        assert exist == [False, True, False]
        assert await world.broker.registry.partitioned_count(whole) == 3
        await world.broker.topics[str(whole.with_partition(1))].delete_subscription("sub")
        await seconds(5 * SWEEP_S)
        assert not await world.broker.registry.exists(whole.with_partition(1))
        found = await world.broker.resources.partitioned_topics.find(whole)
        return found.partitions if found is not None else 0

    assert run_with_broker(story, **QUIET) == 3
    assert run_with_broker(story, **QUIET, delete_inactive_partitioned_topics=True) == 0
