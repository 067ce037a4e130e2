"""The slowest of many readers is the one with the least position, however they move, come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.managed_ledger.rules.slowest import FEW_READERS, SlowestReader
from geminga.model.position import Position
from support.house.python_calls import counted_calls

READERS = st.integers(0, 3 * FEW_READERS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("forward"), READERS, st.integers(1, 30)),
        st.tuples(st.just("back"), READERS, st.integers(0, 30)),
        st.tuples(st.just("come"), READERS, st.integers(0, 60)),
        st.tuples(st.just("go"), READERS, st.just(0)),
        st.tuples(st.just("look"), st.just(0), st.just(0)),
    ),
    max_size=200,
)


class Reader:
    def __init__(self, at: int) -> None:
        self.at = at

    @property
    def read_position(self) -> Position:
        return Position(self.at // 10, self.at % 10)


@given(st.integers(0, 3 * FEW_READERS), STEPS)
def test_it_is_the_one_with_the_least_position_whoever_moves_comes_and_goes(count, steps):
    known = {number: Reader(0) for number in range(count)}
    slowest, readers = SlowestReader(), set(known.values())
    for reader in known.values():
        slowest.see(reader)
    for what, number, amount in steps:
        reader = known.get(number)
        if what == "come" and reader not in readers:
            reader = known.setdefault(number, Reader(amount))
            readers.add(reader)
            slowest.see(reader)
        elif what == "go":
            readers.discard(reader)
        elif what == "forward" and reader is not None:
            reader.at += amount
        elif what == "back" and reader is not None:
            reader.at = max(0, reader.at - amount)
            slowest.see(reader)
        if readers:
            assert slowest.position(readers) == min(reader.read_position for reader in readers)


def test_a_look_at_each_of_very_many_costs_the_logarithm_whatever_order_they_move_in():
    """Each entry that one of 1,000 subscriptions read was held against all of them: a million looks a message."""
    readers = [Reader(0) for _ in range(1000)]
    for order in (readers, readers[::-1], readers[::2] + readers[1::2]):
        slowest, there = SlowestReader(), set(readers)
        slowest.position(there)
        with counted_calls() as calls:
            for _ in range(3):
                for reader in order:
                    reader.at += 1
                    slowest.position(there)
            count = calls()
        assert count < 3 * len(readers) * 10


def test_who_comes_and_goes_again_and_again_leaves_nothing_behind():
    slow, slowest = [Reader(0) for _ in range(2 * FEW_READERS)], SlowestReader()
    there = set(slow)
    for reader in slow:
        slowest.see(reader)
    for _ in range(1000):
        passer = Reader(50)
        there.add(passer)
        slowest.see(passer)
        assert slowest.position(there) == Position(0, 0)
        there.discard(passer)
    assert slowest.size <= 2 * len(slow) + 2


def test_who_goes_back_again_and_again_while_nobody_looks_is_not_kept_each_time():
    readers, slowest = [Reader(5) for _ in range(2 * FEW_READERS)], SlowestReader()
    assert slowest.position(set(readers)) == Position(0, 5)
    for _ in range(1000):
        slowest.see(readers[0])
        assert slowest.size <= 4 * len(readers)
    readers[3].at = 2
    slowest.see(readers[3])
    assert slowest.position(set(readers)) == Position(0, 2)
