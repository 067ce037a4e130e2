"""What may go of a log whose entries several transactions share, against a search of all that is bound together."""

from __future__ import annotations

from random import Random  # noqa: TID251  (seeded)

from hypothesis import given
from hypothesis import strategies as st

from geminga.model.position import Position
from geminga.transaction.core.shared_entries import SharedEntries


def bound_to(owner: int, entries: list[set[int]]) -> set[int]:
    """All whose records can only go with those of ``owner``."""
    found = {owner}
    while more := {other for each in entries if each & found for other in each} - found:
        found |= more
    return found


@given(st.integers(0, 1 << 32))
def test_records_go_when_all_that_they_are_bound_to_is_over_and_once(seed: int) -> None:
    random = Random(seed)
    owners = list(range(random.randrange(1, 12)))
    entries = [set(random.choices(owners, k=random.randrange(1, 4))) for _ in range(random.randrange(14))]
    shared: SharedEntries[int] = SharedEntries()
    for each in entries:
        shared.add(each)
    records = {owner: [Position(owner, index) for index in range(2)] for owner in owners}
    over: set[int] = set()
    freed: list[Position] = []
    random.shuffle(owners)
    for owner in owners:
        over.add(owner)
        for group in shared.over(owner, records[owner]):
            freed += group
        free = {each for each in over if bound_to(each, entries) <= over}
        assert sorted(freed) == sorted(position for each in free for position in records[each])
    # A record of one that was over before: nobody waits for it any more.
    assert shared.over(owners[0], [Position(99, 0)]) == [[Position(99, 0)]]
