"""No id of a transaction is given twice, whoever had the coordinator's log before: Geminga's broker, or Apache's."""

from __future__ import annotations

from random import Random  # noqa: TID251  (seeded)

import pytest

from geminga import sim
from geminga.managed_ledger import ManagedLedger
from geminga.model.position import Position
from geminga.model.txn_id import TxnId, TxnStatus
from geminga.transaction.logs import LedgerRecordLog
from geminga.transaction.reserved_numbers import NUMBER_PROPERTY
from geminga.wire.pulsar.transaction_log import (
    LogOp,
    TransactionRecord,
    decode_transaction_records,
    encode_transaction_record,
)
from support.house.weekly_sample import sampled
from support.worlds.coordinator_world import CoordinatorWorld
from support.worlds.ledger_world import LedgerWorld

MINUTE = 60_000
LOG = "pulsar/system/persistent/__transaction_log_3"


class LogWorld:
    """A log that is opened by one process after another, of either make."""

    def __init__(self, world: sim.SimWorld) -> None:
        self.ledgers = LedgerWorld(world)
        self.coordinators = CoordinatorWorld(world, self.open)

    async def open(self) -> LedgerRecordLog:
        """As after a kill of the process before."""
        self.ledgers.new_process()
        self.ledger = await self.ledgers.open(LOG, retention_ms=0)
        self.log = await LedgerRecordLog.open(self.ledger, "transaction.subscription", self.coordinators)
        return self.log

    async def kill(self) -> None:
        """What nobody waits for is not stored, and nothing is written any more."""
        await self.log.abandon()

    async def apaches(self) -> Apaches:
        log = await self.open()
        apaches = Apaches(log, await number_of_apaches(self.ledger))
        # With the list of ledgers, to which it adds one.
        await log.add_properties({NUMBER_PROPERTY: str(apaches.number)})
        return apaches


async def number_of_apaches(ledger: ManagedLedger) -> int:
    """The last number that was given, as Pulsar's ``MLTransactionSequenceIdGenerator`` finds it.

    What the last entry of the last ledger says, or, if that is empty, the property.
    """
    last = ledger.extent.last_confirmed_position
    infos = ledger.ledgers.infos
    if infos and infos[-1].ledger_id == last.ledger_id and last.entry_id >= 0:
        (entry,) = await ledger.reader.read_range(last, 1, 1 << 20)
        number = decode_transaction_records(entry.data)[-1].max_number
        assert number is not None
        return number
    return int(ledger.stored.properties.get(NUMBER_PROPERTY, "-1"))


class Apaches:
    """As much of Pulsar's coordinator as there is to numbers: all that it says of them is in its entries."""

    def __init__(self, log: LedgerRecordLog, number: int) -> None:
        self.log = log
        self.number = number

    async def begin(self) -> TxnId:
        self.number += 1
        self.positions = [await self._append(LogOp.NEW)]
        return TxnId(3, self.number)

    async def end(self) -> None:
        before, after = TxnStatus.OPEN, TxnStatus.COMMITTING
        for _ in range(2):
            self.positions.append(await self._append(LogOp.UPDATE, expected_status=before, new_status=after))
            before, after = after, TxnStatus.COMMITTED
        self.log.delete(self.positions)

    async def _append(self, op: LogOp, **fields: TxnStatus) -> Position:
        record = TransactionRecord(op, TxnId(3, self.number), timeout_ms=MINUTE, max_number=self.number, **fields)
        return await self.log.append(encode_transaction_record(record))


@pytest.mark.parametrize("count", [1, 3, 40])
def test_numbers_of_entries_that_are_deleted_are_not_given_again(count: int) -> None:
    """Apache's coordinator leaves a property of the time when it opened its ledger."""

    async def main(world: sim.SimWorld) -> None:
        logs = LogWorld(world)
        apaches = await logs.apaches()
        for _ in range(count):
            last = await apaches.begin()
            await apaches.end()
        await logs.ledgers.let_background_persist()
        coordinator = await logs.coordinators.open()
        assert not coordinator.state.open
        # Its entries go before anything begins here, and so does this process.
        await logs.ledger.trimmer.trim()
        assert not [info for info in logs.ledger.ledgers.infos if info.entries]
        coordinator = await logs.coordinators.open()
        assert (await coordinator.begin(MINUTE)).number > last.number

    sim.run(main)


def test_opening_writes_no_number_that_the_log_says_already() -> None:
    async def main(world: sim.SimWorld) -> None:
        logs = LogWorld(world)
        for _ in range(2):
            await logs.coordinators.open()
            assert NUMBER_PROPERTY not in logs.ledger.stored.properties
        assert (await (await logs.coordinators.open()).begin(MINUTE)).number == 0
        assert NUMBER_PROPERTY in logs.ledger.stored.properties

    sim.run(main)


@pytest.mark.parametrize("seed", sampled("coordinator numbers", range(20), 7))
def test_no_number_is_given_twice_by_brokers_of_both_makes_that_are_killed(seed: int) -> None:
    given: set[TxnId] = set()

    def note(txn_id: TxnId) -> None:
        assert txn_id not in given, f"{txn_id} was given before"
        given.add(txn_id)

    async def main(world: sim.SimWorld) -> None:
        random = Random(seed)
        logs = LogWorld(world)
        for _ in range(12):
            coordinator = None
            if random.random() < 0.5:
                apaches = await logs.apaches()
                for _ in range(random.randrange(6)):
                    note(await apaches.begin())
                    await apaches.end()
            else:
                coordinator = await logs.coordinators.open()
                for _ in range(random.choice((0, 1, 2, 5, 1_100))):
                    txn_id = await coordinator.begin(MINUTE)
                    note(txn_id)
                    if random.random() < 0.3:
                        await coordinator.end(txn_id, commit=True)
            await world.sleep(random.choice((0, 0.01, 2)))
            if random.random() < 0.3:
                await logs.ledger.trimmer.trim()
            if coordinator is not None and random.random() < 0.3:
                await coordinator.close()
            else:
                await logs.kill()

    sim.run(main, seed=seed)
