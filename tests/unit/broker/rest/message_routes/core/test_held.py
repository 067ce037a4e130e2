"""What a consumer over HTTP holds."""

from __future__ import annotations

import tracemalloc

from geminga.broker.rest.message_routes.core.held import Acked, HeldMessages
from geminga.broker.rest.message_routes.core.message_ids import MessageRef
from geminga.model.position import Position

A, B, C = Position(1, 0), Position(1, 1), Position(1, 2)


def held(**entries: int) -> HeldMessages:
    found = HeldMessages()
    for name, bits in entries.items():
        found.given(-1, {"a": A, "b": B, "c": C}[name], bits)
    return found


def test_message_is_acknowledged_once_and_an_unknown_one_is_told() -> None:
    held_messages = held(a=1, b=0b111)
    refs = [MessageRef(-1, A), MessageRef(-1, B, 1), MessageRef(-1, A), MessageRef(0, A), MessageRef(-1, B, 3)]
    acked, unknown = held_messages.acknowledge(refs)
    assert acked == [Acked(-1, A, 0, 1), Acked(-1, B, 0b101, 0b111)]
    assert unknown == refs[2:]
    assert len(held_messages) == 1
    acked, unknown = held_messages.acknowledge([MessageRef(-1, B, 0), MessageRef(-1, B, 2)])
    assert (acked, unknown, len(held_messages)) == ([Acked(-1, B, 0, 0b101)], [], 0)


def test_index_that_no_batch_has_costs_nothing() -> None:
    refs = [MessageRef(-1, A, 999_999_999), MessageRef(-1, C, 999_999_999)]
    tracemalloc.start()
    try:
        held_messages = held(a=0b11)
        assert held_messages.acknowledge(refs) == ([], refs)
        assert [held_messages.acknowledge_through(ref) for ref in refs] == [None, None]
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A number of so many bits would have 125 MB, for each of the 10,000 ids of a request.
    assert most_bytes < 1 << 20


def test_whole_batch_is_acknowledged_by_the_id_of_its_entry() -> None:
    assert held(b=0b110).acknowledge([MessageRef(-1, B)]) == ([Acked(-1, B, 0, 0b110)], [])


def test_what_is_not_known_to_be_stored_is_held_again() -> None:
    held_messages = held(b=0b11)
    acked, _ = held_messages.acknowledge([MessageRef(-1, B)])
    held_messages.restore(acked[0])
    assert held_messages.acknowledge([MessageRef(-1, B, 1)]) == ([Acked(-1, B, 0b01, 0b11)], [])


def test_all_up_to_a_message_that_are_not_known_to_be_stored_are_held_again() -> None:
    held_messages = held(a=0b10, b=1, c=0b11)
    acked = held_messages.acknowledge_through(MessageRef(-1, C, 0))
    assert acked is not None
    # Given out again meanwhile: what is known of that one is newer.
    held_messages.given(-1, A, 0b11)
    held_messages.restore(acked)
    acked_one_by_one, unknown = held_messages.acknowledge([MessageRef(-1, A), MessageRef(-1, B), MessageRef(-1, C)])
    assert ([one.before for one in acked_one_by_one], unknown) == ([0b11, 1, 0b11], [])


def test_all_up_to_a_message_go_and_those_behind_it_stay() -> None:
    held_messages = held(a=1, b=0b1111, c=1)
    held_messages.given(0, A, 1)
    assert held_messages.acknowledge_through(MessageRef(-1, B, 1)) == Acked(-1, B, 0b1100, 0b1111, {A: 1})
    assert len(held_messages) == 3
    assert held_messages.acknowledge_through(MessageRef(-1, B, 1)) is None
    assert held_messages.acknowledge_through(MessageRef(-1, C)) == Acked(-1, C, 0, 1, {B: 0b1100})
    assert held_messages.partitions == {0}
    assert held_messages.acknowledge_through(MessageRef(1, A)) is None


def test_entry_that_is_acknowledged_in_part_keeps_its_place() -> None:
    held_messages = held(a=1, b=0b11, c=1)
    held_messages.acknowledge_through(MessageRef(-1, B, 0))
    assert held_messages.give_back_partition(-1) == [(-1, B), (-1, C)]


def test_entries_are_given_back_whole_and_once() -> None:
    held_messages = held(a=1, b=0b11)
    refs = [MessageRef(-1, B, 0), MessageRef(-1, B, 1), MessageRef(-1, C)]
    assert held_messages.give_back(refs) == ([(-1, B)], [MessageRef(-1, C)])
    assert held_messages.give_back_partition(-1) == [(-1, A)]
    assert len(held_messages) == 0


def test_entry_that_is_opened_again_keeps_what_was_acknowledged_of_it() -> None:
    held_messages = held(b=0b11)
    held_messages.acknowledge([MessageRef(-1, B, 0)])
    held_messages.given(-1, B, 0b11)
    assert held_messages.acknowledge([MessageRef(-1, B, 0)]) == ([], [MessageRef(-1, B, 0)])
