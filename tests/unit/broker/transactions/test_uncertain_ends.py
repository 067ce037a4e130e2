"""Ends of transactions, and messages in them, of which a broker can not know alone what became of them.

Each was a line whose loss no test noticed: a write with an error, an end that overtakes a message, a topic that is
another broker's by now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga.metadata.cas import CAS_ATTEMPTS_MAX
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import DiskFullError, LedgerFencedError
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn, wait_ms
from support.clusters.transacting import Transacting, producing, publishing, transacting
from support.clusters.two_owners import TwoOwners, run_two
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker, send_frame

NAME = TopicName.parse(TOPIC)


def run(scenario: Callable[[BrokerWorld], Awaitable[None]]) -> None:
    run_with_broker(scenario, transaction_coordinator_enabled=True)


async def committed(world: BrokerWorld, payload: bytes) -> Transacting:
    """A client, and a message of a transaction of its own that is over: the topic has a buffer."""
    writer, txn_id = await publishing(world, payload)
    await writer.finish(txn_id, commit=True)
    return writer


async def reader_of(world: BrokerWorld) -> Transacting:
    reader = await transacting(world)
    await reader.client.subscribe()
    await wait_ms(50)
    return reader


@pytest.mark.parametrize("commit", [True, False])
def test_message_stored_with_an_error_is_read_once_its_transaction_is_committed_and_not_before(commit: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await committed(world, b"before")
        txn_id = await writer.begin()
        await writer.add_partition(txn_id)
        world.bookie.add_error, world.bookie.stores_before_error = DiskFullError("no answer in time"), True
        # The ledger can not be closed at what was confirmed: recovery finds its end, and the message.
        world.metadata.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * CAS_ATTEMPTS_MAX)
        assert (await writer.send(b"uncertain", txn_id)).type == Type.SEND_ERROR
        world.bookie.add_error, world.bookie.stores_before_error = None, False
        await wait_ms(1_000)
        other = await transacting(world)
        await other.client.create_producer(producer_name="other")
        await other.publish(b"plain")  # into a ledger of its own: where the one before ends is known now
        reader = await reader_of(world)
        assert reader.payloads() == [b"before"]
        await writer.finish(txn_id, commit=commit)
        await wait_ms(1_000)
        assert reader.payloads() == [*[b"uncertain"] * commit, b"plain"]

    run(scenario)


def test_end_waits_for_the_message_of_its_transaction_that_is_being_stored() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await committed(world, b"before")
        txn_id = await writer.begin()
        await writer.add_partition(txn_id)
        topic = await world.broker.registry.get(NAME, create=False)
        world.bookie.holds_replies = True
        bits = {"txnid_most_bits": txn_id.coordinator, "txnid_least_bits": txn_id.number}
        writer.client.send_bytes(send_frame(99, b"coming", metadata=bits, **bits))
        await wait_ms(10)
        ending = spawn(topic.transaction_buffer.end(txn_id, commit=True, low_watermark=-1), name="end")
        await wait_ms(10)
        assert not ending.done()
        world.bookie.release()
        await ending
        reader = await reader_of(world)
        assert reader.payloads() == [b"before", b"coming"]

    run(scenario)


def test_broker_that_lost_the_topic_does_not_say_that_a_transaction_has_nothing_on_it() -> None:
    """The coordinator would take that for the end of it: what the next owner has would be held back for good."""

    async def scenario(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> None:
        await committed(a, b"before")
        stale = await a.broker.registry.get(NAME, create=False)
        two.table.default = "b"  # and nobody tells the one before
        writer, txn_id = await publishing(b)
        with pytest.raises(LedgerFencedError):
            await (await stale.use_transactions()).end(txn_id, commit=True, low_watermark=-1)
        await writer.finish(txn_id, commit=True)
        reader = await reader_of(b)
        assert reader.payloads() == [b"before", b"message"]
        await b.broker.close()

    run_two(scenario)


def test_broker_that_lost_the_subscription_does_not_say_that_a_transaction_holds_nothing_there() -> None:
    async def scenario(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> None:
        client = await producing(a)
        await client.client.subscribe()
        for payload in (b"one", b"two"):
            await client.publish(payload)
        await wait_ms(50)
        await acknowledged(client, b"one", commit=True)
        stale = (await a.broker.registry.get(NAME, create=False)).subscriptions["sub"]
        two.table.default = "b"  # and nobody tells the one before
        other = await reader_of(b)
        txn_id = await acknowledged(other, b"two", commit=None)
        with pytest.raises(LedgerFencedError):
            await stale.transactions.end(txn_id, commit=True, low_watermark=-1)
        await other.finish(txn_id, commit=True)
        other.client.lose()
        await wait_ms(50)
        assert (await reader_of(b)).messages() == []
        await b.broker.close()

    run_two(scenario)


async def acknowledged(client: Transacting, payload: bytes, *, commit: bool | None):
    """The transaction in which the one message with this payload was acknowledged; None: it is left open."""
    [message_id] = [message_id for message_id, each in client.messages() if each == payload]
    txn_id = await client.begin()
    await client.add_subscription(txn_id)
    assert not (await client.acknowledge([message_id], txn_id)).HasField("error")
    if commit is not None:
        await client.finish(txn_id, commit=commit)
    return txn_id
