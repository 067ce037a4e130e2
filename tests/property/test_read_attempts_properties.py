"""A read over replicas that have, lack, delay, cut short or damage what they are asked for, in any order of answers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.bookkeeper.core.distribution import Distribution
from geminga.bookkeeper.core.read_attempts import ReadAttempts, StickyReplica, read_order
from geminga.model.errors import CorruptionError, DiskIOError, NoSuchEntryError, StorageError
from support.house.examples import many

ENSEMBLE = ("a", "b", "c", "d")


def payload(entry_id):
    return b"payload %d" % entry_id


@st.composite
def distributions(draw):
    size = draw(st.integers(1, len(ENSEMBLE)))
    write = draw(st.integers(1, size))
    return Distribution(size, write, 1)


@settings(max_examples=many(400), deadline=None)
@given(distributions(), st.integers(0, 5), st.integers(1, 6), st.booleans(), st.randoms())
def test_reads_are_right_whatever_the_replicas_do(distribution, first, count, is_limited, random):
    entry_ids = range(first, first + count)
    # What each bookie has of each entry, and whether it ever answers.
    held = {(name, entry_id): random.random() < 0.7 for name in ENSEMBLE for entry_id in entry_ids}
    hangs = {random.choice(ENSEMBLE)} if random.random() < 0.5 else set()

    def replicas(entry_id):
        return [ENSEMBLE[index] for index in distribution.write_set(entry_id)]

    attempts = ReadAttempts(entry_ids, replicas)
    waiting = attempts.begin()
    asked: list[tuple[str, int]] = [(ask.bookie_id, entry_id) for ask in waiting for entry_id in ask.entry_ids]

    def go_on(more):
        waiting.extend(more)
        asked.extend((ask.bookie_id, entry_id) for ask in more for entry_id in ask.entry_ids)
        assert len({*asked}) == len(asked), "a replica was asked twice for one entry"

    while attempts.outcome is None:
        answering = [ask for ask in waiting if ask.bookie_id not in hangs]
        if not answering or random.random() < 0.25:
            before = len(asked)
            go_on(attempts.answer_is_late())
            if not answering and len(asked) == before:
                break
            continue
        ask = random.choice(answering)
        waiting.remove(ask)
        sent = len(ask.entry_ids)
        if is_limited:
            sent = random.randint(1, sent)
        go_on(
            attempts.answer(
                ask,
                [
                    payload(entry_id) if held[ask.bookie_id, entry_id] else CorruptionError("damaged")
                    for entry_id in ask.entry_ids[:sent]
                ],
            )
        )
    outcome = attempts.outcome

    def sound(entry_id):
        return [name for name in replicas(entry_id) if held[name, entry_id] and name not in hangs]

    if outcome is None:
        assert hangs, "everybody answered and nothing is decided"
        # It waits for the one that hangs, since nobody else has the entry.
        assert any(not sound(entry_id) and {*replicas(entry_id)} & hangs for entry_id in entry_ids)
    elif isinstance(outcome, StorageError):
        assert any(not any(held[name, entry_id] for name in replicas(entry_id)) for entry_id in entry_ids)
    else:
        assert list(outcome) == [payload(entry_id) for entry_id in entry_ids[: len(outcome)]]
        assert len(outcome) == count or (is_limited and outcome)
    # What comes after the end changes nothing.
    if outcome is not None:
        for ask in waiting:
            attempts.answer(ask, [b"late"] * len(ask.entry_ids))
        again = attempts.outcome
        assert type(again) is type(outcome)
        assert isinstance(outcome, StorageError) or again == outcome


@given(distributions(), st.integers(0, 9), st.integers(0, 9), st.sets(st.sampled_from(ENSEMBLE)))
def test_order_has_each_replica_once_and_those_out_of_reach_last(distribution, entry_id, start, down):
    write_set = distribution.write_set(entry_id)
    order = read_order(ENSEMBLE, write_set, start, lambda name: int(name in down))
    assert sorted(order) == sorted(ENSEMBLE[index] for index in write_set)
    reachable = [name not in down for name in order]
    assert reachable == sorted(reachable, reverse=True)
    if not down:
        assert order[0] == ENSEMBLE[write_set[start % len(write_set)]]


def test_failure_of_one_asks_nobody_else_while_another_may_answer():
    attempts = ReadAttempts(range(1), lambda _: ("a", "b", "c"))
    (first,) = attempts.begin()
    (second,) = attempts.answer_is_late()
    assert attempts.answer(first, [DiskIOError("a")]) == []
    assert attempts.outcome is None
    (third,) = attempts.answer(second, [DiskIOError("b")])
    assert third.bookie_id == "c"
    assert attempts.answer(third, [b"x"]) == []
    assert attempts.outcome == [b"x"]


def test_error_is_the_worst_of_the_first_entry_that_nobody_has():
    attempts = ReadAttempts(range(2), lambda _: ("a", "b"))
    (ask,) = attempts.begin()
    (again,) = attempts.answer(ask, [b"x", NoSuchEntryError("a")])
    assert (again.bookie_id, list(again.entry_ids)) == ("b", [1])
    assert attempts.outcome is None
    assert attempts.answer(again, [DiskIOError("b")]) == []
    assert isinstance(attempts.outcome, DiskIOError)


def test_sticky_replica_moves_on_from_the_one_that_failed_only():
    sticky = StickyReplica(Distribution(3, 3, 2), 7)
    assert sticky.index == 1
    sticky.failed(0)
    assert sticky.index == 1
    sticky.failed(1)
    sticky.failed(1)
    assert sticky.index == 2
    sticky.failed(2)
    assert sticky.index == 0
