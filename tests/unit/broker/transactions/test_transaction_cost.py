"""What transactions cost, in things that can be counted: so that nothing of it grows unseen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from geminga.model.txn_id import TxnId
from geminga.runtime import wait_ms
from geminga.transaction.logs import LATER_MS
from support.clusters.transacting import Transacting, begun, producing, publishing
from support.worlds.broker_world import BrokerWorld, Type, run_with_broker, send_frame


def run(scenario: Callable[[BrokerWorld], Awaitable[None]], **settings) -> None:
    run_with_broker(scenario, transaction_coordinator_enabled=True, **settings)


def frame(sequence_id: int, txn_id: TxnId | None, **fields) -> bytes:
    if txn_id is not None:
        ids = {"txnid_most_bits": txn_id.coordinator, "txnid_least_bits": txn_id.number}
        fields = {**ids, "metadata": ids, **fields}
    return send_frame(sequence_id, **fields)


async def answers(writer: Transacting, count: int) -> list[tuple[int, int]]:
    """Kind and sequence id of the next answers to SENDs."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        await writer.client.wait_for_news()
        command, _ = writer.client.received.popleft()
        if command.type in (Type.SEND_RECEIPT, Type.SEND_ERROR):
            answer = command.send_receipt if command.type == Type.SEND_RECEIPT else command.send_error
            found.append((command.type, answer.sequence_id))
    return found


def test_what_one_read_brings_of_a_transaction_is_one_batch() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await producing(world)
        one, two = await writer.begin(), await writer.begin()
        for txn_id in (one, two):
            await writer.add_partition(txn_id)
        producer = writer.client.connection.members.producers[1]
        # The first transaction of the topic: what is behind it waits, and keeps its order.
        first = [frame(0, one), frame(1, one), frame(2, two), frame(3, None), frame(4, None, producer_id=1)]
        writer.client.send_bytes(b"".join(first))
        receipt = int(Type.SEND_RECEIPT)
        assert await answers(writer, 5) == [(receipt, each) for each in range(5)]
        calls = world.bookie.add_calls
        writer.client.send_bytes(b"".join(frame(5 + each, one) for each in range(100)))
        assert producer.pending_batches == 1
        assert await answers(writer, 100) == [(receipt, 5 + each) for each in range(100)]
        assert world.bookie.add_calls == calls + 1
        # A batch ends where the transaction does.
        ids = [one, one, two, None, None, one]
        writer.client.send_bytes(b"".join(frame(200 + each, txn_id) for each, txn_id in enumerate(ids)))
        assert producer.pending_batches == 4
        await answers(writer, len(ids))
        for txn_id in (one, two):
            await writer.end(txn_id, commit=True)
        # Of one that is over each is refused, and nothing else.
        late = [frame(300, None), frame(301, one), frame(302, one), frame(303, None)]
        writer.client.send_bytes(b"".join(late))
        kinds = [kind for kind, _ in await answers(writer, 4)]
        refused = int(Type.SEND_ERROR)
        assert kinds == [receipt, refused, refused, receipt]

    run(scenario)


def test_a_damaged_message_behind_the_first_of_a_topics_transactions_keeps_its_place() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, txn_id = await begun(world)
        damaged = bytearray(frame(1, txn_id))
        damaged[-1] ^= 1
        writer.client.send_bytes(frame(0, txn_id) + bytes(damaged) + frame(2, txn_id))
        receipt, refused = int(Type.SEND_RECEIPT), int(Type.SEND_ERROR)
        assert await answers(writer, 3) == [(receipt, 0), (refused, 1), (receipt, 2)]
        await writer.finish(txn_id, commit=True)

    run(scenario)


async def cost_of(world: BrokerWorld, work: Awaitable[object]) -> int:
    """Appends to ledgers that something takes: each waits for the disk, as far as it is not part of a group."""
    before = world.bookie.add_calls
    await work
    return world.bookie.add_calls - before


async def ready(world: BrokerWorld) -> Transacting:
    """A client with a producer on a topic that had a transaction."""
    writer, txn_id = await publishing(world, b"first")
    await writer.end(txn_id, commit=True)
    await wait_ms(2 * LATER_MS)
    return writer


def test_a_transaction_takes_four_appends_and_its_beginning_none() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await ready(world)
        for is_again in (False, True):
            before = world.bookie.add_calls
            txn_id = await writer.begin()
            assert world.bookie.add_calls == before, "a beginning waits for no disk"
            # What was left of the transaction before, the beginning, and the topic: one append.
            assert await cost_of(world, writer.add_partition(txn_id)) == 1
            assert await cost_of(world, writer.publish(b"message", txn_id)) == 1
            # The decision, and the marker; that all have heard is stored when something else is.
            assert await cost_of(world, writer.end(txn_id, commit=not is_again)) == 2
            assert world.bookie.add_calls == before + 4
        # Without a next one, it is soon.
        assert await cost_of(world, wait_ms(2 * LATER_MS)) == 1

    run(scenario, transaction_buffer_snapshot_min_ms=1 << 30)


def test_transactions_that_end_at_once_share_their_appends() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await ready(world)
        txn_ids = [await writer.begin() for _ in range(32)]
        asked = world.bookie.add_calls
        for txn_id in txn_ids:
            await writer.add_partition(txn_id)
            await writer.publish(b"message", txn_id)
        assert world.bookie.add_calls == asked + 2 * len(txn_ids)
        before = world.bookie.add_calls
        for txn_id in txn_ids:
            writer.ask_end(txn_id, commit=True)
        for _ in txn_ids:
            answer = await writer.client.expect(Type.END_TXN_RESPONSE)
            assert not answer.endTxnResponse.HasField("error")
        assert world.bookie.add_calls == before + 2, "one append of decisions, one of markers"

    run(scenario, transaction_buffer_snapshot_min_ms=1 << 30)
