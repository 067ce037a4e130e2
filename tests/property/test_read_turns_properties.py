"""Reads take turns: nobody waits for more than one group of each other, nothing is lost, doubled or overtaken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.bookie.core.read_turns import ReadTurns

ITEMS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=60)


def turns(group_max: int, waiting_max: int = 1000) -> ReadTurns[int, tuple[int, int]]:
    """Items are (key, number); key 0 is never in a group."""
    return ReadTurns(lambda item: item[0] or None, group_max=group_max, waiting_max=waiting_max)


@given(ITEMS, st.integers(1, 5), st.data())
def test_every_read_has_its_turn_in_its_owners_order(asked, group_max, data) -> None:
    reads = turns(group_max)
    sent: dict[int, list[tuple[int, int]]] = {}
    for number, (owner, key) in enumerate(asked):
        item = (key, number)
        assert reads.add(owner, item)
        sent.setdefault(owner, []).append(item)
    served: dict[int, list[tuple[int, int]]] = {}
    since: dict[int, int] = dict.fromkeys(sent, 0)
    while True:
        taken = reads.take(lambda _: True)
        if taken is None:
            break
        owner, group = taken
        assert 1 <= len(group) <= group_max
        assert len({key for key, _ in group}) == 1
        assert len(group) == 1 or group[0][0]
        kept = group[: data.draw(st.integers(1, len(group)))]
        if len(kept) < len(group):
            reads.put_back(owner, group[len(kept) :])
        served.setdefault(owner, []).extend(kept)
        for other in sent:
            since[other] += 1
            # Between two turns of whoever waits every other one has one at most.
            assert other == owner or served.get(other, []) == sent[other] or since[other] <= len(sent)
        since[owner] = 0
    assert served == sent
    assert len(reads) == 0


@given(st.integers(1, 4), st.integers(1, 10))
def test_what_is_too_much_is_refused_and_who_goes_is_forgotten(waiting_max, count) -> None:
    reads = turns(3, waiting_max)
    taken = [reads.add(1, (1, number)) for number in range(count)]
    assert taken == [number < waiting_max for number in range(count)]
    assert reads.add(2, (1, 99))
    assert reads.forget(1) == [(1, number) for number in range(min(count, waiting_max))]
    assert reads.take(lambda owner: owner == 1) is None
    assert reads.take(lambda _: True) == (2, [(1, 99)])
    assert reads.forget(2) == []
