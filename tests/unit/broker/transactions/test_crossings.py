"""What deletes, trims, moves or closes, across an open transaction: it ends, and nothing else is hurt."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.rest.namespace_routes.deletion import delete_namespace_and_topics
from geminga.broker.subscription import seek
from geminga.model.errors import GemingaError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import next_turn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import Transacting, producing, transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker

NAME = TopicName.parse(TOPIC)
SHARED = pb.CommandSubscribe.Shared
COORDINATOR_LOG = "persistent://pulsar/system/__transaction_log_0"
ASSIGNED = "persistent://pulsar/system/transaction_coordinator_assign-partition-0"
ACK_LOG = f"{TOPIC}-sub__transaction_pending_ack"


def run(scenario, **settings) -> None:
    run_with_broker(scenario, transaction_coordinator_enabled=True, **settings)


async def holding(world: BrokerWorld, timeout_ms: int = 600_000) -> tuple[Transacting, TxnId]:
    """A consumer with messages a, b, c, of which an open transaction holds the first, and has published one."""
    client = await producing(world)
    await client.client.subscribe(subType=SHARED)
    for payload in (b"a", b"b", b"c"):
        await client.publish(payload)
    await wait_ms(50)
    (first, _), *_ = client.messages()
    txn_id = await client.begin(timeout_ms)
    assert not (await client.add_subscription(txn_id)).HasField("error")
    assert not (await client.add_partition(txn_id)).HasField("error")
    assert not (await client.acknowledge([first], txn_id)).HasField("error")
    await client.publish(b"in it", txn_id)
    return client, txn_id


async def everything(world: BrokerWorld, subscription: str = "sub") -> list[bytes]:
    reader = await transacting(world)
    await reader.client.subscribe(subscription=subscription, subType=SHARED)
    await wait_ms(50)
    found = reader.payloads()
    reader.client.lose()
    await wait_ms(50)
    return found


async def is_over(world: BrokerWorld, txn_id: TxnId) -> bool:
    coordinator = await world.broker.transactions.coordinators.find(txn_id.coordinator)
    return not coordinator.state.active


def test_topic_with_an_open_transaction_is_not_inactive() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, txn_id = await holding(world)
        topic = await world.broker.registry.get(NAME, create=False)
        await topic.subscriptions["sub"].delete(force=True)
        client.client.lose()
        await wait_ms(300_000)
        assert NAME.managed_ledger_name in world.ledgers._open
        await (await transacting(world)).finish(txn_id, commit=True)
        assert await everything(world, "later") == [b"a", b"b", b"c", b"in it"]
        await (await world.broker.registry.get(NAME, create=False)).subscriptions["later"].delete(force=True)
        await wait_ms(300_000)
        assert not await world.broker.registry.exists(NAME)
        snapshots = TopicName.parse("persistent://public/default/__transaction_buffer_snapshot")
        assert await world.broker.registry.exists(snapshots), "the broker's own is never inactive"

    run(scenario, delete_inactive_topics_frequency_s=60, delete_inactive_topics_after_s=60)


@pytest.mark.parametrize("commit", [True, False])
def test_messages_that_expire_while_a_transaction_holds_them_are_gone_either_way(commit: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, txn_id = await holding(world)
        topic = await world.broker.registry.get(NAME, create=False)
        subscription = topic.subscriptions["sub"]
        await wait_ms(20_000)
        await seek.expire(subscription, 1_000, is_wanted=lambda: True)
        assert subscription.cursor.backlog_count == 0, "as far as may be read"
        await client.publish(b"later")
        await client.finish(txn_id, commit=commit)
        await wait_ms(50)
        assert client.payloads() == ([b"in it", b"later"] if commit else [b"later"])
        client.client.lose()
        await world.restart()
        expected = [b"in it", b"later"] if commit else [b"later"]
        assert await everything(world) == expected
        assert (
            not (await world.broker.registry.get(NAME, create=False)).subscriptions["sub"].transactions.acks.is_holding
        )

    run(scenario)


@pytest.mark.parametrize("sub_type", [SHARED, pb.CommandSubscribe.Key_Shared])
def test_what_waits_for_its_time_waits_on_behind_an_abort(sub_type: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await producing(world)
        await client.client.subscribe(subType=sub_type)
        due_ms = world.runtime.clock.wall_ms() + 5_000
        receipt = await client.send(b"delayed", metadata={"deliver_at_time": due_ms})
        await wait_ms(50)
        for _ in range(2):
            txn_id = await client.begin()
            await client.add_subscription(txn_id)
            assert not (await client.acknowledge([receipt.send_receipt.message_id], txn_id)).HasField("error")
            await client.finish(txn_id, commit=False)
        await wait_ms(4_000)
        assert client.payloads() == []
        await wait_ms(4_000)
        assert client.payloads() == [b"delayed"]
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        assert not (await client.acknowledge([receipt.send_receipt.message_id], txn_id)).HasField("error")
        await client.finish(txn_id, commit=False)
        assert await client.read() == [b"delayed"], "its time has come"

    run(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_seek_back_across_what_a_transaction_holds(commit: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, txn_id = await holding(world)
        topic = await world.broker.registry.get(NAME, create=False)
        await seek.seek(topic.subscriptions["sub"], EARLIEST)
        assert await everything(world) == [b"b", b"c"], "what is held is nobody's"
        await client.finish(txn_id, commit=commit)
        rest = [b"b", b"c", b"in it"] if commit else [b"a", b"b", b"c"]
        assert await everything(world) == rest
        await world.restart()
        assert await everything(world) == rest

    run(scenario)


def test_what_was_committed_comes_again_after_a_seek_back_and_a_kill() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await producing(world)
        await client.client.subscribe(subType=SHARED)
        for payload in (b"a", b"b", b"c"):
            await client.publish(payload)
        await wait_ms(50)
        for message_id, _ in client.messages():
            txn_id = await client.begin()
            await client.add_subscription(txn_id)
            assert not (await client.acknowledge([message_id], txn_id)).HasField("error")
            await client.finish(txn_id, commit=True)
        topic = await world.broker.registry.get(NAME, create=False)
        await seek.seek(topic.subscriptions["sub"], EARLIEST)
        # Whoever takes over now reads what is stored.
        other = BrokerWorld(
            world.runtime, world.config, world.ledger_config, server=world.metadata.server, bookie=world.bookie
        )
        await other.start()
        assert await everything(other) == [b"a", b"b", b"c"]
        await other.stop()

    run(scenario)


def test_a_commit_that_comes_while_the_cursor_is_moved_counts_behind_that() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, txn_id = await holding(world)
        topic = await world.broker.registry.get(NAME, create=False)
        subscription = topic.subscriptions["sub"]
        await subscription.fence()
        client.ask_end(txn_id, commit=True)
        await wait_ms(1_000)
        assert subscription.transactions.acks.is_holding
        subscription.unfence()
        await wait_ms(1_000)
        assert not subscription.transactions.acks.is_holding
        assert await is_over(world, txn_id)
        assert await everything(world) == [b"b", b"c", b"in it"]

    run(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_unsubscribed_with_acknowledgments_in_a_transaction(commit: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, txn_id = await holding(world)
        topic = await world.broker.registry.get(NAME, create=False)
        await topic.delete_subscription("sub", force=True)
        names = await world.ledgers.encoded_names("public/default/persistent")
        assert [name for name in names if name.endswith("pending_ack")] == []
        # One of that name that is made anew knows nothing of it.
        assert await everything(world) == [b"a", b"b", b"c"]
        await client.finish(txn_id, commit=commit)
        assert await is_over(world, txn_id)
        assert await everything(world) == [b"a", b"b", b"c", *([b"in it"] if commit else [])]

    run(scenario)


@pytest.mark.parametrize("steps", range(-2, 12, 2))
def test_acknowledgment_that_meets_the_deletion_of_its_subscription_leaves_no_log(steps: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await producing(world)
        await client.client.subscribe(subType=SHARED)
        await client.publish(b"a")
        await wait_ms(50)
        ((first, _),) = client.messages()
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        topic = await world.broker.registry.get(NAME, create=False)
        acks = topic.subscriptions["sub"].transactions.acks
        consumer = topic.subscriptions["sub"].consumers[0]
        deletion = topic.delete_subscription("sub", force=True)
        acknowledgment = acks.acknowledge(consumer, txn_id, [first], is_cumulative=False)
        if steps >= 0:
            acknowledging = asyncio.ensure_future(acknowledgment)
            for _ in range(steps):
                await next_turn()
            await deletion
        else:
            deleting = asyncio.ensure_future(deletion)
            for _ in range(-steps):
                await next_turn()
            acknowledging = asyncio.ensure_future(acknowledgment)
            await deleting
        await asyncio.wait([acknowledging])
        error = acknowledging.exception()
        assert isinstance(error, GemingaError) or (error is None and steps >= 0)
        names = await world.ledgers.encoded_names("public/default/persistent")
        assert [name for name in names if name.endswith("pending_ack")] == []
        await client.finish(txn_id, commit=True)
        assert await everything(world) == [b"a"]

    run(scenario)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("comes_back", [True, False])
def test_topic_deleted_with_a_transaction_in_it(commit: bool, comes_back: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, txn_id = await holding(world)
        await world.broker.registry.delete(NAME, force=True)
        names = await world.ledgers.encoded_names("public/default/persistent")
        assert names == ["__transaction_buffer_snapshot"]
        if comes_back:
            again = await producing(world)
            await again.publish(b"new")
            assert await everything(world) == [b"new"]
        await client.finish(txn_id, commit=commit)
        assert await is_over(world, txn_id)
        if comes_back:
            assert await everything(world) == [b"new"]
            await world.restart()
            assert await everything(world) == [b"new"]

    run(scenario)


@pytest.mark.parametrize("other", ["a", "z"])
def test_namespace_deleted_by_force_with_open_transactions_and_made_again(other: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, txn_id = await holding(world)
        name = f"persistent://public/default/{other}"
        await client.client.create_producer(name, 2)
        await client.add_partition(txn_id, name)
        await client.publish(b"there", txn_id, 2)
        await delete_namespace_and_topics(world.broker.administered, "public/default")
        assert await world.ledgers.encoded_names("public/default/persistent") == []
        await world.resources.namespaces.create("public/default", {"replication_clusters": ["standalone"]})
        again = await producing(world)
        await again.publish(b"new")
        fresh = await again.begin()
        assert not (await again.add_partition(fresh)).HasField("error")
        await again.publish(b"in a new one", fresh)
        await again.finish(txn_id, commit=True)
        await again.finish(fresh, commit=True)
        for _ in range(2):
            assert await everything(world) == [b"new", b"in a new one"]
            await world.restart()
        assert await is_over(world, txn_id)

    run(scenario)


@pytest.mark.parametrize("name", [COORDINATOR_LOG, ASSIGNED, ACK_LOG])
def test_what_transactions_store_is_no_topic(name: str) -> None:
    """Whoever could subscribe to a log could acknowledge its records, unload it or delete it."""

    async def scenario(world: BrokerWorld) -> None:
        client, txn_id = await holding(world)
        before = await world.ledgers.encoded_names("public/default/persistent")
        stranger = await world.client()
        stranger.request_producer(name, 9)
        assert (await stranger.error()).error == pb.NotAllowedError
        request = pb.CommandSubscribe(
            topic=name, subscription="x", subType=SHARED, consumer_id=9, request_id=stranger.next_request_id()
        )
        stranger.send(pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=request))
        assert (await stranger.error()).error == pb.NotAllowedError
        parsed = TopicName.parse(name)
        for call in (
            world.broker.registry.get(parsed, create=True),
            world.broker.registry.create(parsed),
            world.broker.registry.delete(parsed, force=True),
            world.broker.registry.terminate(parsed),
        ):
            with pytest.raises(GemingaError):
                await call
        assert await world.ledgers.encoded_names("public/default/persistent") == before
        await client.finish(txn_id, commit=True)
        client.client.lose()
        assert await everything(world) == [b"b", b"c", b"in it"]

    run(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_topic_terminated_with_a_transaction_in_it(commit: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, txn_id = await holding(world)
        await world.broker.registry.terminate(NAME)
        await client.finish(txn_id, commit=commit)
        client.client.lose()
        expected = [b"b", b"c", b"in it"] if commit else [b"a", b"b", b"c"]
        assert await everything(world) == expected

    run(scenario)


def test_unloaded_between_decision_and_marker_everything_ends() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, txn_id = await holding(world)
        client.ask_end(txn_id, commit=True)
        await world.broker.registry.unload(NAME)
        await wait_ms(5_000)
        assert await is_over(world, txn_id)
        assert await everything(world) == [b"b", b"c", b"in it"]

    run(scenario)
