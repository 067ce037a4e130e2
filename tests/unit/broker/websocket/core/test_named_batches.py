"""What a socket's large batches cost that it names by ids it was not told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.websocket.core.named_batches import BATCH_MESSAGES_MAX, SMALL_BATCH, NamedBatches


def test_small_batches_do_not_count_and_there_is_room_for_so_many_messages_of_large_ones() -> None:
    batches = NamedBatches()
    assert all(batches.named((0, 1, entry), SMALL_BATCH) for entry in range(10_000))
    assert batches.messages == 0
    size = BATCH_MESSAGES_MAX // 2
    assert batches.named((0, 2, 0), size)
    assert batches.named((0, 2, 1), size)
    assert batches.messages == BATCH_MESSAGES_MAX
    assert not batches.named((0, 2, 2), SMALL_BATCH + 1)


def test_batch_that_was_named_whole_gives_its_room_back() -> None:
    batches = NamedBatches()
    size = SMALL_BATCH * 2
    for entry in range(BATCH_MESSAGES_MAX // size + 5):
        for _ in range(size):
            assert batches.named((-1, 3, entry), size)
    assert batches.messages == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3000)), max_size=60))
def test_what_counts_are_the_sizes_that_the_first_ids_said(named: list[tuple[int, int]]) -> None:
    batches, sizes = NamedBatches(), dict[int, int]()
    for entry, size in named:
        assert batches.named((0, 0, entry), size)
        if size > SMALL_BATCH:
            sizes.setdefault(entry, size)
    assert batches.messages == sum(sizes.values())
