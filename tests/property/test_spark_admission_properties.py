"""What a batch takes against counting message by message: limits in bytes and messages, and where tasks are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.spark.source_rules.admission import Budget, ChunkHead, Counted, Limits
from geminga.spark.source_rules.offsets import ReadPosition

TOPICS = ("a", "b")


@st.composite
def offered(draw):
    """Entries of two topics in the order in which they are offered."""
    next_id = dict.fromkeys(TOPICS, 0)
    found = []
    for topic, messages, size in draw(
        st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 5), st.integers(1, 40)), max_size=12)
    ):
        found.append((topic, Counted(1, next_id[topic], messages, size, 0, is_batch=messages > 1)))
        next_id[topic] += 1
    return found


def fill(entries, limits):
    """The budget, and how many entries were taken whole."""
    budget = Budget(limits)
    for count, (topic, entry) in enumerate(entries):
        if not budget.offer(topic, entry):
            return budget, count
    return budget, len(entries)


@given(offered(), st.integers(0, 60), st.integers(0, 12))
def test_a_batch_takes_the_longest_prefix_that_its_limits_allow(entries, bytes_max, messages_max):
    budget, whole = fill(entries, Limits(bytes_max, messages_max))

    def is_within(count):
        taken = [entry for _, entry in entries[:count]]
        size = sum(entry.size_bytes for entry in taken)
        messages = sum(entry.messages for entry in taken)
        # One entry is taken whatever its size.
        return (not bytes_max or size <= bytes_max or count <= 1) and (not messages_max or messages <= messages_max)

    assert whole == max(count for count in range(len(entries) + 1) if all(map(is_within, range(count + 1))))
    messages = sum(entry.messages for _, entry in entries[:whole])
    ends = {topic: entry.behind for topic, entry in entries[:whole]}
    if whole < len(entries):
        topic, entry = entries[whole]
        size = sum(taken.size_bytes for _, taken in entries[:whole])
        room = messages_max - messages
        fits = not (bytes_max and size and size + entry.size_bytes > bytes_max)
        if fits and messages_max and room and entry.is_batch:
            # The limit in messages is exact.
            ends[topic] = ReadPosition(1, entry.entry_id, room)
            messages = messages_max
    assert (budget.messages, budget.ends) == (messages, ends)


@given(offered(), st.integers(1, 60))
def test_tasks_are_cut_where_another_entry_would_be_too_much(entries, bytes_per_task):
    budget, _ = fill(entries, Limits(bytes_per_task=bytes_per_task))
    for topic in TOPICS:
        cuts, size = [], 0
        for name, entry in entries:
            if name == topic:
                if size and size + entry.size_bytes > bytes_per_task:
                    cuts.append(ReadPosition(1, entry.entry_id))
                    size = 0
                size += entry.size_bytes
        assert budget.cuts.get(topic, []) == cuts


def test_what_was_read_of_an_entry_before_does_not_count_again():
    budget = Budget(Limits(messages_max=4))
    assert budget.offer("a", Counted(1, 0, 10, 100, 0), first_index=7)
    assert (budget.messages, budget.size_bytes) == (3, 30)
    assert not budget.offer("a", Counted(1, 1, 10, 100, 0))
    assert (budget.messages, budget.ends) == (4, {"a": ReadPosition(1, 1, 1)})


def test_part_of_an_entry_begins_where_the_batch_before_ended():
    budget = Budget(Limits(messages_max=2))
    assert not budget.offer("a", Counted(1, 0, 10, 100, 0), first_index=7)
    assert budget.ends == {"a": ReadPosition(1, 0, 9)}


def test_an_entry_whose_messages_have_no_index_is_not_cut_within():
    budget = Budget(Limits(messages_max=3))
    assert not budget.offer("a", Counted(1, 0, 5, 100, 0, is_batch=False))
    assert (budget.messages, budget.ends) == (0, {})


def test_messages_in_pieces_of_which_the_first_was_not_taken_are_told_by_topic():
    def piece(entry_id, uuid, number):
        return Counted(1, entry_id, int(number == 2), 10, 0, is_batch=False, chunk=ChunkHead(uuid, number, 3))

    budget = Budget(Limits(bytes_max=60))
    for topic, entry in (
        ("a", piece(0, "gone", 1)),
        ("a", piece(1, "whole", 0)),
        ("a", piece(2, "gone", 2)),
        ("b", piece(0, "whole", 1)),
        ("a", piece(3, "whole", 1)),
        ("a", Counted(1, 4, 1, 10, 0)),
    ):
        assert budget.offer(topic, entry)
    assert not budget.offer("a", piece(5, "behind the limit", 1))
    assert budget.unbegun == {"a": {"gone"}, "b": {"whole"}}
