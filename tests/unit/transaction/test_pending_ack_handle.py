"""Acknowledgments in transactions through kills at any time: committed ones count, aborted ones do not, once each."""

from __future__ import annotations

import pytest

from geminga import sim
from geminga.model.errors import (
    DiskIOError,
    GemingaError,
    LedgerClosedError,
    LedgerFencedError,
    TransactionConflictError,
    UnavailableError,
)
from geminga.model.position import Position
from geminga.model.txn_id import TxnId
from geminga.runtime import next_turn, spawn
from geminga.transaction import pending_ack_handle
from geminga.transaction.core.pending_acks import WHOLE, CumulativeAck, TxnAck
from geminga.transaction.logs import LedgerRecordLog, MemoryRecordLog
from geminga.transaction.pending_ack_handle import PendingAckHandle
from geminga.wire.pulsar.transaction_log import (
    AckOp,
    PendingAck,
    PendingAckRecord,
    decode_pending_ack_records,
    encode_pending_ack_records,
)
from support.house.weekly_sample import sampled
from support.stories.acked_entries import BATCH, AckedEntries, Message, merged, messages
from support.worlds.ledger_world import LedgerWorld

ONE, TWO = TxnId(0, 1), TxnId(0, 2)


def is_refused(ack: TxnAck, counted: set[Message]) -> bool:
    """All of an entry of which a part counts already means the rest of it."""
    mine = messages(*ack)
    return mine <= counted if ack.bits == WHOLE else bool(mine & counted)


class Surroundings:
    """A log that outlives its handle, and a cursor that keeps what was flushed."""

    def __init__(self) -> None:
        self.log = MemoryRecordLog()
        self.cursor = AckedEntries()
        self.lost: list[GemingaError] = []

    async def open(self) -> PendingAckHandle:
        """As after a kill."""
        self.cursor = AckedEntries(self.cursor.durable)
        return await PendingAckHandle.open(self.log, self.cursor, self.lost.append)

    async def records(self) -> int:
        found: list[object] = []
        await self.log.replay(lambda data, _position: found.extend(decode_pending_ack_records(data)))
        return len(found)


@pytest.mark.parametrize("seed", sampled("pending ack handle", range(60), 21))
def test_kills_lose_nothing_and_count_nothing_twice(seed: int) -> None:
    async def main(world: sim.SimWorld) -> None:
        random = world.rng("story")
        around = Surroundings()
        handle = await around.open()
        held: dict[TxnId, set[Message]] = {}
        counted: set[Message] = set()
        number = 0
        for _ in range(random.randrange(20, 80)):
            choice = random.random()
            if choice < 0.1:
                handle = await around.open()
            elif choice < 0.2:
                around.cursor.flush()
            elif choice < 0.65 or not held:
                number += not held or random.random() < 0.4
                txn_id = TxnId(0, number if random.random() < 0.6 or not held else random.choice(list(held)).number)
                acks = [
                    TxnAck(Position(0, random.randrange(8)), random.choice((WHOLE, random.randrange(1, 15))), BATCH)
                    for _ in range(random.randrange(1, 3))
                ]
                named = set().union(*(messages(*ack) for ack in acks))
                others = set().union(*(each for other, each in held.items() if other != txn_id))
                if named & others or any(is_refused(ack, counted) for ack in merged(acks)):
                    with pytest.raises(TransactionConflictError):
                        await handle.acknowledge(txn_id, acks)
                else:
                    await handle.acknowledge(txn_id, acks)
                    held[txn_id] = held.get(txn_id, set()) | named
            else:
                txn_id = random.choice(list(held))
                commit = random.random() < 0.6
                for _ in range(random.choice((1, 1, 2))):  # an end is told again if the answer was lost
                    await handle.end(txn_id, commit=commit, low_watermark=-1)
                mine = held.pop(txn_id)
                counted |= mine if commit else set()
            assert around.cursor.acked == counted
            for entry in range(8):
                position = Position(0, entry)
                assert messages(position, handle.acks.held(position)) == {
                    each for mine in held.values() for each in mine if each[0] == position
                }
        for txn_id in list(held):
            await handle.end(txn_id, commit=False, low_watermark=-1)
        around.cursor.flush()
        assert await around.records() == 0, "everything is over and durable: nobody needs a record"

    sim.run(main, seed=seed)


@pytest.mark.parametrize("commit", [True, False])
def test_very_many_entries_are_settled_in_turns_and_their_records_stay_until_all_are(
    commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_ack_handle, "SETTLED_PER_TURN", 1)
    entries = range(8)

    async def main(world: sim.SimWorld) -> None:
        around = Surroundings()
        handle = await around.open()
        for entry in entries:
            await handle.acknowledge(ONE, [TxnAck(Position(0, entry))])
        ending = spawn(handle.end(ONE, commit=commit, low_watermark=-1), name="end")
        while len(handle.acks) == len(entries):
            await next_turn()
        assert len(handle.acks) > 1
        with pytest.raises(TransactionConflictError):
            await handle.acknowledge(TWO, [TxnAck(Position(0, 0))])
        with pytest.raises(UnavailableError, match="is being settled"):
            await handle.end(ONE, commit=commit, low_watermark=-1)
        await handle.end(TWO, commit=True, low_watermark=1)  # which it is: not over for that
        around.cursor.flush()
        assert await around.records() == len(entries) + 1
        await ending
        if commit:
            assert await around.records() == len(entries) + 1
            around.cursor.flush()
            assert around.cursor.durable == {(Position(0, entry), index) for entry in entries for index in range(BATCH)}
        else:
            assert [len(each.acks) for each in around.cursor.released] == [1] * len(entries)
        assert await around.records() == 0
        assert not handle.acks

    sim.run(main)


def test_one_that_is_closed_while_very_many_are_settled_goes_on_where_it_is_opened_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_ack_handle, "SETTLED_PER_TURN", 3)

    async def main(world: sim.SimWorld) -> None:
        around = Surroundings()
        handle = await around.open()
        await handle.acknowledge(ONE, [TxnAck(Position(0, entry)) for entry in range(8)])
        ending = spawn(attempt_end(handle), name="end")
        while len(handle.acks) == 8:
            await next_turn()
        await handle.abandon()
        assert "are being closed" in await ending
        around.cursor.flush()
        assert await around.records() == 2
        await around.open()
        assert around.cursor.mark_delete_position == Position(0, 7)
        around.cursor.flush()
        assert await around.records() == 0

    async def attempt_end(handle: PendingAckHandle) -> str:
        with pytest.raises(UnavailableError) as raised:
            await handle.end(ONE, commit=True, low_watermark=-1)
        return str(raised.value)

    sim.run(main)


def test_what_ended_is_left_to_a_cursor_that_is_to_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_ack_handle, "SETTLED_PER_TURN", 3)

    async def main(world: sim.SimWorld) -> None:
        around = Surroundings()
        handle = await around.open()
        await handle.acknowledge(ONE, [TxnAck(Position(0, 9))])
        await handle.end(ONE, commit=True, low_watermark=-1)
        around.cursor.fail(DiskIOError("no"))
        assert await around.records() == 2, "until the cursor has it"
        await handle.acknowledge(TWO, [TxnAck(Position(0, entry)) for entry in range(8)])
        ending = spawn(handle.end(TWO, commit=True, low_watermark=-1), name="end")
        await next_turn()
        await handle.leave_to_cursor()
        assert ending.done(), "all of it, and not a part"
        assert await around.records() == 0
        around.cursor = AckedEntries()  # moved back
        await PendingAckHandle.open(around.log, around.cursor, around.lost.append)
        assert not around.cursor.acked

    sim.run(main)


def test_cumulative_ones_count_after_a_kill() -> None:
    async def main(world: sim.SimWorld) -> None:
        around = Surroundings()
        handle = await around.open()
        await handle.acknowledge_cumulative(CumulativeAck(ONE, Position(0, 1)))
        await handle.acknowledge_cumulative(CumulativeAck(ONE, Position(0, 2), 0b0011, BATCH))
        with pytest.raises(TransactionConflictError):
            await handle.acknowledge_cumulative(CumulativeAck(TWO, Position(0, 5)))
        handle = await around.open()
        with pytest.raises(TransactionConflictError):
            await handle.acknowledge_cumulative(CumulativeAck(TWO, Position(0, 5)))
        await handle.end(ONE, commit=True, low_watermark=-1)
        expected = messages(Position(0, 0), WHOLE) | messages(Position(0, 1), WHOLE) | messages(Position(0, 2), 0b0011)
        assert around.cursor.acked == expected
        await around.open()  # the cursor forgot: what is in the log is done again
        assert around.cursor.acked == expected
        around.cursor.flush()
        assert await around.records() == 0

    sim.run(main)


def test_records_stay_while_the_cursor_has_not_stored_what_they_say() -> None:
    async def main(world: sim.SimWorld) -> None:
        around = Surroundings()
        handle = await around.open()
        await handle.acknowledge(ONE, [TxnAck(Position(0, 3))])
        await handle.end(ONE, commit=True, low_watermark=-1)
        around.cursor.fail(DiskIOError("not now"))
        assert await around.records() == 2
        handle = await around.open()
        assert around.cursor.acked == messages(Position(0, 3), WHOLE), "it counts all the same"
        # A handle that is closed leaves the log to the next one.
        await handle.close()
        around.cursor.flush()
        assert await around.records() == 2

    sim.run(main)


def test_records_go_with_the_next_save_where_one_failed() -> None:
    """The cursor is saved whole: else they would keep the log from being trimmed until the topic is loaded anew."""

    async def main(world: sim.SimWorld) -> None:
        around = Surroundings()
        handle = await around.open()
        for number, error in ((1, DiskIOError("not now")), (2, LedgerClosedError("nothing more is taken"))):
            await handle.acknowledge(TxnId(0, number), [TxnAck(Position(0, number))])
            await handle.end(TxnId(0, number), commit=True, low_watermark=-1)
            around.cursor.fail(error)
        for number, commit in ((4, False), (3, True)):
            await handle.acknowledge(TxnId(0, number), [TxnAck(Position(0, number))])
            await handle.end(TxnId(0, number), commit=commit, low_watermark=-1)
        assert await around.records() == 6, "an abort saves nothing"
        around.cursor.flush()
        assert await around.records() == 2, "of the one that the cursor did not take"

    sim.run(main)


def test_an_abort_gives_back_what_was_held() -> None:
    async def main(world: sim.SimWorld) -> None:
        around = Surroundings()
        handle = await around.open()
        await handle.acknowledge(ONE, [TxnAck(Position(0, 3))])
        await handle.end(ONE, commit=False, low_watermark=-1)
        assert [released.acks for released in around.cursor.released] == [(TxnAck(Position(0, 3)),)]
        await handle.acknowledge(TWO, [TxnAck(Position(0, 3))])
        assert await around.records() == 1

    sim.run(main)


def test_an_abort_whose_records_are_there_still_after_a_restart_acknowledges_nothing() -> None:
    """A kill comes before they are deleted."""

    async def main(world: sim.SimWorld) -> None:
        around = Surroundings()
        ack = PendingAckRecord(AckOp.ACK, ONE, acks=(PendingAck(0, 3),))
        for record in (ack, PendingAckRecord(AckOp.ABORT, ONE)):
            await around.log.append(encode_pending_ack_records([record]))
        handle = await around.open()
        assert around.cursor.acked == set()
        assert await around.records() == 0
        await handle.acknowledge(TWO, [TxnAck(Position(0, 3))])

    sim.run(main)


def test_what_lost_its_transaction_is_freed_by_the_low_watermark() -> None:
    async def main(world: sim.SimWorld) -> None:
        around = Surroundings()
        handle = await around.open()
        stray, other, open_one = TxnId(0, 3), TxnId(1, 3), TxnId(0, 9)
        for entry, txn_id in enumerate((stray, other, open_one)):
            await handle.acknowledge(txn_id, [TxnAck(Position(0, entry))])
        await handle.acknowledge(TxnId(0, 8), [TxnAck(Position(0, 7))])
        await handle.end(TxnId(0, 8), commit=True, low_watermark=7)
        assert set(handle.acks) == {other, open_one}
        assert len(around.cursor.released) == 1
        assert handle.low_watermarks == {0: 7}

    sim.run(main)


def test_two_handles_of_one_subscription_are_told_apart_by_the_ledger() -> None:
    async def main(world: sim.SimWorld) -> None:
        ledgers = LedgerWorld(world)
        lost: list[GemingaError] = []

        class Part:
            def broke(self, what: str, error: BaseException) -> None:
                raise AssertionError(what) from error

        async def open_handle() -> PendingAckHandle:
            ledgers.new_process()
            log = await LedgerRecordLog.open(await ledgers.open(), "__pending_ack_state", Part())
            return await PendingAckHandle.open(log, AckedEntries(), lost.append)

        old = await open_handle()
        await old.acknowledge(ONE, [TxnAck(Position(0, 0), 0b0101, BATCH)])
        new = await open_handle()
        assert new.acks.held(Position(0, 0)) == 0b0101
        with pytest.raises(UnavailableError, match="nobody knows"):
            await old.end(ONE, commit=True, low_watermark=-1)
        assert [type(error) for error in lost] == [LedgerFencedError]
        with pytest.raises(UnavailableError):
            await old.acknowledge(TWO, [TxnAck(Position(0, 1))])
        await new.end(ONE, commit=True, low_watermark=-1)
        await new.close()
        with pytest.raises(UnavailableError):
            await new.acknowledge(TWO, [TxnAck(Position(0, 1))])

    sim.run(main)


def test_who_acknowledges_in_the_turn_in_which_the_log_is_dropped_is_told() -> None:
    """It would wait for ever, and with it what its connection counts."""

    async def main(world: sim.SimWorld) -> None:
        log = await LedgerRecordLog.open(await LedgerWorld(world).open(), "__pending_ack_state", object())
        handle = await PendingAckHandle.open(log, AckedEntries(), lambda _: None)
        told: list[GemingaError] = []

        async def acknowledge() -> None:
            try:
                await handle.acknowledge(ONE, [TxnAck(Position(0, 0))])
            except GemingaError as error:
                told.append(error)

        spawn(acknowledge(), name="acknowledge")
        await spawn(handle.abandon(), name="abandon")
        assert [type(error) for error in told] == [UnavailableError]

    sim.run(main)


def test_an_entry_of_several_transactions_stays_until_all_of_them_are_over() -> None:
    """As Pulsar's broker writes them where ``transactionPendingAckBatchedWriteEnabled`` is set."""

    async def main(world: sim.SimWorld) -> None:
        three, four = TxnId(0, 3), TxnId(0, 4)
        around = Surroundings()

        def ack(txn_id: TxnId, entry: int) -> PendingAckRecord:
            return PendingAckRecord(AckOp.ACK, txn_id, acks=(PendingAck(0, entry),))

        def end(txn_id: TxnId, *, commit: bool) -> PendingAckRecord:
            return PendingAckRecord(AckOp.COMMIT if commit else AckOp.ABORT, txn_id)

        for records in (
            [ack(ONE, 1), ack(TWO, 2)],
            [end(ONE, commit=True), ack(three, 3)],
            [end(three, commit=False), ack(four, 4), end(four, commit=True)],
        ):
            await around.log.append(encode_pending_ack_records(records))
        for _ in range(3):
            handle = await around.open()
            assert [*handle.acks] == [TWO], "the others are over, and stay so"
            assert around.cursor.acked >= messages(Position(0, 1), WHOLE) | messages(Position(0, 4), WHOLE)
            around.cursor.flush()
        with pytest.raises(TransactionConflictError):
            await handle.acknowledge(TxnId(0, 9), [TxnAck(Position(0, 2))])
        await handle.acknowledge(three, [TxnAck(Position(0, 5))])
        await handle.end(TWO, commit=True, low_watermark=-1)
        assert await around.records() > 0, "it is not in the cursor for good yet"
        around.cursor.flush()
        assert await around.records() == 1, "what was free of them goes with the last of them"
        again = await around.open()
        assert [*again.acks] == [three]
        assert not around.cursor.released

    sim.run(main)
