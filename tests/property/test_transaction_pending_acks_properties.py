"""What transactions hold acknowledged, against plain sets of messages."""

from __future__ import annotations

from copy import deepcopy
from random import Random  # noqa: TID251  (seeded)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import TransactionConflictError
from geminga.model.position import Position
from geminga.model.txn_id import TxnId
from geminga.transaction.core.pending_acks import WHOLE, CumulativeAck, PendingAcks, Released, TxnAck
from support.stories.acked_entries import BATCH, merged, messages

ALL = (1 << BATCH) - 1


def held_by_all(pending: PendingAcks) -> dict[TxnId, Released]:
    return {each: deepcopy(pending).released(each) for each in pending}


@given(st.integers(0, 1 << 32))
def test_a_message_is_held_by_one_transaction_at_most(seed: int) -> None:
    random = Random(seed)
    pending, log = PendingAcks(), []
    held: dict[TxnId, set[tuple[Position, int]]] = {}
    acked: set[tuple[Position, int]] = set()

    def acked_bits(position: Position) -> int:
        bits = sum(1 << index for index in range(BATCH) if (position, index) in acked)
        return WHOLE if bits == ALL else bits

    def is_refused(ack: TxnAck) -> bool:
        """WHOLE means the rest, where a part is acknowledged; every message by name means every one."""
        mine = messages(*ack)
        return mine <= acked if ack.bits == WHOLE else bool(mine & acked)

    for _ in range(random.randrange(1, 60)):
        txn_id = TxnId(0, random.randrange(4))
        if random.random() < 0.7:
            wanted = [
                TxnAck(Position(0, random.randrange(4)), random.choice((WHOLE, random.randrange(1, ALL + 1))), BATCH)
                for _ in range(random.randrange(1, 4))
            ]
            named = set().union(*(messages(*each) for each in wanted))
            others = set().union(*(each for other, each in held.items() if other != txn_id))
            before = held.get(txn_id, set())
            if named & others or any(map(is_refused, merged(wanted))):
                with pytest.raises(TransactionConflictError, match="try to ack message"):
                    pending.individual(txn_id, wanted, acked_bits)
            else:
                fresh = pending.individual(txn_id, wanted, acked_bits)
                assert set().union(*(messages(*each) for each in fresh)) >= named - before
                held[txn_id] = before | named
                log.append((txn_id, fresh))
        else:
            mine = held.pop(txn_id, set())
            freed: set[tuple[Position, int]] = set()
            while pending.holds(txn_id):
                # In one piece, or piece by piece: what is not released yet is still held.
                most = random.choice((1, 2, 99))
                released = pending.released(txn_id, most)
                assert 0 < len(released.acks) <= most
                freed |= set().union(*(messages(*each) for each in released.acks))
                for position, index in mine - freed:
                    assert pending.held(position) >> index & 1
            assert freed == mine
            assert not pending.released(txn_id)
            log = [each for each in log if each[0] != txn_id]
            if random.random() < 0.5:
                acked |= mine
        together = set().union(*held.values())
        for entry in range(4):
            position = Position(0, entry)
            assert messages(position, pending.held(position)) == {each for each in together if each[0] == position}
        assert bool(pending) == bool(together)
        replay = PendingAcks()
        for each, acks in log:
            replay.replayed(each, acks)
        assert held_by_all(replay) == held_by_all(pending)


def test_a_replay_grants_the_first_of_two_that_conflict() -> None:
    pending = PendingAcks()
    pending.replayed(TxnId(0, 1), [TxnAck(Position(0, 0), 0b01, 2)])
    pending.replayed(TxnId(0, 2), [TxnAck(Position(0, 0)), TxnAck(Position(0, 1))])
    assert pending.released(TxnId(0, 2)).acks == (TxnAck(Position(0, 1)),)
    assert pending.held(Position(0, 0)) == 0b01
    assert pending.released(TxnId(0, 1)).acks == (TxnAck(Position(0, 0), 0b01, 2),)
    assert len(pending) == 0


def test_one_transaction_acknowledges_cumulatively_at_a_time() -> None:
    pending = PendingAcks()
    mark_delete = Position(0, 3)
    one, two = TxnId(0, 1), TxnId(0, 2)
    with pytest.raises(TransactionConflictError, match="markDeletePosition: 0:3"):
        pending.accumulate(CumulativeAck(one, Position(0, 3)), mark_delete)
    first = CumulativeAck(one, Position(0, 5), 0b0011)
    assert pending.accumulate(first, mark_delete)
    assert not pending.accumulate(first, mark_delete)  # asked again
    for refused in (
        CumulativeAck(two, Position(0, 9)),
        CumulativeAck(one, Position(0, 4)),
        CumulativeAck(one, Position(0, 5), 0b0001),
        CumulativeAck(one, Position(0, 5), 0b1100),
    ):
        with pytest.raises(TransactionConflictError, match="within range of current currentPosition: 0:5"):
            pending.accumulate(refused, mark_delete)
    more = CumulativeAck(one, Position(0, 5), 0b0111)
    assert pending.accumulate(more, mark_delete)
    assert list(pending) == [one]
    assert pending.below(0, 0) == []
    assert pending.below(0, 1) == [one]
    assert pending.holds(one)
    assert pending.is_only_cumulative(one)
    assert not pending.holds(two)
    assert pending.released(two).cumulative is None
    assert pending.released(one).cumulative == more
    assert not pending
    assert pending.accumulate(CumulativeAck(two, Position(0, 4)), mark_delete)
    pending.replayed_cumulative(CumulativeAck(two, Position(0, 8)))
    pending.replayed_cumulative(CumulativeAck(one, Position(0, 9)))
    assert pending.cumulative == CumulativeAck(two, Position(0, 8))


def test_both_kinds_of_one_transaction_end_together() -> None:
    pending = PendingAcks()
    one = TxnId(0, 1)
    pending.individual(one, [TxnAck(Position(0, 9))], lambda _: 0)
    pending.accumulate(CumulativeAck(one, Position(0, 5)), Position(0, 0))
    assert list(pending) == [one]
    assert pending.below(0, 5) == [one]
    released = pending.released(one)
    assert released.acks == (TxnAck(Position(0, 9)),)
    assert released.cumulative == CumulativeAck(one, Position(0, 5))


def test_transactions_below_a_watermark_are_told_of_until_their_ends_are_stored() -> None:
    pending = PendingAcks()
    transactions = [TxnId(0, number) for number in range(3)]
    for txn_id in transactions:
        pending.individual(txn_id, [TxnAck(Position(0, txn_id.number))], lambda _: 0)
    assert pending.below(0, 1) == pending.below(0, 1) == transactions[:2]
    pending.released(transactions[0])
    assert pending.below(0, 1) == [transactions[1]]
    assert pending.below(0, 2) == transactions[1:]
    assert pending.below(1, 2) == []
