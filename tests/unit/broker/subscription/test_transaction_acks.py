"""Batches acknowledged in transactions, in part and by several; cumulative ones; what dispatch leaves out meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from geminga.broker.resources import Resources
from geminga.broker.subscription.messages import position_from
from geminga.broker.subscription.transaction_acks import acknowledged_bits
from geminga.broker.topic.persistent import DELETION_PROPERTY
from geminga.broker.topic.ports import GOING_LOGS_PROPERTY
from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import GemingaError, MetadataError, TopicNotFoundError
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import spawn, wait_ms
from geminga.transaction.core.pending_acks import WHOLE
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.managed_ledger import LedgerRecord, decode_managed_ledger_info, encode_managed_ledger_info
from support.clusters.transacting import Transacting, producing, transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker, send_frame

NAME = TopicName.parse(TOPIC)


def test_ack_sets_say_what_is_left() -> None:
    assert acknowledged_bits([], 0) == (WHOLE, 0)
    assert acknowledged_bits([0], 0) == (WHOLE, 0)
    assert acknowledged_bits([0], 3) == (0b111, 3)
    assert acknowledged_bits([0b110], 3) == (0b001, 3)
    assert acknowledged_bits([-1, 0b10], 0) == (1 << 64, 66)


async def with_batch(world: BrokerWorld, sub_type: int) -> tuple[Transacting, pb.MessageIdData]:
    """A consumer that got one batch of three messages, and the batch's id."""
    client = await transacting(world)
    await client.client.subscribe(subType=sub_type)
    await client.client.create_producer()
    single = pb.SingleMessageMetadata(payload_size=1).SerializeToString()
    payload = (len(single).to_bytes(4, "big") + single + b"x") * 3
    client.client.send_bytes(send_frame(1, payload, metadata={"num_messages_in_batch": 3}, num_messages=3))
    await wait_ms(50)
    ((message_id, _),) = client.messages()
    return client, message_id


def part(of: pb.MessageIdData, left: int) -> pb.MessageIdData:
    """The batch but for the messages in ``left``."""
    return pb.MessageIdData(ledgerId=of.ledgerId, entryId=of.entryId, ack_set=[left], batch_size=3)


@pytest.mark.parametrize("sub_type", [pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared])
def test_a_batch_is_shared_out_between_transactions(sub_type: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, batch = await with_batch(world, sub_type)
        one, two = await client.begin(), await client.begin()
        for txn_id in (one, two):
            await client.add_subscription(txn_id)
        assert not (await client.acknowledge([part(batch, 0b110)], one)).HasField("error")
        assert not (await client.acknowledge([part(batch, 0b101)], two)).HasField("error")
        assert (await client.acknowledge([part(batch, 0b100)], two)).error == pb.TransactionConflict
        await client.end(one, commit=True)
        await world.broker.registry.unload(NAME)
        again = await transacting(world)
        await again.client.subscribe(subType=sub_type)
        await wait_ms(50)
        (command,) = [each for each, _ in again.client.received if each.type == pb.BaseCommand.MESSAGE]
        assert list(command.message.ack_set) == [0b100], "one is acknowledged, one is held"
        again.messages()
        assert not (await again.acknowledge([part(batch, 0b011)])).HasField("error")
        await client.end(two, commit=True)
        assert world.topic.subscriptions["sub"].cursor.backlog_count == 0

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_who_names_every_message_does_not_take_what_another_transaction_had() -> None:
    """A batch went to another consumer before a transaction committed a part of it: that one may not have it all."""

    async def scenario(world: BrokerWorld) -> None:
        client, batch = await with_batch(world, pb.CommandSubscribe.Shared)
        one, two, three = [await client.begin() for _ in range(3)]
        for txn_id in (one, two, three):
            await client.add_subscription(txn_id)
        assert not (await client.acknowledge([part(batch, 0b110)], one)).HasField("error")
        await client.end(one, commit=True)
        assert (await client.acknowledge([part(batch, 0)], two)).error == pb.TransactionConflict
        # No ack set: the rest, as clients say that were given no more than that.
        rest = pb.MessageIdData(ledgerId=batch.ledgerId, entryId=batch.entryId)
        assert not (await client.acknowledge([rest], three)).HasField("error")
        await client.end(three, commit=True)
        assert world.topic.subscriptions["sub"].cursor.backlog_count == 0

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize("is_cumulative", [False, True])
def test_who_names_every_message_of_an_entry_has_all_of_it(is_cumulative: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, batch = await with_batch(world, pb.CommandSubscribe.Exclusive)
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        for _ in range(2):  # the answer may be lost, and is asked for again
            answer = await client.acknowledge([part(batch, 0)], txn_id, is_cumulative=is_cumulative)
            assert not answer.HasField("error")
        await client.end(txn_id, commit=True)
        assert world.topic.subscriptions["sub"].cursor.backlog_count == 0

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_nothing_is_held_of_entries_that_are_not_there() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, batch = await with_batch(world, pb.CommandSubscribe.Shared)
        await world.broker.registry.unload(NAME)
        client = await producing(world)
        await client.client.subscribe(subType=pb.CommandSubscribe.Shared)
        await client.publish(b"in the next ledger")
        await wait_ms(50)
        ((_, _), (last, _)) = client.messages()
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        made_up = [pb.MessageIdData(ledgerId=batch.ledgerId, entryId=batch.entryId + 1 + number) for number in range(9)]
        assert not (await client.acknowledge([*made_up, last], txn_id)).HasField("error")
        acks = world.topic.subscriptions["sub"].transactions.acks
        assert [acks.held(position_from(each)) for each in (*made_up, last)] == [*([0] * 9), WHOLE]
        await client.finish(txn_id, commit=True)
        assert world.topic.subscriptions["sub"].cursor.backlog_count == 1

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def deliveries(client: Transacting) -> list[int]:
    """Redelivery counts of what came since the last look."""
    received = client.client.received
    counts = [each.message.redelivery_count for each, _ in received if each.type == pb.BaseCommand.MESSAGE]
    received.clear()
    return counts


@pytest.mark.parametrize("sub_type", [pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared])
def test_what_was_acknowledged_in_a_transaction_that_outlives_its_consumer_counts_as_sent(sub_type: int) -> None:
    """A message that kills its only consumer before each commit is a dead letter at last."""

    async def scenario(world: BrokerWorld) -> None:
        transactions = await transacting(world)
        _, message = await with_batch(world, sub_type)
        for life in range(1, 4):
            for client in [*world.broker.topics[TOPIC].subscriptions["sub"].consumers]:
                client.connection.close()
            client = await transacting(world)
            await client.client.subscribe(subType=sub_type)
            await wait_ms(50)
            assert deliveries(client) == [life]
            # Two hold parts of it, and the consumer the rest: it was sent once all the same.
            parts = {await transactions.begin(): part(message, left) for left in (0b110, 0b101)}
            for txn_id, held in parts.items():
                await transactions.add_subscription(txn_id)
                assert not (await client.acknowledge([held], txn_id)).HasField("error")
            if life == 2:
                whole = await transactions.begin()
                await transactions.add_subscription(whole)
                assert not (await client.acknowledge([part(message, 0b011)], whole)).HasField("error")
                parts[whole] = message
            client.client.lose()
            await wait_ms(50)
            for txn_id in parts:
                await transactions.end(txn_id, commit=False)
            await wait_ms(50)

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize("is_there", [True, False])
def test_counts_of_what_is_committed_are_forgotten(is_there: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        transactions = await transacting(world)
        client, message = await with_batch(world, pb.CommandSubscribe.Shared)
        txn_id = await transactions.begin()
        await transactions.add_subscription(txn_id)
        assert not (await client.acknowledge([part(message, 0b000)], txn_id)).HasField("error")
        redeliveries = world.broker.topics[TOPIC].subscriptions["sub"].redeliveries
        assert len(redeliveries.tracker()) == 1
        if not is_there:
            client.client.lose()
            await wait_ms(50)
        await transactions.end(txn_id, commit=True)
        await wait_ms(50)
        assert not redeliveries.tracker() if is_there else redeliveries._tracker is None

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_cumulative_ones_are_for_one_transaction_and_one_type() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await transacting(world)
        await client.client.subscribe()
        await client.client.create_producer()
        for payload in (b"a", b"b", b"c"):
            await client.publish(payload)
        await wait_ms(50)
        ids = [message_id for message_id, _ in client.messages()]
        one, two = await client.begin(), await client.begin()
        for txn_id in (one, two):
            await client.add_subscription(txn_id)
        assert not (await client.acknowledge([ids[1]], one, is_cumulative=True)).HasField("error")
        assert (await client.acknowledge([ids[2]], two, is_cumulative=True)).error == pb.TransactionConflict
        assert (await client.acknowledge(ids, one, is_cumulative=True)).error == pb.NotAllowedError
        await client.end(one, commit=False)
        await wait_ms(50)
        assert client.payloads() == [b"a", b"b", b"c"]
        assert not (await client.acknowledge([ids[1]], two, is_cumulative=True)).HasField("error")
        await client.end(two, commit=True)
        topic = await world.broker.registry.get(NAME, create=False)
        assert topic.subscriptions["sub"].cursor.backlog_count == 1
        shared = await transacting(world)
        await shared.client.subscribe(subscription="shared", subType=pb.CommandSubscribe.Shared)
        three = await shared.begin()
        await shared.add_subscription(three, subscription="shared")
        refused = await shared.acknowledge([ids[1]], three, is_cumulative=True)
        assert refused.error == pb.NotAllowedError

    run_with_broker(scenario, transaction_coordinator_enabled=True)


async def with_messages(world: BrokerWorld, count: int) -> tuple[Transacting, list[pb.MessageIdData]]:
    """An Exclusive consumer that got so many messages, and their ids."""
    client = await transacting(world)
    await client.client.subscribe(subType=pb.CommandSubscribe.Exclusive)
    client.flow(1, 1000)
    await client.client.create_producer()
    for number in range(count):
        await client.publish(b"%d" % number)
    await wait_ms(50)
    return client, [message_id for message_id, _ in client.messages()]


async def in_transaction(client: Transacting, ids: list[pb.MessageIdData], **options) -> TxnId:
    txn_id = await client.begin()
    await client.add_subscription(txn_id)
    answer = await client.acknowledge(ids, txn_id, **options)
    assert not answer.HasField("error"), answer
    return txn_id


@pytest.mark.parametrize("is_cumulative", [False, True])
def test_a_position_before_the_first_of_a_ledger_acknowledges_nothing(is_cumulative: bool) -> None:
    """So a client may name the last message of an empty ledger; as a large number it would be behind all of them."""

    async def scenario(world: BrokerWorld) -> None:
        _, ids = await with_messages(world, 2)
        await world.broker.registry.unload(NAME)
        again = await transacting(world)
        await again.client.subscribe(subType=pb.CommandSubscribe.Exclusive)
        await again.client.create_producer()
        await again.publish(b"in the next ledger")
        txn_id = await again.begin()
        await again.add_subscription(txn_id)
        before = pb.MessageIdData(ledgerId=ids[0].ledgerId, entryId=(1 << 64) - 1)
        answer = await again.acknowledge([before], txn_id, is_cumulative=is_cumulative)
        assert answer.error == pb.NotAllowedError
        assert answer.message.startswith(f"There is no message {ids[0].ledgerId}:-1 ")
        await again.end(txn_id, commit=True)
        topic = await world.broker.registry.get(NAME, create=False)
        assert topic.subscriptions["sub"].cursor.backlog_count == 3

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_an_abort_gives_back_what_the_transaction_held_and_nothing_else_that_the_consumer_has() -> None:
    """All that was sent came again, and conflicted with the next transaction that had acknowledged it by then."""

    async def scenario(world: BrokerWorld) -> None:
        client, ids = await with_messages(world, 6)
        first, second = await in_transaction(client, [ids[1]]), await in_transaction(client, [ids[0], ids[4]])
        await client.end(first, commit=False)
        assert await client.read() == [b"1"]
        await client.publish(b"6")
        await client.end(second, commit=False)
        assert await client.read() == [b"6", b"0", b"4"]
        for message_id in ids:
            await client.end(await in_transaction(client, [message_id]), commit=True)
        assert await client.read() == []
        topic = await world.broker.registry.get(NAME, create=False)
        assert topic.subscriptions["sub"].cursor.backlog_count == 1

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_who_asks_for_everything_while_something_is_given_back_gets_everything() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, ids = await with_messages(world, 4)
        await client.end(await in_transaction(client, [ids[1]]), commit=False)
        client.client.send(
            pb.BaseCommand(
                type=pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
                redeliverUnacknowledgedMessages=pb.CommandRedeliverUnacknowledgedMessages(
                    consumer_id=1, consumer_epoch=1
                ),
            )
        )
        assert (await client.read())[-4:] == [b"0", b"1", b"2", b"3"]

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_an_abort_gives_back_of_a_batch_what_the_transaction_held() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, batch = await with_batch(world, pb.CommandSubscribe.Exclusive)
        await client.end(await in_transaction(client, [part(batch, 0b101)]), commit=False)
        await wait_ms(50)
        (command,) = [each for each, _ in client.client.received if each.type == pb.BaseCommand.MESSAGE]
        assert list(command.message.ack_set) == [0b010], "the others are with the consumer"

    run_with_broker(scenario, transaction_coordinator_enabled=True)


class UnreachableStore(MemoryMetadataStore):
    """Deletes so many more nodes, and none after them; None: all."""

    deletions_left: int | None = None
    #: Before it says that it can not be reached.
    silent_ms = 0
    #: Nothing is created either while deletions fail.
    is_cut_off = False

    async def put(self, path: str, *args, **options):
        if self.is_cut_off and self.deletions_left == 0:
            raise MetadataError("the store can not be reached")
        return await super().put(path, *args, **options)

    async def delete(self, path: str, **options) -> None:
        if self.deletions_left is not None:
            if not self.deletions_left:
                await wait_ms(self.silent_ms)
                raise MetadataError("the store can not be reached")
            self.deletions_left -= 1
        await super().delete(path, **options)


def test_a_subscription_that_could_not_be_deleted_acknowledges_in_transactions_as_before() -> None:
    async def scenario(world: BrokerWorld) -> None:
        store = UnreachableStore(world.runtime, world.metadata.server)
        world.metadata, world.resources = store, Resources(store)
        await world.restart()
        client, ids = await with_messages(world, 4)
        held = await in_transaction(client, ids[3:])
        await client.end(await in_transaction(client, ids[:1]), commit=True)
        topic = await world.broker.registry.get(NAME, create=False)
        store.deletions_left = 0
        with pytest.raises(MetadataError):
            await topic.delete_subscription("sub", force=True)
        store.deletions_left = None
        again = await transacting(world)
        await again.client.subscribe(subType=pb.CommandSubscribe.Exclusive)
        await again.end(await in_transaction(again, ids[1:2]), commit=True)
        assert topic.subscriptions["sub"].cursor.backlog_count == 2
        await again.end(held, commit=True)
        assert topic.subscriptions["sub"].cursor.backlog_count == 1
        await topic.delete_subscription("sub", force=True)
        assert not await topic.services.pending_ack_logs.exists(NAME, "sub")

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_what_is_committed_while_a_deletion_fails_counts() -> None:
    """The coordinator must not take a subscription for gone that may stay: nobody would tell it again."""

    async def scenario(world: BrokerWorld) -> None:
        store = UnreachableStore(world.runtime, world.metadata.server)
        world.metadata, world.resources = store, Resources(store)
        await world.restart()
        client, ids = await with_messages(world, 3)
        txn_id = await in_transaction(client, ids[:1])
        topic = await world.broker.registry.get(NAME, create=False)
        store.deletions_left, store.silent_ms = 0, 500

        async def delete() -> None:
            with pytest.raises(MetadataError):
                await topic.delete_subscription("sub", force=True)

        deletion = spawn(delete(), name="delete")
        await wait_ms(50)
        other = await transacting(world)
        other.ask_end(txn_id, commit=True)
        await deletion
        store.deletions_left = None
        await wait_ms(60_000)
        cursor = topic.subscriptions["sub"].cursor
        assert cursor.backlog_count == 2
        assert topic.subscriptions["sub"].transactions.held is None

    run_with_broker(scenario, transaction_coordinator_enabled=True)


async def cut_off_after(world: BrokerWorld, deleted: int, deletion: Callable[[], Awaitable[None]]) -> bool:
    """Whether the deletion came to its end; the broker is gone with it: after so many nodes it reaches nobody."""
    store = world.metadata
    assert isinstance(store, UnreachableStore)
    store.deletions_left, store.is_cut_off = deleted, True
    try:
        await deletion()
        is_done = True
    except GemingaError:
        is_done = False
    store.deletions_left = 0
    await world.restart()
    store.deletions_left, store.is_cut_off = None, False
    return is_done


def outcomes_of(scenario: Callable[[BrokerWorld, int], Awaitable[str]]) -> list[str]:
    """In a run of its own for each number of nodes that are deleted before the broker is gone, up to all of them."""

    def outcome(deleted: int) -> str:
        async def whole(world: BrokerWorld) -> str:
            store = UnreachableStore(world.runtime, world.metadata.server)
            world.metadata, world.resources = store, Resources(store)
            await world.restart()
            return await scenario(world, deleted)

        return run_with_broker(whole, transaction_coordinator_enabled=True)

    return [outcome(deleted) for deleted in range(8)]


def test_broker_that_is_gone_amid_a_subscriptions_deletion_leaves_all_of_it_or_none() -> None:
    async def scenario(world: BrokerWorld, deleted: int) -> str:
        client, ids = await with_messages(world, 4)
        txn_id = await in_transaction(client, [ids[0], ids[3]])
        topic = await world.broker.registry.get(NAME, create=False)
        is_done = await cut_off_after(world, deleted, lambda: topic.delete_subscription("sub", force=True))
        topic = await world.broker.registry.get(NAME, create=False)
        if "sub" in topic.subscriptions:
            assert topic.subscriptions["sub"].transactions.acks.is_holding, f"after {deleted} deletions"
            await (await transacting(world)).end(txn_id, commit=True)
            assert topic.subscriptions["sub"].cursor.backlog_count == 2
            return "whole"
        # With the load, not only before there is one of that name again.
        assert not await topic.services.pending_ack_logs.exists(NAME, "sub"), f"after {deleted} deletions"
        assert GOING_LOGS_PROPERTY not in topic.ledger.stored.properties
        again = await transacting(world)
        await again.client.subscribe(subType=pb.CommandSubscribe.Exclusive)
        assert await again.read() == [b"0", b"1", b"2", b"3"], f"after {deleted} deletions"
        await again.end(await in_transaction(again, [ids[1]]), commit=True)
        assert topic.subscriptions["sub"].cursor.backlog_count == 3
        return "done" if is_done else "none"

    assert {*outcomes_of(scenario)} == {"whole", "done"}


def test_a_topic_that_was_served_since_its_deletion_was_cut_off_stays() -> None:
    """By a broker of another make, which does not look at the property, and begins a ledger."""

    async def scenario(world: BrokerWorld) -> None:
        await with_messages(world, 2)
        topic = await world.broker.registry.get(NAME, create=False)
        stored = topic.ledger.stored
        before = max(info.ledger_id for info in stored.ledgers.infos)
        await topic.note_deletion()
        await world.broker.registry.unload(NAME)
        node = await world.metadata.get(path := ledger_path(NAME.managed_ledger_name))
        record = decode_managed_ledger_info(node.value)
        assert record.properties[DELETION_PROPERTY] == str(before)
        newer = LedgerRecord(before + 7, 3, 6, 1)
        value = encode_managed_ledger_info(replace(record, ledgers=(*record.ledgers, newer)))
        await world.metadata.put(path, value, expected_version=node.stat.version)
        topic = await world.broker.registry.get(NAME, create=False)
        assert [*topic.subscriptions] == ["sub"]
        assert DELETION_PROPERTY not in topic.ledger.stored.properties

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_broker_that_is_gone_amid_a_topics_deletion_leaves_all_of_it_or_none() -> None:
    async def scenario(world: BrokerWorld, deleted: int) -> str:
        client, ids = await with_messages(world, 4)
        await client.client.subscribe(consumer_id=2, subscription="other")
        txn_id = await in_transaction(client, [ids[0], ids[3]])
        is_done = await cut_off_after(world, deleted, lambda: world.broker.registry.delete(NAME, force=True))
        try:
            topic = await world.broker.registry.get(NAME, create=False)
        except TopicNotFoundError:
            topic = await world.broker.registry.get(NAME, create=True)
            assert topic.subscriptions == {}
            assert not await topic.services.pending_ack_logs.exists(NAME, "sub")
            return "done" if is_done else "none"
        assert {*topic.subscriptions} == {"sub", "other"}, f"after {deleted} deletions"
        assert topic.subscriptions["sub"].transactions.acks.is_holding, f"after {deleted} deletions"
        await (await transacting(world)).end(txn_id, commit=True)
        assert topic.subscriptions["sub"].cursor.backlog_count == 2
        return "whole"

    assert {*outcomes_of(scenario)} == {"whole", "none", "done"}
