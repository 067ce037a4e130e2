"""Ack sets cut to their batch, and what bit sets are charged, against sets of indexes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.ack_set import cut_to_batch
from geminga.managed_ledger.rules.batch_acks import BatchAcks, bits_of_words

WORDS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=6)


def indexes(words) -> set[int]:
    return {i for i in range(64 * len(words)) if (words[i // 64] >> (i % 64)) & 1}


@given(WORDS, st.integers(-3, 400))
def test_cut_keeps_the_indexes_of_the_batch_and_no_others(words, count) -> None:
    cut = cut_to_batch(words, count)
    assert indexes(cut) == {i for i in indexes(words) if i < count}
    assert len(cut) <= max(0, -(-count // 64))
    bits_of_words(cut or (0,))  # still words of 64 bits


@given(
    st.lists(st.tuples(st.integers(1, 2), st.integers(0, 3), st.sets(st.integers(0, 5000), max_size=5)), max_size=40)
)
def test_large_sets_are_charged_as_long_as_they_are_there(steps) -> None:
    acks = BatchAcks()
    for ledger_id, entry_id, left in steps:
        acks.merge(ledger_id, entry_id, sum(1 << i for i in left))
        for known in (1, 2):
            sizes = [batch.bits.bit_length() // 8 for batch in acks.of_ledger(known)]
            charged = acks.ledger_memory_bytes(known)
            assert sum(sizes) <= charged <= 160 * len(sizes) + 1.2 * sum(sizes)
    for ledger_id in (1, 2):
        acks.discard_through(ledger_id, 5)
        assert acks.ledger_memory_bytes(ledger_id) == 0
    assert acks.count == 0
