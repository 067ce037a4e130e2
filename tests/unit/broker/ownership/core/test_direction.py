"""Where a lookup or a request goes, by who owns the topic."""

from __future__ import annotations

import pytest

from geminga.broker.ownership.core.direction import Direction, direct_lookup, direct_request
from geminga.broker.ownership.endpoints import Endpoints
from geminga.broker.ownership.ports import HERE, Elsewhere, Unknown
from support.worlds.ownership import endpoints_of

OWNER = Elsewhere(Endpoints(endpoints_of("b")))
NEXT = Elsewhere(Endpoints(endpoints_of("b")), is_owner=False)


@pytest.mark.parametrize(
    ("owner", "plain", "sent"),
    [
        (HERE, Direction.STAY, Direction.STAY),
        (OWNER, Direction.CONNECT_THERE, Direction.CONNECT_THERE),
        (NEXT, Direction.ASK_THERE, Direction.TRY_AGAIN),
        (Unknown(), Direction.TRY_AGAIN, Direction.TRY_AGAIN),
    ],
)
def test_lookup_names_the_owner_and_is_sent_on_once(owner: object, plain: Direction, sent: Direction) -> None:
    assert direct_lookup(owner, is_authoritative=False) is plain
    assert direct_lookup(owner, is_authoritative=True) is sent


@pytest.mark.parametrize(
    ("owner", "plain", "sent"),
    [
        (HERE, Direction.STAY, Direction.STAY),
        (OWNER, Direction.ASK_THERE, Direction.TRY_AGAIN),
        (NEXT, Direction.ASK_THERE, Direction.TRY_AGAIN),
        (Unknown(), Direction.TRY_AGAIN, Direction.TRY_AGAIN),
    ],
)
def test_request_is_sent_on_once(owner: object, plain: Direction, sent: Direction) -> None:
    assert direct_request(owner, is_authoritative=False) is plain
    assert direct_request(owner, is_authoritative=True) is sent
