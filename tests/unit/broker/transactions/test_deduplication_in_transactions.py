"""Deduplication of messages in transactions: what is sent again is there once, what was aborted can be sent again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.topic_name import DEDUP_CURSOR, TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import Transacting, transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker

NAME = TopicName.parse(TOPIC)
NO_ID = (1 << 64) - 1


def run(scenario: Callable[[BrokerWorld], Awaitable[None]], **settings) -> None:
    async def with_subscription(world: BrokerWorld) -> None:
        # Without one nothing is kept.
        assert await everything(world) == []
        await scenario(world)

    run_with_broker(with_subscription, transaction_coordinator_enabled=True, deduplication=True, **settings)


async def writer_of(world: BrokerWorld, last_sequence_id: int = -1, name: str = "producer") -> Transacting:
    """A producer with a name of its own; it is told that so much of it is there."""
    writer = await transacting(world)
    success = await writer.client.create_producer(producer_name=name)
    assert success.last_sequence_id == last_sequence_id
    return writer


async def begin(writer: Transacting) -> TxnId:
    txn_id = await writer.begin()
    assert not (await writer.add_partition(txn_id)).HasField("error")
    return txn_id


async def is_new(writer: Transacting, number: int, txn_id: TxnId | None, payload: bytes = b"", **more) -> bool:
    """Whether a message was stored; if not, its receipt says that it was before."""
    answer = await writer.send(payload or b"%d" % number, txn_id, number=number, **more)
    assert answer.type == Type.SEND_RECEIPT, answer
    return bool(answer.send_receipt.message_id.ledgerId != NO_ID)


async def refused(writer: Transacting, number: int, txn_id: TxnId | None = None) -> str:
    answer = await writer.send(b"no", txn_id, number=number)
    assert answer.type == Type.SEND_ERROR, answer
    assert answer.send_error.error == pb.NotAllowedError
    return str(answer.send_error.message)


async def end(writer: Transacting, txn_id: TxnId, *, commit: bool) -> None:
    await writer.finish(txn_id, commit=commit)


async def everything(world: BrokerWorld) -> list[bytes]:
    reader = await transacting(world)
    await reader.client.subscribe(subscription="all")
    await wait_ms(100)
    found = reader.payloads()
    reader.client.lose()
    return found


async def topic_of(world: BrokerWorld) -> PersistentTopic:
    topic = await world.broker.registry.get(NAME, create=False)
    assert isinstance(topic, PersistentTopic)
    return topic


def test_what_is_sent_again_in_its_transaction_is_there_once_also_after_the_end() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await writer_of(world)
        txn_id = await begin(writer)
        assert await is_new(writer, 0, txn_id)
        assert await is_new(writer, 1, txn_id)
        assert not await is_new(writer, 1, txn_id), "its receipt was lost with a connection"
        writer.client.lose()
        writer = await writer_of(world, last_sequence_id=1)
        assert not await is_new(writer, 0, txn_id)
        await end(writer, txn_id, commit=True)
        # The end was quicker than what was sent again.
        assert not await is_new(writer, 1, txn_id)
        assert "ended" in await refused(writer, 2, txn_id)
        assert await everything(world) == [b"0", b"1"]

    run(scenario)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_was_aborted_is_sent_again_and_is_there(is_restarted: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await writer_of(world)
        assert await is_new(writer, 0, None)
        aborted = await begin(writer)
        assert await is_new(writer, 1, aborted, b"aborted")
        assert await is_new(writer, 2, aborted, b"aborted")
        await end(writer, aborted, commit=False)
        if is_restarted:
            await world.restart()
        else:
            writer.client.lose()
        writer = await writer_of(world, last_sequence_id=0)
        again = await begin(writer)
        assert await is_new(writer, 1, again)
        assert await is_new(writer, 2, again)
        await end(writer, again, commit=True)
        assert not await is_new(writer, 2, None)
        assert await is_new(writer, 3, None)
        assert await everything(world) == [b"0", b"1", b"2", b"3"]

    run(scenario)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_was_aborted_before_later_messages_is_sent_again_and_is_there(is_restarted: bool) -> None:
    """A program is killed, its successor goes on with what comes next, and then its inputs come again."""

    async def scenario(world: BrokerWorld) -> None:
        writer = await writer_of(world)
        hung = await begin(writer)
        for number in (0, 1, 2):
            assert await is_new(writer, number, hung, b"hung")
        later = await begin(writer)
        assert await is_new(writer, 3, later)
        await end(writer, later, commit=True)
        await end(writer, hung, commit=False)
        if is_restarted:
            await world.restart()
            assert (
                "geminga.aborted-sequence-ids" in (await topic_of(world)).ledger.cursors[DEDUP_CURSOR].cursor_properties
            )
        else:
            writer.client.lose()
        writer = await writer_of(world, last_sequence_id=3)
        again = await begin(writer)
        assert await is_new(writer, 1, again)
        assert await is_new(writer, 0, None)
        assert not await is_new(writer, 1, again)
        assert not await is_new(writer, 3, again)
        await end(writer, again, commit=True)
        if is_restarted:
            await world.restart()
            writer = await writer_of(world, last_sequence_id=3)
        assert not await is_new(writer, 0, None)
        assert not await is_new(writer, 1, None)
        assert await is_new(writer, 2, None)
        assert await everything(world) == [b"3", b"1", b"0", b"2"]

    run(scenario)


def test_what_an_open_transaction_published_is_no_repetition_and_no_news_to_another() -> None:
    """A receipt would be a lie if the transaction is aborted, storing it again if it is committed."""

    async def scenario(world: BrokerWorld) -> None:
        writer = await writer_of(world)
        hung, other = await begin(writer), await begin(writer)
        assert await is_new(writer, 0, hung)
        assert await is_new(writer, 1, hung, b"hung")
        assert "another transaction" in await refused(writer, 1, other)
        assert "another transaction" in await refused(writer, 0)
        await world.restart()
        writer = await writer_of(world, last_sequence_id=1)
        assert "another transaction" in await refused(writer, 1, other)
        await end(writer, hung, commit=False)
        assert await is_new(writer, 1, other)
        assert await is_new(writer, 0, other)
        await end(writer, other, commit=True)
        assert not await is_new(writer, 0, None)
        assert await everything(world) == [b"1", b"0"]

    run(scenario)


def test_a_snapshot_taken_while_a_transaction_is_open_forgets_nothing_of_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await writer_of(world)
        hung = await begin(writer)
        for number in range(3):
            assert await is_new(writer, number, hung, b"hung")
        for number in range(3, 9):
            assert await is_new(writer, number, None)
        await wait_ms(1_000)
        cursor = (await topic_of(world)).ledger.cursors[DEDUP_CURSOR]
        assert cursor.properties["producer"] >= 7
        assert cursor.mark_delete_position.entry_id < 0, "what is held back is read again"
        await world.restart()
        writer = await writer_of(world, last_sequence_id=8)
        await end(writer, hung, commit=False)
        await world.restart()
        writer = await writer_of(world, last_sequence_id=8)
        for number in range(3):
            assert await is_new(writer, number, None)
            assert not await is_new(writer, number, None)
        assert len(await everything(world)) == 9

    run(scenario, deduplication_snapshot_entries=2)


def test_batches_and_chunks_of_an_aborted_transaction_are_sent_again_whole() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await writer_of(world)

        def chunk(index: int) -> dict[str, object]:
            metadata = {"uuid": "p-10", "num_chunks_from_msg": 2, "total_chunk_msg_size": 2, "chunk_id": index}
            return {"metadata": metadata, "is_chunk": True}

        batch = {"highest_sequence_id": 9, "num_messages": 10, "metadata": {"highest_sequence_id": 9}}
        aborted = await begin(writer)
        assert await is_new(writer, 0, aborted, **batch)
        assert await is_new(writer, 10, aborted, **chunk(0))
        assert await is_new(writer, 10, aborted, **chunk(1))
        await end(writer, aborted, commit=False)
        await world.restart()
        writer = await writer_of(world)
        again = await begin(writer)
        # In another batch than before, which goes on with what is new.
        assert await is_new(writer, 0, again, highest_sequence_id=4, num_messages=5)
        assert await is_new(writer, 5, again, highest_sequence_id=9, num_messages=5)
        assert await is_new(writer, 10, again, **chunk(0))
        assert await is_new(writer, 10, again, **chunk(1))
        assert not await is_new(writer, 10, again, **chunk(1))
        assert not await is_new(writer, 3, again, highest_sequence_id=8, num_messages=6)
        await end(writer, again, commit=True)
        assert not await is_new(writer, 10, None)

    run(scenario)


def test_markers_are_no_messages_of_a_producer() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await writer_of(world)
        for number, commit in enumerate((True, False)):
            txn_id = await begin(writer)
            assert await is_new(writer, number, txn_id)
            await end(writer, txn_id, commit=commit)
        # The last marker lies behind the snapshot.
        await world.restart()
        await writer_of(world, last_sequence_id=0)
        dedup = (await topic_of(world)).dedup
        assert dedup is not None
        assert dict(dedup.state.persisted) == {"producer": 0}

    run(scenario)


def test_deduplication_that_is_switched_on_later_reads_what_became_of_transactions() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await writer_of(world)
        aborted, committed, hung = [await begin(writer) for _ in range(3)]
        for number, txn_id in enumerate((aborted, committed, hung)):
            assert await is_new(writer, number, txn_id)
        await end(writer, aborted, commit=False)
        await end(writer, committed, commit=True)
        for is_on in (False, True):
            await world.resources.namespaces.set_policy("public/default", "deduplicationEnabled", is_on)
            await world.broker.policies_changed("public/default")
        assert not await is_new(writer, 1, None)
        assert "another transaction" in await refused(writer, 2)
        assert await is_new(writer, 0, None)

    run(scenario)
