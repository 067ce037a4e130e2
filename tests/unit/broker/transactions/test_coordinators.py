"""Which coordinators a broker has: opened when they are given or asked for, closed when they are taken, opened anew."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.ownership.ports import HERE, Owner, OwnershipListener, Unknown
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.broker.transactions.coordinators import REOPEN_FIRST_MS
from geminga.model.errors import TransactionCoordinatorNotFoundError, UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn, wait_ms
from geminga.transaction.coordinator import NUMBER_PROPERTY
from geminga.transaction.logs import LATER_MS
from support.worlds.broker_world import BrokerWorld, run_with_broker


class Given:
    """Coordinators are here while their numbers are in ``mine``; all else always is."""

    def __init__(self) -> None:
        self.mine = {0}
        self.listener: OwnershipListener | None = None

    async def owner_of(self, name: TopicName, *, is_authoritative: bool = False) -> Owner:
        if name.partitioned_topic != COORDINATORS_TOPIC or name.partition in self.mine:
            return HERE
        return Unknown()

    def doubt(self, name: TopicName) -> None:
        """Nobody else has any."""

    def departure_of(self, name: TopicName) -> None:
        """Clients are told at once."""

    def listen(self, listener: OwnershipListener) -> None:
        if type(listener).__name__ == "LateTransactions":
            self.listener = listener


def test_a_coordinator_is_where_its_partition_is_and_takes_its_transactions_along() -> None:
    ownership = Given()

    async def scenario(world: BrokerWorld) -> None:
        coordinators = world.broker.transactions.coordinators
        first = await coordinators.find(0)
        assert await coordinators.find(0) is first
        txn_id = await first.begin(60_000)
        for number in (1, 2, 99):
            with pytest.raises(TransactionCoordinatorNotFoundError):
                await coordinators.find(number)
        ownership.mine = {1}
        assert ownership.listener is not None
        await ownership.listener.taken(lambda name: name.partition == 0)
        assert not coordinators.open
        with pytest.raises(TransactionCoordinatorNotFoundError):
            await coordinators.find(0)
        with pytest.raises(TransactionCoordinatorNotFoundError):
            await first.begin(1)
        ownership.mine = {0, 1}
        ownership.listener.given(lambda name: name.partition == 0)
        await wait_ms(100)
        assert list(coordinators.open) == [0], "its log says that there is something to do"
        assert list(coordinators.open[0].state.open) == [txn_id.number]

    run_with_broker(scenario, transaction_coordinator_enabled=True, ownership=ownership)


def test_after_a_restart_time_outs_go_on_though_no_client_comes() -> None:
    async def scenario(world: BrokerWorld) -> None:
        coordinator = await world.broker.transactions.coordinators.find(1)
        await coordinator.begin(1_000)
        await world.restart()
        await wait_ms(1_100)
        (again,) = world.broker.transactions.coordinators.open.values()
        assert again.stats.timed_out == again.stats.aborted == 1

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_one_that_lost_its_log_is_opened_anew() -> None:
    async def scenario(world: BrokerWorld) -> None:
        coordinators = world.broker.transactions.coordinators
        coordinator = await coordinators.find(0)
        txn_id = await coordinator.begin(60_000)
        await wait_ms(LATER_MS + 1)
        other = BrokerWorld(world.runtime, world.config, world.ledger_config, store=world.metadata, bookie=world.bookie)
        ledger = await other.ledgers.open("pulsar/system/persistent/__transaction_log_0")
        await ledger.stored.claim()
        with pytest.raises(UnavailableError, match="nobody knows"):
            await coordinator.add_partitions(txn_id, ["persistent://public/default/a"])
        assert not coordinators.open
        # Not by whoever asks meanwhile: topics that it tells of ends ask again, in a circle as long as storage is away.
        with pytest.raises(UnavailableError, match="opened anew soon"):
            await coordinators.find(0)
        await wait_ms(REOPEN_FIRST_MS + 100)
        assert list(coordinators.open[0].state.open) == [txn_id.number]
        await other.ledgers.close()

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_making_sure_of_the_log_takes_no_number_back() -> None:
    """Two that saved properties at once: the older ones were saved last, and a number was given a second time."""

    async def scenario(world: BrokerWorld) -> None:
        coordinator = await world.broker.transactions.coordinators.find(0)
        began = asyncio.ensure_future(coordinator.begin(60_000))
        await next_turn()
        await coordinator.claim()
        txn_id = await began
        other = BrokerWorld(world.runtime, world.config, world.ledger_config, store=world.metadata, bookie=world.bookie)
        stored = await other.ledgers.info("pulsar/system/persistent/__transaction_log_0")
        assert int(stored.record.properties[NUMBER_PROPERTY]) >= txn_id.number

    run_with_broker(scenario, transaction_coordinator_enabled=True)
