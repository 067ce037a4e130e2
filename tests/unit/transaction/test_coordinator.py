"""A coordinator through restarts, deaf participants, time-outs and a log that fails."""

from __future__ import annotations

import asyncio
import itertools
import tracemalloc

import pytest

from geminga import sim
from geminga.managed_ledger import ManagedLedger
from geminga.model.errors import (
    InvalidTxnStatusError,
    LedgerFencedError,
    TooManyRequestsError,
    TransactionCoordinatorNotFoundError,
    TransactionNotFoundError,
    UnavailableError,
)
from geminga.model.position import Position
from geminga.model.txn_id import TxnId, TxnStatus
from geminga.runtime import Raised, attempt_await, next_turn, spawn, wait_ms
from geminga.transaction.coordinator import LOOK_MS_MAX, TIMING_OUT_MAX, CoordinatorConfig
from geminga.transaction.logs import LedgerRecordLog, MemoryRecordLog
from geminga.transaction.reserved_numbers import NUMBERS_AT_ONCE
from geminga.transaction.turns import TELLING_AT_ONCE, TELLING_ONE_AT_ONCE
from geminga.wire.pulsar.transaction_log import (
    LogOp,
    TransactionRecord,
    TxnSubscription,
    encode_transaction_record,
    encode_transaction_records,
)
from support.worlds.coordinator_world import CoordinatorWorld
from support.worlds.ledger_world import LedgerWorld

MINUTE = 60_000
SUB = TxnSubscription("t", "s")


def test_every_participant_hears_of_the_end_and_the_log_is_empty_then(with_coordinator) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        one, two = await coordinator.begin(MINUTE), await coordinator.begin(MINUTE, "role")
        assert (one, two) == (TxnId(3, 0), TxnId(3, 1))
        await coordinator.add_partitions(one, ["a", "b", "a"])
        await coordinator.add_subscriptions(one, [SUB])
        await coordinator.add_partitions(two, ["a"])
        world.heard.deaf = {"b": 3, "t/s": 1}
        await coordinator.end(one, commit=True)
        await coordinator.end(two, commit=False)
        assert world.heard.told == {(one, "a"): {True}, (one, "b"): {True}, (one, "t/s"): {True}, (two, "a"): {False}}
        assert world.heard.calls == 8
        # Until `one` is over nobody is told that it is.
        assert max(world.heard.watermarks[:7]) == -1
        assert world.heard.watermarks[-1] == 0
        await coordinator.end(one, commit=True)  # its client lost the answer
        with pytest.raises(InvalidTxnStatusError, match="COMMITTED"):
            await coordinator.end(one, commit=False)
        with pytest.raises(TransactionNotFoundError):
            await coordinator.add_partitions(one, ["c"])
        await coordinator.close()
        again = await world.open()
        assert not again.state.open
        assert (await again.begin(MINUTE)).number > two.number
        assert again.stats.active == 1

    with_coordinator(scenario)


def test_one_that_closes_waits_for_nobody_who_is_deaf(with_coordinator) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        txn_id = await coordinator.begin(MINUTE)
        await coordinator.add_partitions(txn_id, ["a"])
        world.heard.deaf = {"a": 1_000}
        ending = spawn(attempt_await(coordinator.end(txn_id, commit=True)), name="end")
        await world.world.sleep(60)  # the pauses are long by now
        await coordinator.close()
        outcome = await ending
        assert isinstance(outcome, Raised)
        assert isinstance(outcome.error, TransactionCoordinatorNotFoundError)
        for _ in range(3):
            await next_turn()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("end transaction")]

    with_coordinator(scenario)


def test_a_crash_leaves_open_what_was_open_and_ends_what_was_ending(with_coordinator) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        stays, commits, aborts = [await coordinator.begin(MINUTE) for _ in range(3)]
        for txn_id in (stays, commits, aborts):
            await coordinator.add_partitions(txn_id, ["a"])
        world.heard.deaf = {"a": 1 << 60}
        ends = [coordinator.end(txn_id, commit=txn_id == commits) for txn_id in (commits, aborts)]
        ending = [spawn(attempt_await(end), name="end") for end in ends]
        await world.world.sleep(1)
        coordinator.stop()
        for raised in [await task for task in ending]:
            assert isinstance(raised, Raised)
            assert isinstance(raised.error, TransactionCoordinatorNotFoundError)
        again = await world.open()
        assert {txn_id: each.status for txn_id, each in again.state.open.items()} == {
            0: TxnStatus.OPEN,
            1: TxnStatus.COMMITTING,
            2: TxnStatus.ABORTING,
        }
        retried = spawn(again.end(commits, commit=True), name="end again")  # the client asks again
        with pytest.raises(InvalidTxnStatusError, match="COMMITTING"):
            await again.end(commits, commit=False)
        await world.world.sleep(0.01)
        world.heard.deaf = {}
        await retried
        await world.world.sleep(15)
        assert world.heard.told == {(commits, "a"): {True}, (aborts, "a"): {False}}
        await again.add_partitions(stays, ["b"])
        await again.end(stays, commit=True)
        assert world.heard.told[stays, "b"] == {True}
        # Numbers that were made sure of and not given are lost; none is given twice.
        assert (await again.begin(MINUTE)).number == NUMBERS_AT_ONCE

    with_coordinator(scenario)


def test_time_outs_abort_also_after_a_restart_and_after_longer_ones(with_coordinator) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        long = await coordinator.begin(MINUTE)
        short = await coordinator.begin(1_000)
        for txn_id in (long, short):
            await coordinator.add_partitions(txn_id, ["a"])
        await world.world.sleep(0.9)
        assert not world.heard.told
        await world.world.sleep(0.2)
        assert world.heard.told == {(short, "a"): {False}}
        coordinator.stop()
        again = await world.open()
        await world.world.sleep(MINUTE / 1000 - 1.2)
        assert (long, "a") not in world.heard.told
        await world.world.sleep(0.2)
        assert world.heard.told[long, "a"] == {False}
        assert again.stats.timed_out == again.stats.aborted == 1

    with_coordinator(scenario)


def test_what_timed_out_while_nobody_served_it_ends_at_once(with_coordinator) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        late = [await coordinator.begin(1_000) for _ in range(250)]
        coordinator.stop()
        await world.world.sleep(5)
        again = await world.open()
        await world.world.sleep(0.1)
        assert not again.state.open
        assert again.stats.timed_out == len(late)

    with_coordinator(scenario)


def test_a_clock_that_is_set_is_noticed(with_coordinator) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        await coordinator.begin(10 * MINUTE)
        world.world.node("broker").clock.jump(10 * MINUTE)
        await world.world.sleep(LOOK_MS_MAX / 1000 + 0.1)
        assert not coordinator.state.open

    with_coordinator(scenario)


def test_what_is_deleted_needs_to_hear_nothing(with_coordinator) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        txn_id = await coordinator.begin(MINUTE)
        await coordinator.add_partitions(txn_id, ["gone", "a"])
        world.heard.deleted = {"gone"}
        await coordinator.end(txn_id, commit=True)
        assert world.heard.told == {(txn_id, "a"): {True}}

    with_coordinator(scenario)


def test_limits(with_coordinator) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        first = await coordinator.begin(1 << 62)
        assert coordinator.state.find(first).timeout_ms == 5_000
        with pytest.raises(TooManyRequestsError):
            await coordinator.begin(1)
        assert not coordinator.slow(100)
        await world.world.sleep(0.2)
        assert [each.txn_id for each in coordinator.slow(100)] == [first]
        await world.world.sleep(5)
        await coordinator.begin(1)

    with_coordinator(scenario, CoordinatorConfig(active_max=1, timeout_max_ms=5_000))


def test_many_at_once_have_each_a_number_of_its_own(with_coordinator) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        found = await asyncio.gather(*(coordinator.begin(MINUTE) for _ in range(2 * NUMBERS_AT_ONCE + 10)))
        assert sorted(each.number for each in found) == list(range(len(found)))
        assert list(coordinator.state.open) == sorted(coordinator.state.open)

    with_coordinator(scenario)


def on_a_ledger(world: sim.SimWorld) -> CoordinatorWorld:
    """Coordinators whose log is a ledger, each in a process of its own."""
    ledgers = LedgerWorld(world)

    async def open_log() -> LedgerRecordLog:
        ledgers.new_process()
        return await LedgerRecordLog.open(await ledgers.open(), "c", coordinators)

    coordinators = CoordinatorWorld(world, open_log)
    return coordinators


def test_who_lost_the_log_does_not_say_that_a_transaction_of_its_next_owner_is_none() -> None:
    async def main(world: sim.SimWorld) -> None:
        coordinators = on_a_ledger(world)
        old, new = await coordinators.open(), await coordinators.open()
        txn_id = await new.begin(MINUTE)
        with pytest.raises(LedgerFencedError):
            await old.end(txn_id, commit=True)
        assert [type(error) for error in coordinators.lost] == [LedgerFencedError]
        await new.end(txn_id, commit=True)

    sim.run(main)


def test_who_lost_the_log_stops_and_says_so() -> None:
    """Two that believe they own a coordinator: the ledger decides."""

    async def main(world: sim.SimWorld) -> None:
        coordinators = on_a_ledger(world)
        old = await coordinators.open()
        txn_id = await old.begin(MINUTE)
        await old.add_partitions(txn_id, ["b"])
        new = await coordinators.open()
        await new.end(txn_id, commit=True)
        with pytest.raises(UnavailableError, match="nobody knows"):
            await old.add_partitions(txn_id, ["a"])
        assert [type(error) for error in coordinators.lost] == [LedgerFencedError]
        for refused in (old.begin(1), old.end(txn_id, commit=False)):
            with pytest.raises(TransactionCoordinatorNotFoundError):
                await refused
        assert coordinators.heard.told == {(txn_id, "b"): {True}}
        assert (await new.begin(1)).number >= NUMBERS_AT_ONCE

    sim.run(main)


@pytest.mark.parametrize("timeout_ms", [1 << 62, (1 << 63) - 1, (1 << 64) - 1])
def test_time_out_in_a_log_of_another_broker_has_the_bound_too(timeout_ms: int) -> None:
    """Pulsar's broker takes any number from its clients, and never ends the transaction."""

    async def main(world: sim.SimWorld) -> None:
        log = MemoryRecordLog()

        async def open_log() -> MemoryRecordLog:
            return log

        coordinators = CoordinatorWorld(world, open_log, CoordinatorConfig(timeout_max_ms=MINUTE))
        now_ms = coordinators.runtime.clock.wall_ms()
        begun = TransactionRecord(LogOp.NEW, TxnId(3, 0), timeout_ms=timeout_ms, start_ms=now_ms, max_number=0)
        await log.append(encode_transaction_record(begun))
        added = TransactionRecord(LogOp.ADD_PARTITION, TxnId(3, 0), partitions=("a",), max_number=0)
        await log.append(encode_transaction_record(added))
        await coordinators.open()
        await world.sleep(MINUTE / 1000 - 1)
        assert not coordinators.heard.told
        await world.sleep(2)
        assert coordinators.heard.told == {(TxnId(3, 0), "a"): {False}}

    sim.run(main)


def test_an_entry_of_several_transactions_goes_with_the_last_of_them() -> None:
    """As Pulsar's broker writes them where ``transactionLogBatchedWriteEnabled`` is set."""

    async def main(world: sim.SimWorld) -> None:
        log = MemoryRecordLog()
        new = [
            TransactionRecord(LogOp.NEW, TxnId(3, number), timeout_ms=MINUTE, start_ms=1 << 45, max_number=number)
            for number in (0, 1)
        ]
        await log.append(encode_transaction_records(new))
        ended = TransactionRecord(
            LogOp.UPDATE, TxnId(3, 9), expected_status=TxnStatus.OPEN, new_status=TxnStatus.COMMITTED, max_number=20
        )
        await log.append(encode_transaction_record(ended))

        async def open_log() -> MemoryRecordLog:
            return log

        coordinators = CoordinatorWorld(world, open_log)
        coordinator = await coordinators.open()
        assert await held(log) == [Position(0, 0)], "what was over before says nothing any more"
        await coordinator.end(TxnId(3, 0), commit=True)
        assert Position(0, 0) in await held(log)
        coordinator.stop()
        again = await coordinators.open()
        assert list(again.state.open) == [1]
        await again.end(TxnId(3, 1), commit=True)
        assert await held(log) == []
        assert (await again.begin(1)).number > 20

    sim.run(main)


def test_entries_that_are_shared_in_turn_go_together() -> None:
    """Of three transactions, of which the first and the second, and the second and the third share an entry."""

    async def main(world: sim.SimWorld) -> None:
        log = MemoryRecordLog()

        def new(number: int) -> TransactionRecord:
            return TransactionRecord(
                LogOp.NEW, TxnId(3, number), timeout_ms=MINUTE, start_ms=1 << 45, max_number=number
            )

        def ends(number: int) -> list[TransactionRecord]:
            states = [TxnStatus.OPEN, TxnStatus.COMMITTING, TxnStatus.COMMITTED]
            return [
                TransactionRecord(LogOp.UPDATE, TxnId(3, number), expected_status=before, new_status=after)
                for before, after in itertools.pairwise(states)
            ]

        for records in ([new(0), new(1)], [new(2), *ends(1)], ends(2)):
            await log.append(encode_transaction_records(records))

        async def open_log() -> MemoryRecordLog:
            return log

        coordinators = CoordinatorWorld(world, open_log)
        for _ in range(3):
            coordinator = await coordinators.open()
            assert list(coordinator.state.open) == [0], "the second was committed, and is not open again"
            coordinator.stop()
        coordinator = await coordinators.open()
        await coordinator.end(TxnId(3, 0), commit=True)
        assert await held(log) == []

    sim.run(main)


async def held(log: MemoryRecordLog) -> list[Position]:
    found: list[Position] = []
    await log.replay(lambda _data, position: found.append(position))
    return found


class SlowLog(MemoryRecordLog):
    """Each append takes a while, and any number of them are under way."""

    __slots__ = ("append_ms", "error")

    async def append(self, data: bytes) -> Position:
        await wait_ms(self.append_ms)
        return await super().append(data)

    def append_now(self, data: bytes, done) -> None:
        loop, error = asyncio.get_running_loop(), self.error
        if error is not None:
            loop.call_later(self.append_ms / 1000, done, error)
        else:
            loop.call_later(self.append_ms / 1000, super().append_now, data, done)


def on_slow_log(scenario, append_ms: int, config: CoordinatorConfig | None = None) -> None:
    async def main(world: sim.SimWorld) -> None:
        log = SlowLog()
        log.append_ms, log.error = append_ms, None

        async def open_log() -> MemoryRecordLog:
            return log

        await scenario(CoordinatorWorld(world, open_log, config))

    sim.run(main)


def test_limits_hold_for_who_does_not_wait_for_answers() -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        begun = await asyncio.gather(*(attempt_await(coordinator.begin(MINUTE)) for _ in range(50)))
        assert sum(isinstance(each, TxnId) for each in begun) == 3
        adding = (coordinator.add_partitions(begun[0], [f"{n}-{i}" for i in range(1_000)]) for n in range(50))
        added = await asyncio.gather(*map(attempt_await, adding))
        assert sum(each is None for each in added) == 10
        await coordinator.end(begun[0], commit=False)
        assert isinstance(await coordinator.begin(MINUTE), TxnId)

    on_slow_log(scenario, 5, CoordinatorConfig(active_max=3))


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_stored", [True, False])
def test_who_asks_for_an_end_that_is_being_stored_hears_what_becomes_of_it(commit: bool, is_stored: bool) -> None:
    """A client that lost its connection, or waited for long, asks again: its commit is not refused for that."""

    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        txn_id = await coordinator.begin(MINUTE)
        await coordinator.add_partitions(txn_id, ["a"])
        world.log.error = None if is_stored else LedgerFencedError("gone")
        told: list[object] = []
        ends = (attempt_await(coordinator.end(txn_id, commit=commit)) for _ in range(2))
        asked = [spawn(end, name="end") for end in ends]
        await next_turn()
        coordinator.end_now(txn_id, commit=commit, done=told.append)
        with pytest.raises(InvalidTxnStatusError):
            await coordinator.end(txn_id, commit=not commit)
        assert not any(each.done() for each in asked)
        outcomes = [await each for each in asked]
        if is_stored:
            assert (outcomes, told) == ([None, None], [None])
            assert world.heard.told == {(txn_id, "a"): {commit}}
            assert world.heard.calls == 1
        else:
            assert [type(each.error) for each in outcomes if isinstance(each, Raised)] == [UnavailableError] * 2
            assert [type(each) for each in told] == [UnavailableError]
            assert [type(error) for error in world.lost] == [LedgerFencedError]
            with pytest.raises(TransactionCoordinatorNotFoundError):
                await coordinator.begin(MINUTE)

    on_slow_log(scenario, 100)


def test_who_stops_while_an_end_is_being_stored_tells_nobody() -> None:
    """Whoever opens the log next does."""

    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        txn_id = await coordinator.begin(MINUTE)
        await coordinator.add_partitions(txn_id, ["a"])
        ending = spawn(attempt_await(coordinator.end(txn_id, commit=True)), name="end")
        await next_turn()
        coordinator.stop()
        outcome = await ending
        assert isinstance(outcome, Raised)
        assert isinstance(outcome.error, TransactionCoordinatorNotFoundError)
        await wait_ms(1_000)
        assert world.heard.calls == 0

    on_slow_log(scenario, 100)


def test_an_administrator_who_waits_no_longer_cuts_nothing_off() -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        txn_id = await coordinator.begin(10 * MINUTE)
        await coordinator.add_partitions(txn_id, ["a"])
        assert not await coordinator.abort_within(txn_id, 1)
        waiting = asyncio.ensure_future(coordinator.abort_within(await coordinator.begin(10 * MINUTE), 100))
        await wait_ms(1_000)
        waiting.cancel()
        await wait_ms(10_000)
        assert not coordinator.state.open
        assert world.heard.told == {(txn_id, "a"): {False}}
        with pytest.raises(TransactionNotFoundError):
            await coordinator.abort_within(TxnId(3, 99), 1)

    on_slow_log(scenario, 3_000)


def test_many_that_are_left_open_are_remembered_cheaply_and_time_out_in_turns() -> None:
    """Their client went away: what each takes, how many end at a time, and what that costs."""
    count = 5_000

    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        loop = asyncio.get_running_loop()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(count // 1_000):
            await asyncio.gather(*(coordinator.begin(MINUTE) for _ in range(1_000)))
        taken = (tracemalloc.get_traced_memory()[0] - before) / count
        tracemalloc.stop()
        assert taken < 1_200, "bytes, with what the log has of it"
        steps = loop.steps  # type: ignore[attr-defined]
        await wait_ms(MINUTE // 2)
        assert loop.steps - steps < 20, "nothing turns while they are open"  # type: ignore[attr-defined]
        world.log.append_ms = 50
        most, steps = 0, loop.steps  # type: ignore[attr-defined]
        while coordinator.state.open:
            most = max(most, len(asyncio.all_tasks()))
            await wait_ms(10)
        assert most <= 4 * TIMING_OUT_MAX
        assert coordinator.stats.timed_out == coordinator.stats.aborted == count
        assert loop.steps - steps < 15 * count + 100_000  # type: ignore[attr-defined]

    on_slow_log(scenario, 0)


def test_a_trim_of_the_log_that_a_kill_cut_off_is_made_up_for_by_the_next_start() -> None:
    """Nothing moves the cursor of a log whose transactions are all over: its ledgers would stay."""

    async def main(world: sim.SimWorld) -> None:
        ledgers = LedgerWorld(world)

        async def no_log() -> MemoryRecordLog:
            return MemoryRecordLog()

        coordinators = CoordinatorWorld(world, no_log)
        name = "pulsar/system/persistent/__transaction_log_3"

        async def opened() -> tuple[ManagedLedger, LedgerRecordLog]:
            ledgers.new_process()
            ledger = await ledgers.open(name, retention_ms=0)
            return ledger, await LedgerRecordLog.open(ledger, "transaction.subscription", coordinators)

        ledger, log = await opened()
        positions = [await log.append(b"%d" % number) for number in range(35)]
        # As if it were killed before it came to that.
        ledger.trimmer._is_due = True
        log.delete(positions)
        await world.sleep(5)
        assert len(ledger.ledgers) > 3
        ledger, log = await opened()
        await log.replay(lambda data, position: None)
        await world.sleep(5)
        assert len(ledger.ledgers) <= 1

    sim.run(main)


class Hung:
    """Ends whose participants do not answer, and behind them one whose participant does."""

    def __init__(self, world: CoordinatorWorld, *names: str) -> None:
        self.world = world
        self.ends: list[asyncio.Task[None]] = []
        self._names = names or ("hung",)
        self._answers = asyncio.Event()
        world.heard.silent.update(dict.fromkeys(self._names, self._answers))

    async def end_behind(self, count: int, *, within_s: float) -> TxnId:
        """The transaction that is over by then."""
        coordinator = await self.world.open()
        for number in range(count):
            txn_id = await coordinator.begin(10 * MINUTE)
            await coordinator.add_partitions(txn_id, [self._names[number % len(self._names)]])
            self.ends.append(spawn(coordinator.end(txn_id, commit=True), name=f"end {txn_id}"))
        other = await coordinator.begin(10 * MINUTE)
        await coordinator.add_partitions(other, ["topic"])
        async with asyncio.timeout(within_s):
            await coordinator.end(other, commit=True)
        return other

    async def answer(self) -> None:
        self._answers.set()
        await asyncio.wait(self.ends)
        assert len(self.world.heard.told) == len(self.ends) + 1


@pytest.mark.parametrize("names", [("hung",), ("hung", "too", "and this one")])
def test_a_participant_that_does_not_answer_keeps_no_other_waiting_for_long(with_coordinator, names) -> None:
    """However many transactions it is to hear of, each takes a place for a second at most; three have all places."""

    async def scenario(world: CoordinatorWorld) -> None:
        hung = Hung(world, *names)
        other = await hung.end_behind(3 * TELLING_AT_ONCE, within_s=5)
        assert world.heard.told == {(other, "topic"): {True}}
        assert not any(end.done() for end in hung.ends)
        await hung.answer()

    with_coordinator(scenario)


def test_a_participant_with_a_thousand_ends_that_does_not_answer_leaves_places_for_others(with_coordinator) -> None:
    """Two seconds for whoever comes behind 1,000 of one topic: it never has all the places."""

    async def scenario(world: CoordinatorWorld) -> None:
        hung = Hung(world)
        await hung.end_behind(10 * TELLING_AT_ONCE, within_s=2)
        assert world.heard.calls == TELLING_ONE_AT_ONCE + 1
        await hung.answer()

    with_coordinator(scenario)
