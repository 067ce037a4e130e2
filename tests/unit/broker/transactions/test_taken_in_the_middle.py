"""Transactions whose brokers lose topics and coordinators while something of them is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.broker.transactions.pending_ack_logs import log_name
from geminga.model.errors import (
    GemingaError,
    LedgerFencedError,
    StorageError,
    TransactionCoordinatorNotFoundError,
    TransactionNotFoundError,
    UnavailableError,
)
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import Standing, TxnId, TxnSubscription
from geminga.runtime import spawn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import Transacting, producing, publishing, transacting
from support.clusters.two_owners import TwoOwners, run_two
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker

NAME = TopicName.parse(TOPIC)


def run(scenario: Callable[[BrokerWorld], Awaitable[None]], **settings) -> None:
    run_with_broker(scenario, transaction_coordinator_enabled=True, **settings)


async def read(world: BrokerWorld) -> list[bytes]:
    """What a new consumer gets."""
    reader = await transacting(world)
    await reader.client.subscribe()
    return await reader.read()


def test_an_end_that_was_called_off_counts_once_its_marker_is_stored() -> None:
    """It closed the topic: who waited for the marker was not there any more when it was stored."""

    async def scenario(world: BrokerWorld) -> None:
        _, txn_id = await publishing(world)
        topic = await world.broker.registry.get(NAME, create=False)
        world.bookie.holds_replies = True
        ending = spawn(topic.transaction_buffer.end(txn_id, commit=True, low_watermark=-1), name="end")
        await wait_ms(10)
        ending.cancel()
        await wait_ms(10)
        world.bookie.release()
        await wait_ms(10)
        assert not topic.is_closing
        assert await read(world) == [b"message"]

    run(scenario)


def test_a_coordinator_that_stops_leaves_the_end_under_way_to_its_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, txn_id = await publishing(world)
        writer.ask_end(txn_id, commit=True)
        await wait_ms(0)
        coordinators = world.broker.transactions.coordinators
        coordinator = await coordinators.find(0)
        while not coordinator.state.ending:
            await wait_ms(0)
        world.bookie.holds_replies = True
        await wait_ms(5)
        coordinator.stop()
        await wait_ms(5)
        world.bookie.release()
        await wait_ms(50)
        assert not (await world.broker.registry.get(NAME, create=False)).is_closing

    run(scenario)


def test_a_coordinator_that_loses_its_log_while_another_is_closed_is_passed_over() -> None:
    async def scenario(world: BrokerWorld) -> None:
        coordinators = world.broker.transactions.coordinators
        for number in range(2):
            await (await coordinators.find(number)).begin(60_000)
        world.bookie.go_down(StorageError("down"))
        one = await coordinators.find(1)
        # It would be lost during the first one's farewell.
        lost = spawn(_begin(one), name="begin")
        await coordinators.taken(lambda _: True)
        await lost
        assert not coordinators.open
        world.bookie.come_back()

    run(scenario)


def test_coordinators_that_are_taken_serve_no_more_at_once_however_long_the_first_takes_to_close() -> None:
    """The others went on deciding ends, with no session, while storage did not answer the first."""

    async def scenario(world: BrokerWorld) -> None:
        coordinators = world.broker.transactions.coordinators
        each = [await coordinators.find(number) for number in range(2)]
        for one in each:
            await one.begin(60_000)
        await wait_ms(100)
        world.bookie.holds_replies = True
        storing = [spawn(one.add_partitions(TxnId(number, 0), ["a"]), name="add") for number, one in enumerate(each)]
        await wait_ms(5)
        taking = spawn(coordinators.taken(lambda _: True), name="taken")
        await wait_ms(5)
        assert not taking.done()
        for one in each:
            with pytest.raises(TransactionCoordinatorNotFoundError):
                one.begin_now(60_000)
        world.bookie.release()
        await asyncio.gather(taking, *storing)
        assert not coordinators.open

    run(scenario)


async def _begin(coordinator) -> None:
    with pytest.raises(GemingaError):
        txn_id = await coordinator.begin(60_000)
        await coordinator.add_partitions(txn_id, ["a"])


def test_a_coordinator_that_can_make_sure_of_no_number_is_opened_anew() -> None:
    """It stayed, and began nothing any more, when another broker had written its log's properties."""

    async def scenario(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> None:
        old = await a.broker.transactions.coordinators.find(0)
        two.table.default = "b"  # and nobody tells the one before
        await (await b.broker.transactions.coordinators.find(0)).begin(60_000)
        with pytest.raises(GemingaError):
            await old.begin(60_000)
        assert 0 not in a.broker.transactions.coordinators.open

    run_two(scenario)


def test_snapshots_of_another_broker_are_read_when_topics_come_back() -> None:
    """A broker remembered that the topic had no transaction: what was aborted elsewhere could be read."""

    async def scenario(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> None:
        plain = await producing(a)
        await plain.publish(b"plain")
        await two.move("b")
        writer, txn_id = await publishing(b)
        await writer.finish(txn_id, commit=False)
        await two.move("a")
        assert await read(a) == [b"plain"]

    run_two(scenario)


def test_a_coordinator_that_another_broker_has_says_of_nothing_that_it_is_over() -> None:
    """What it does not know the next owner may have begun: a topic that asked it aborted what was to be committed."""

    async def scenario(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> None:
        old = a.broker.transactions.coordinators
        await old.find(0)
        two.table.default = "b"  # and nobody tells the one before
        txn_id = await (await b.broker.transactions.coordinators.find(0)).begin(60_000)
        a.ownership.beliefs[str(COORDINATORS_TOPIC.with_partition(0))] = await b.ownership.owner_of(NAME)
        with pytest.raises(GemingaError):
            await old.find_standing(txn_id, TOPIC)
        assert 0 not in old.open
        assert await b.broker.transactions.coordinators.find_standing(txn_id, TOPIC) is Standing.UNTOLD

    run_two(scenario)


def test_a_coordinator_that_another_broker_has_does_not_tell_clients_that_there_is_no_such_transaction() -> None:
    """A consumer that had acknowledged cumulatively in it took that for its end, and skipped what came again."""

    async def scenario(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> None:
        stale = await a.broker.transactions.coordinators.find(0)
        two.table.default = "b"  # and nobody tells the one before
        txn_id = await (await b.broker.transactions.coordinators.find(0)).begin(60_000)
        for commit in (True, False):
            with pytest.raises(GemingaError) as told:
                await stale.end(txn_id, commit=commit)
            assert not isinstance(told.value, TransactionNotFoundError)
        current = await b.broker.transactions.coordinators.find(0)
        with pytest.raises(TransactionNotFoundError):
            await current.end(txn_id._replace(number=7_777), commit=True)
        await current.end(txn_id, commit=True)
        await b.broker.close()

    run_two(scenario)


def test_a_topic_that_could_not_be_loaded_is_read_anew_by_the_next_load() -> None:
    """Its ledger stayed open: what another broker trimmed meanwhile was still listed, and the topic gone for good."""

    async def scenario(two: TwoOwners, a: BrokerWorld, _b: BrokerWorld) -> None:
        await publishing(a)
        await two.move("b")
        two.bookie.read_error = StorageError("no reads")
        two.table.default = "a"
        with pytest.raises(GemingaError):
            await a.broker.registry.get(NAME, create=False)
        two.bookie.read_error = None
        assert a.ledgers.get(NAME.managed_ledger_name) is None

    run_two(scenario)


def test_acknowledgments_taken_by_a_broker_that_had_lost_the_topic_count() -> None:
    """It made their log after the next owner had looked for one: the commit found nothing, and they were lost."""

    async def scenario(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> None:
        client = await producing(a)
        await client.client.subscribe()
        await client.publish(b"message")
        await wait_ms(50)
        [(message_id, _)] = client.messages()
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        two.table.default = "b"  # and nobody tells the one before
        await b.broker.registry.get(NAME, create=False)
        coordinator = await b.broker.transactions.coordinators.find(0)
        assert not (await client.acknowledge([message_id], txn_id)).HasField("error")
        await coordinator.end(txn_id, commit=True)
        assert await read(b) == []

    run_two(scenario)


def test_a_pending_ack_log_that_could_not_be_opened_is_read_anew_by_the_next_attempt() -> None:
    """It stayed open without the cursor that another broker had made: nothing could be acknowledged there for good."""

    async def scenario(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> None:
        await a.ledgers.open(log_name(NAME, "sub"))
        beside = await b.ledgers.open("public/default/persistent/beside")
        logs = b.broker.transactions.pending_ack_logs
        await (await logs.open(NAME, "sub", b.broker, beside)).append(b"record")
        logs = a.broker.transactions.pending_ack_logs
        with pytest.raises(GemingaError):
            await logs.open(NAME, "sub", a.broker, beside)
        records: list[bytes] = []
        await (await logs.open(NAME, "sub", a.broker, beside)).replay(lambda data, _: records.append(data))
        assert records == [b"record"]

    run_two(scenario)


def test_a_coordinator_whose_partition_is_taken_while_it_is_opened_is_closed() -> None:
    async def scenario(two: TwoOwners, a: BrokerWorld, _b: BrokerWorld) -> None:
        coordinators = a.broker.transactions.coordinators
        await (await coordinators.find(1)).begin(60_000)
        await coordinators.taken(lambda _: True)
        two.bookie.holds_replies = True
        opening = asyncio.ensure_future(coordinators.find(1))
        await wait_ms(10)
        two.table.default = "b"
        taking = asyncio.ensure_future(a.ownership.tell_taken(lambda _: True))
        await wait_ms(10)
        two.bookie.release()
        await asyncio.gather(opening, taking)
        assert not coordinators.open

    run_two(scenario)


def test_a_topic_whose_cursor_another_broker_changed_is_loaded_anew() -> None:
    """It took no publish to notice: a subscription whose cursor could not be written was refused for good."""

    async def scenario(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> None:
        client = await transacting(a)
        await client.client.subscribe()
        await client.client.create_producer()
        await client.publish(b"message")
        topic = await a.broker.registry.get(NAME, create=False)
        # One that believes for a moment that it has the topic, and writes a cursor before it is told.
        path = "/managed-ledgers/public/default/persistent/topic/sub"
        value, stat = await a.metadata.get(path)
        await a.metadata.put(path, value, expected_version=stat.version)
        with pytest.raises(LedgerFencedError):
            await topic.subscriptions["sub"].set_properties({"a": "b"})
        await wait_ms(100)
        assert await read(a) == [b"message"]
        loaded = await a.broker.registry.get(NAME, create=False)
        assert loaded is not topic
        await loaded.subscriptions["sub"].set_properties({"a": "b"})
        await b.broker.close()

    run_two(scenario)


def test_what_a_broker_has_from_before_it_lost_a_topic_is_loaded_anew_when_it_is_given_back() -> None:
    """Nobody told it that it had lost the topic: what was published meanwhile was not there for its consumers."""

    async def scenario(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> None:
        client = await producing(a)
        await client.publish(b"before")
        two.table.default = "b"
        other = await producing(b)
        await other.publish(b"meanwhile")
        await two.worlds["b"].ownership.tell_taken(lambda _: True)
        two.table.default = "a"
        await two.worlds["a"].ownership.tell_given(lambda _: True)
        await wait_ms(50)
        assert await read(a) == [b"before", b"meanwhile"]
        await b.broker.close()

    run_two(scenario)


class OtherBroker:
    """Asked what its coordinators know, as brokers ask each other; None: it does not answer."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world: BrokerWorld | None = world
        self.asked = 0

    async def ask(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing | None:
        self.asked += 1
        if self.world is None:
            raise UnavailableError("it does not answer")
        return await self.world.broker.transactions.coordinators.own_standing(txn_id, participant)


async def apart(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> tuple[OtherBroker, Transacting, Transacting]:
    """The topic at one broker, its coordinator at another: what the first asks, and a client of each."""
    two.table.owners[str(COORDINATORS_TOPIC.with_partition(0))] = "b"
    other = OtherBroker(b)
    a.broker.transactions.coordinators._elsewhere = other
    writer = await producing(a)
    await writer.client.subscribe()
    return other, writer, await transacting(b)


def test_what_comes_for_a_transaction_that_was_not_told_is_refused_also_where_its_coordinator_is_elsewhere() -> None:
    """It was taken with a receipt, held the topic back, and was dropped though the transaction was committed."""

    async def scenario(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> None:
        _, writer, coordinating = await apart(two, a, b)
        await writer.publish(b"plain")
        await wait_ms(50)
        ((taken, _),) = writer.messages()
        txn_id = await coordinating.begin()
        for _ in range(2):
            answer = await writer.send(b"untold", txn_id)
            assert answer.send_error.error == pb.NotAllowedError
            assert "must be added to the transaction first" in answer.send_error.message
            acked = await writer.acknowledge([taken], txn_id)
            assert "must be added to the transaction first" in acked.message
        await writer.publish(b"more")
        await wait_ms(50)
        assert writer.payloads() == [b"more"], "nothing holds the topic back"
        await coordinating.add_partition(txn_id)
        await coordinating.add_subscription(txn_id)
        await writer.publish(b"told", txn_id)
        assert not (await writer.acknowledge([taken], txn_id)).HasField("error")

    run_two(scenario)


def test_a_coordinator_elsewhere_is_asked_once_for_each_participant_and_believed_while_it_does_not_answer() -> None:
    async def scenario(two: TwoOwners, a: BrokerWorld, b: BrokerWorld) -> None:
        other, writer, coordinating = await apart(two, a, b)
        for number in range(3):
            await writer.publish(b"%d" % number)
        await wait_ms(50)
        taken = [message_id for message_id, _ in writer.messages()]
        txn_id = await coordinating.begin()
        await coordinating.add_partition(txn_id)
        await coordinating.add_subscription(txn_id)
        other.asked = 0
        for message_id in taken:
            await writer.publish(b"a", txn_id)
            assert not (await writer.acknowledge([message_id], txn_id)).HasField("error")
        assert other.asked == 2
        silent = await coordinating.begin()
        await coordinating.add_partition(silent)
        other.world = None
        await writer.publish(b"b", silent)

    run_two(scenario)
