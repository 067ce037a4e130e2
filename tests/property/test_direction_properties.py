"""Brokers may believe anything of each other, and nobody is passed round between them."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.ownership.core.direction import Direction, direct_lookup, direct_request
from geminga.broker.ownership.endpoints import Endpoint, Endpoints
from geminga.broker.ownership.ports import HERE, Elsewhere, Owner, Unknown

BROKERS = 4


@st.composite
def beliefs(draw: st.DrawFn) -> list[Owner]:
    """What each of the brokers, told apart by their URL, believes of one topic."""

    def elsewhere() -> Owner:
        there = draw(st.integers(0, BROKERS - 1))
        return Elsewhere(Endpoints([Endpoint("internal", str(there))]), is_owner=draw(st.booleans()))

    kinds: list[Callable[[], Owner]] = [lambda: HERE, Unknown, elsewhere, elsewhere]
    return [draw(st.sampled_from(kinds))() for _ in range(BROKERS)]


def follow(brokers: list[Owner], direct: Callable[..., Direction], first: int) -> tuple[Direction, int, int]:
    """What a client is told in the end, by whom, and after how many times of being sent on."""
    at, sent = first, 0
    while True:
        direction = direct(brokers[at], is_authoritative=sent > 0)
        if direction is not Direction.ASK_THERE:
            return direction, at, sent
        at, sent = int(brokers[at].endpoints.default.broker_url), sent + 1


@given(beliefs(), st.integers(0, BROKERS - 1))
def test_nobody_is_sent_on_twice_and_the_served_are_served_by_who_thinks_to_own(brokers: list[Owner], at: int) -> None:
    for direct in (direct_lookup, direct_request):
        direction, last, sent = follow(brokers, direct, at)
        assert sent <= 1
        assert (direction is Direction.STAY) == (brokers[last] is HERE)


@given(beliefs(), st.integers(0, BROKERS - 1), st.integers(0, BROKERS - 1))
def test_who_is_sent_to_the_leader_is_sent_on_from_there_at_most_once(
    brokers: list[Owner], leader: int, at: int
) -> None:
    """The leader believes anything of the topic; what the one believes that it chose is as good."""
    asked = Elsewhere(Endpoints([Endpoint("internal", str(leader))]), is_owner=False, is_chosen=False)
    believed: list[Owner] = [brokers[leader] if broker == leader else asked for broker in range(BROKERS)]
    for direct in (direct_lookup, direct_request):
        sent, now, is_authoritative = 0, at, False
        while direct(believed[now], is_authoritative=is_authoritative) is Direction.ASK_THERE:
            there = believed[now]
            assert isinstance(there, Elsewhere)
            now, is_authoritative, sent = int(there.endpoints.default.broker_url), there.is_chosen, sent + 1
        assert sent <= 2


@given(st.integers(0, BROKERS - 1), st.integers(0, BROKERS - 1), st.booleans())
def test_where_brokers_agree_every_client_finds_the_owner(owner: int, at: int, is_owner: bool) -> None:
    there = Elsewhere(Endpoints([Endpoint("internal", str(owner))]), is_owner=is_owner)
    brokers: list[Owner] = [HERE if broker == owner else there for broker in range(BROKERS)]
    assert follow(brokers, direct_request, at)[:2] == (Direction.STAY, owner)
    direction, last, _ = follow(brokers, direct_lookup, at)
    assert direction is (Direction.CONNECT_THERE if is_owner and at != owner else Direction.STAY)
    assert last == (at if is_owner else owner)
