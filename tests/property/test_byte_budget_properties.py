"""A budget of bytes against a list of those who hold and those who wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.model.byte_budget import ByteBudget, Claim

LIMIT = 10
SIZES = st.integers(0, 15)
#: (what, size, whom)
STEPS = st.lists(st.tuples(st.sampled_from(["claim", "resize", "release"]), SIZES, st.integers(0, 7)), max_size=60)


class Oracle:
    """Holders with their sizes, and a queue."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.queue: list[tuple[int, int]] = []

    def settle(self) -> None:
        while self.queue:
            number, size = self.queue[0]
            if sum(self.held.values()) and sum(self.held.values()) + size > LIMIT:
                return
            del self.queue[0]
            self.held[number] = size


@given(STEPS)
def test_claims_are_granted_in_their_order_as_soon_as_there_is_room(steps) -> None:
    budget, oracle = ByteBudget(LIMIT), Oracle()
    claims: list[Claim] = []
    granted: list[Claim] = []
    for what, size, whom in steps:
        if what == "claim":
            oracle.queue.append((len(claims), size))
            claims.append(budget.claim(size, granted.append))
        elif claims:
            number = whom % len(claims)
            if what == "release":
                claims[number].release()
                oracle.held.pop(number, None)
                oracle.queue = [entry for entry in oracle.queue if entry[0] != number]
            elif number in oracle.held:
                claims[number].resize(size)
                oracle.held[number] = size
        oracle.settle()
        assert {i for i, claim in enumerate(claims) if claim.is_held} == set(oracle.held)
        assert budget.held_bytes == sum(oracle.held.values())
        assert budget.waiting_count == len(oracle.queue)
    numbers = [claims.index(claim) for claim in granted]
    assert numbers == sorted(numbers)
    for claim in claims:
        claim.release()
    assert budget.held_bytes == budget.waiting_count == 0


@given(st.lists(st.integers(1, 15), min_size=1, max_size=40))
def test_all_who_wait_come_to_their_turn_when_each_lets_go(sizes) -> None:
    budget = ByteBudget(LIMIT)
    served: list[int] = []

    def serve(claim: Claim) -> None:
        served.append(claim.size_bytes)
        claim.release()  # within the call, as a read that is answered at once

    holder = budget.claim(LIMIT, lambda _claim: None)
    for size in sizes:
        budget.claim(size, serve)
    assert served == []
    holder.release()
    assert served == sizes


def test_no_limit_means_none() -> None:
    budget = ByteBudget(0)
    claims = [budget.claim(1 << 40, lambda _claim: None) for _ in range(3)]
    assert all(claim.is_held for claim in claims)
