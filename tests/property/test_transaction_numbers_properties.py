"""What a low watermark reaches, against looking at all."""

from __future__ import annotations

from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from geminga.model.position import Position
from geminga.model.txn_id import TxnId
from geminga.transaction.core import numbers
from geminga.transaction.core.buffer import TransactionBufferState
from geminga.transaction.core.numbers import ByNumber

ids = st.builds(TxnId, st.integers(0, 2), st.integers(0, 30))
steps = st.lists(
    st.one_of(st.tuples(st.just("add"), ids), st.tuples(st.just("drop"), ids), st.tuples(st.just("reach"), ids)),
    max_size=120,
)


@given(steps=steps, stale_max=st.integers(0, 5))
def test_a_watermark_reaches_what_is_there_once(steps, stale_max: int) -> None:
    before, numbers._STALE_MAX = numbers._STALE_MAX, stale_max
    try:
        there: dict[TxnId, None] = {}
        given_out: set[TxnId] = set()
        by_number = ByNumber()
        for what, txn_id in steps:
            if what == "add":
                there[txn_id] = None
                given_out.discard(txn_id)
                by_number.add(txn_id, there)
            elif what == "drop":
                there.pop(txn_id, None)
            else:
                reached = by_number.take_up_to(*txn_id, there)
                expected = sorted(each for each in there if each[0] == txn_id[0] and each[1] <= txn_id[1])
                # Given again only where the numbers were gathered anew, which forgets what was given.
                assert [each for each in reached if each not in given_out] == [
                    each for each in expected if each not in given_out
                ]
                assert set(reached) <= set(expected)
                given_out.update(reached)
    finally:
        numbers._STALE_MAX = before


def test_what_is_gone_does_not_pile_up() -> None:
    by_number, there = ByNumber(), {}
    for number in range(20_000):
        txn_id = TxnId(0, number)
        there[txn_id] = None
        by_number.add(txn_id, there)
        del there[txn_id]
    assert len(by_number._heaps[0]) <= 1_002


def seconds_of_ends(open_count: int) -> float:
    """CPU time of 500 ends, while so many transactions are open that the low watermark follows each end."""
    state = TransactionBufferState()
    for number in range(open_count):
        state.stored(TxnId(0, number), Position(0, number))
    began = process_time()
    for number in range(500):
        state.stored(TxnId(0, open_count + number), Position(0, open_count + number))
        state.committed(TxnId(0, number))
        state.low_watermark(0, number)
    return process_time() - began


def test_an_end_costs_the_same_however_many_are_open() -> None:
    assert min(seconds_of_ends(20_000) for _ in range(3)) < 20 * min(seconds_of_ends(1_000) for _ in range(3))
