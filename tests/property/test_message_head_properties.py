"""Heads of MESSAGE frames with repeated parts encoded once are those of the plain encoder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.wire.pulsar.hot import encode_message_head
from geminga.wire.pulsar.message_head import MessageHeadEncoder

uint63 = st.integers(0, (1 << 63) - 1)


@given(
    uint63,
    st.integers(-1, 1 << 20),
    st.none() | uint63,
    st.lists(st.tuples(st.integers(0, 3) | uint63, st.integers(0, 300) | uint63, st.integers(0, 1 << 24)), max_size=8),
)
def test_heads_of_one_consumer_equal_those_of_the_plain_encoder(consumer_id, partition, epoch, entries):
    encoder = MessageHeadEncoder(consumer_id, partition, epoch)
    for ledger_id, entry_id, size in entries:
        assert encoder.encode(ledger_id, entry_id, size) == encode_message_head(
            consumer_id, ledger_id, entry_id, partition, size, 0, None, epoch
        )
