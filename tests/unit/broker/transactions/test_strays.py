"""What comes for a transaction that nobody will end is refused, and what is found of one is given up."""

from __future__ import annotations

import pytest

from geminga.broker.handlers.subscription import LONG_COMMAND_BYTES
from geminga.model.topic_name import TRANSACTION_SNAPSHOTS as SNAPSHOTS
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.markers import ABORT, transaction_marker
from support.clusters.transacting import Transacting, begun, both_ends, producing, transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker, send_frame

NAME = TopicName.parse(TOPIC)
LOG = "pulsar/system/persistent/__transaction_log_0"
LONG_MAX = (1 << 63) - 1


async def with_one_message(
    world: BrokerWorld, sub_type: int = pb.CommandSubscribe.Shared
) -> tuple[Transacting, pb.MessageIdData]:
    """A consumer that got the topic's only message."""
    client = await transacting(world)
    await client.client.subscribe(subType=sub_type)
    await client.client.create_producer()
    await client.publish(b"a")
    await wait_ms(50)
    ((message_id, _),) = client.messages()
    return client, message_id


@pytest.mark.parametrize(
    "txn_id", [TxnId(0, 0), TxnId(0, LONG_MAX), TxnId(0, (1 << 64) - 1), TxnId(16, 0), TxnId((1 << 64) - 1, 7)]
)
def test_a_message_of_a_transaction_that_never_was_holds_nothing_back(txn_id: TxnId) -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, reader = await both_ends(world)
        for _ in range(2):
            answer = await writer.send(b"stray", txn_id)
            assert answer.send_error.error == pb.NotAllowedError, answer
            await writer.publish(b"plain")
            assert await reader.read() == [b"plain"]
        own = await writer.begin()
        answer = await writer.send(b"not added", own)
        assert "must be added to the transaction first" in answer.send_error.message
        await writer.add_partition(own)
        await writer.publish(b"added", own)
        await writer.end(own, commit=True)
        assert await reader.read() == [b"added"]

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_a_message_that_comes_after_the_end_is_refused_also_after_a_restart() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await producing(world)
        ended = [await writer.begin() for _ in range(2)]
        for txn_id in ended:
            await writer.add_partition(txn_id)
            await writer.publish(b"in time", txn_id)
        await writer.end(ended[0], commit=True)
        await writer.end(ended[1], commit=False)
        # Saved when it is closed: the markers are not read again.
        await world.broker.registry.unload(NAME)
        await world.restart()
        writer, reader = await transacting(world), await transacting(world)
        await writer.client.create_producer()
        await reader.client.subscribe()
        for txn_id in ended:
            answer = await writer.send(b"late", txn_id)
            assert answer.send_error.error == pb.NotAllowedError, answer
        await writer.publish(b"plain")
        assert await reader.read() == [b"in time", b"plain"]

    run_with_broker(scenario, transaction_coordinator_enabled=True)


async def forget_transactions(world: BrokerWorld) -> None:
    """Coordinator 0 begins anew, knowing nothing: its log is gone."""

    async def gone() -> None:
        await world.broker.transactions.coordinators.close()
        await world.broker.ledgers.delete(LOG)

    await gone()
    await world.restart()


def test_a_topic_is_not_held_back_by_what_its_coordinator_does_not_know() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await producing(world)
        strays = [await writer.begin() for _ in range(3)]
        for txn_id in strays:
            await writer.add_partition(txn_id)
            await writer.publish(b"stray", txn_id)
        await writer.publish(b"plain")
        await forget_transactions(world)
        reader = await transacting(world)
        await reader.client.subscribe()
        assert await reader.read() == [b"plain"]
        topic = await world.broker.registry.get(NAME, create=False)
        assert topic.transaction_buffer.stats()["ongoingTxnSize"] == 0

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_what_is_open_when_a_topic_is_loaded_stays_open_if_its_coordinator_knows_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, txn_id = await begun(world, timeout_ms=200_000)
        await writer.publish(b"held", txn_id)
        await world.restart()
        writer, reader = await transacting(world), await transacting(world)
        await reader.client.subscribe()
        await wait_ms(20_000)
        assert await reader.read() == []
        await writer.finish(txn_id, commit=True)
        assert await reader.read() == [b"held"]

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_what_was_aborted_stays_hidden_though_somebody_deletes_the_snapshots() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await producing(world)
        aborted, committed, open_one = [await writer.begin() for _ in range(3)]
        for txn_id in (aborted, committed, open_one):
            await writer.add_partition(txn_id)
            await writer.publish(b"%d" % txn_id.number, txn_id)
        await writer.end(aborted, commit=False)
        await writer.end(committed, commit=True)
        await world.broker.registry.unload(NAME)
        await world.broker.registry.delete(TopicName.parse(f"persistent://public/default/{SNAPSHOTS}"), force=True)
        await world.restart()
        reader = await transacting(world)
        await reader.client.subscribe()
        assert await reader.read() == [b"%d" % committed.number]
        await reader.end(open_one, commit=False)
        await reader.client.create_producer()
        await reader.publish(b"plain")
        assert await reader.read() == [b"plain"]

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize("sub_type", [pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared])
def test_acknowledgments_that_nobody_would_end_hold_nothing(sub_type: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, message_id = await with_one_message(world, sub_type)
        ended, not_added, held = [await client.begin() for _ in range(3)]
        for txn_id in (ended, held):
            await client.add_subscription(txn_id)
        await client.end(ended, commit=True)
        for txn_id in (ended, not_added, TxnId(0, LONG_MAX), TxnId(5, 0)):
            answer = await client.acknowledge([message_id], txn_id)
            assert answer.error == pb.NotAllowedError, (txn_id, answer)
        # None of them holds it: another one may.
        assert not (await client.acknowledge([message_id], held)).HasField("error")
        await forget_transactions(world)
        client = await transacting(world)
        await client.client.subscribe(subType=sub_type)
        assert await client.read() == [b"a"]

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_a_late_acknowledgment_of_a_transaction_that_timed_out_holds_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, message_id = await with_one_message(world)
        txn_id = await client.begin(timeout_ms=1_000)
        await client.add_subscription(txn_id)
        await wait_ms(3_000)
        assert (await client.acknowledge([message_id], txn_id)).error == pb.NotAllowedError
        client.client.lose()
        client = await transacting(world)
        await client.client.subscribe(subType=pb.CommandSubscribe.Shared)
        assert await client.read() == [b"a"]

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_very_many_messages_are_acknowledged_in_one_command() -> None:
    count = LONG_COMMAND_BYTES // 4

    async def scenario(world: BrokerWorld) -> None:
        client = await transacting(world)
        await client.client.subscribe(subType=pb.CommandSubscribe.Shared, permits=0)
        await client.client.create_producer()
        for _ in range(count):
            await client.publish(b"x")
        topic = await world.broker.registry.get(NAME, create=False)
        ids = [
            pb.MessageIdData(ledgerId=topic.ledger.ledgers.first_position.ledger_id, entryId=entry)
            for entry in range(count)
        ]
        one, two = await client.begin(), await client.begin()
        for txn_id in (one, two):
            await client.add_subscription(txn_id)
        assert not (await client.acknowledge(ids, one)).HasField("error")
        assert (await client.acknowledge(ids, two)).error == pb.TransactionConflict
        await client.end(one, commit=True)
        assert topic.subscriptions["sub"].cursor.backlog_count == 0

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"entryId": 1},
        {"entryId": LONG_MAX},
        {"entryId": (1 << 64) - 1},
        {"ledgerId": (1 << 64) - 1, "entryId": 0},
        {"entryId": 0, "ack_set": [1] * 20_000, "batch_size": 3},
        {"ledgerId": 0, "entryId": 12, "ack_set": [1], "batch_size": (1 << 31) - 1},
    ],
)
def test_message_ids_of_nothing_are_refused(fields: dict) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, message_id = await with_one_message(world)
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        strange = pb.MessageIdData(**{"ledgerId": message_id.ledgerId, **fields})
        assert (await client.acknowledge([strange], txn_id)).HasField("error")
        assert not (await client.acknowledge([message_id], txn_id)).HasField("error")
        await client.end(txn_id, commit=True)
        assert world.topic.subscriptions["sub"].cursor.backlog_count == 0

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_a_size_that_no_batch_has_is_not_believed() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, message_id = await with_one_message(world)
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        part = pb.MessageIdData(ledgerId=message_id.ledgerId, entryId=message_id.entryId, batch_size=(1 << 31) - 1)
        part.ack_set.append(1)
        assert not (await client.acknowledge([part], txn_id)).HasField("error")
        subscription = (await world.broker.registry.get(NAME, create=False)).subscriptions["sub"]
        assert subscription.transactions.acks.held(subscription.topic.ledger.ledgers.first_position).bit_length() <= 1

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("producer", ["producer", "a producer with a name of many characters"])
def test_a_message_that_names_a_transaction_and_is_sent_in_none_is_refused(is_on: bool, producer: str) -> None:
    """It was stored and shown as any other, and after a reload it was the transaction's, and went with its abort."""

    async def scenario(world: BrokerWorld) -> None:
        client = await transacting(world)
        await client.client.subscribe()
        await client.client.create_producer(producer_name=producer)
        await client.publish(b"before")
        assert await client.read() == [b"before"]
        bits = {"txnid_most_bits": 3, "txnid_least_bits": 1 << 40}
        for more in ({}, {"num_messages_in_batch": 1}, {"marker_type": ABORT}, {"partition_key": "x" * 300}):
            frame = send_frame(9, b"strange", metadata={**bits, **more}, producer_name=producer)
            client.client.send_bytes(frame)
            answer = (await client.client.expect(Type.SEND_ERROR)).send_error
            assert answer.error == pb.NotAllowedError
            assert "name transaction (3,1099511627776)" in answer.message
        await client.publish(b"behind")
        assert await client.read() == [b"behind"]

    run_with_broker(scenario, transaction_coordinator_enabled=is_on)


def test_who_may_publish_does_not_say_how_a_transaction_of_others_ended() -> None:
    name = "a producer with a name of many characters, so that a short one leaves room in metadata of a plain length"

    async def scenario(world: BrokerWorld) -> None:
        writer, other = await transacting(world), await transacting(world)
        await writer.client.create_producer()
        await other.client.create_producer(producer_name=name)
        txn_id = await writer.begin()
        await writer.add_partition(txn_id)
        await writer.publish(b"committed", txn_id)
        end = {"txnid_most_bits": txn_id.coordinator, "txnid_least_bits": txn_id.number, "marker_type": ABORT}
        # As like a marker as can be; and one that calls itself nothing, which is too short to be looked at.
        other.client.send_bytes(send_frame(1, b"", metadata={**end, "publish_time": 0}, producer_name=""))
        await other.client.expect(Type.SEND_RECEIPT)
        other.client.send_bytes(send_frame(2, b"", entry=transaction_marker(txn_id, commit=False, now_ms=1)))
        answer = await other.client.expect(Type.SEND_ERROR)
        assert answer.send_error.error == pb.NotAllowedError
        await world.restart()
        writer, reader = await transacting(world), await transacting(world)
        await reader.client.subscribe()
        await writer.finish(txn_id, commit=True)
        assert await reader.read() == [b"committed"]

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_what_was_sent_behind_a_message_that_must_come_again_is_not_stored_before_it() -> None:
    """With deduplication the one that came again was taken for a duplicate then, and lost."""

    async def scenario(world: BrokerWorld) -> None:
        writer, txn_id = await begun(world)
        coordinators = world.broker.transactions.coordinators
        await coordinators.taken(lambda _: True)
        coordinators._resting.add(0)  # it lost its log just now
        answer = await writer.send(b"first", txn_id)
        assert answer.send_error.error not in (pb.UnknownError, pb.NotAllowedError), answer
        coordinators._resting.clear()
        fields = {"txnid_most_bits": txn_id.coordinator, "txnid_least_bits": txn_id.number}
        writer.client.send_bytes(send_frame(2, b"second", 1, metadata=dict(fields), **fields))
        await wait_ms(100)
        topic = await world.broker.registry.get(NAME, create=False)
        assert topic.ledger.extent.last_confirmed_position.entry_id == -1
        assert [each.type for each, _ in writer.client.received] == [Type.CLOSE_PRODUCER]

    run_with_broker(scenario, transaction_coordinator_enabled=True)
