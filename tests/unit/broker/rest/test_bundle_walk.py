"""Bundles of a whole namespace: each at its owner, so many at a time, and all of them whatever one refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from geminga.broker.ownership.core.bundles import Bundle, equal_bundles
from geminga.broker.ownership.endpoints import Endpoint, Endpoints
from geminga.broker.ownership.ports import HERE, Elsewhere, Owner, Unknown
from geminga.broker.peers.http_client import REQUESTS_AT_ONCE, PeerAnswer
from geminga.broker.rest.calls.requests import RestError
from geminga.broker.rest.namespace_routes.bundle_walk import BUNDLES_AT_ONCE, at_owners, refusal
from geminga.model.errors import GemingaError, UnavailableError
from geminga.runtime import next_turn

CUT = equal_bundles("t/n", 4 * BUNDLES_AT_ONCE)
BUNDLES = CUT.all()
AWAY = Elsewhere(Endpoints([Endpoint("internal", "pulsar://other:6650", "")]))


class Walk:
    """What it asks: every fourth bundle is this broker's, every fourth nobody's, the others another's."""

    def __init__(self, owners: dict[Bundle, Owner | None] | None = None) -> None:
        self.owners = owners or {bundle: (HERE, None, AWAY, AWAY)[number % 4] for number, bundle in enumerate(BUNDLES)}
        self.refused: dict[Bundle, Exception] = {}
        self.here: list[Bundle] = []
        self.there: list[Bundle] = []
        self.under_way = self.most_under_way = 0
        self.error_here: GemingaError | None = None

    async def run(self) -> None:
        await at_owners(CUT, self._owner_of, self._at_this, self._at_another)

    async def _owner_of(self, bundle: Bundle) -> Owner | None:
        return self.owners[bundle]

    async def _at_this(self, bundles: Sequence[Bundle]) -> None:
        self.here += bundles
        if self.error_here is not None:
            raise self.error_here

    async def _at_another(self, bundle: Bundle, owner: Elsewhere) -> None:
        assert owner is AWAY
        self.there.append(bundle)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await next_turn()
        self.under_way -= 1
        if bundle in self.refused:
            raise self.refused[bundle]


def test_each_bundle_is_asked_of_its_owner_and_no_more_at_a_time_than_may_be_under_way() -> None:
    walk = Walk()
    asyncio.run(walk.run())
    assert walk.here == BUNDLES[::4]
    assert walk.there == [bundle for number, bundle in enumerate(BUNDLES) if number % 4 >= 2]
    assert walk.most_under_way == BUNDLES_AT_ONCE <= REQUESTS_AT_ONCE


def test_a_refusal_is_told_when_all_was_tried() -> None:
    walk = Walk()
    # In a first group and in the last.
    walk.refused = {BUNDLES[2]: UnavailableError("this one"), BUNDLES[-1]: UnavailableError("the last")}
    with pytest.raises(UnavailableError, match="this one"):
        asyncio.run(walk.run())
    assert len(walk.there) == len(BUNDLES) // 2
    assert len(walk.here) == len(BUNDLES) // 4
    walk = Walk()
    walk.error_here = UnavailableError("own")
    with pytest.raises(UnavailableError, match="own"):
        asyncio.run(walk.run())
    assert len(walk.there) == len(BUNDLES) // 2


def test_a_bundle_that_is_on_its_way_is_told_and_an_error_of_the_programs_own_is_not_hidden() -> None:
    walk = Walk({bundle: Unknown("it is on its way") if bundle == BUNDLES[3] else HERE for bundle in BUNDLES})
    with pytest.raises(UnavailableError, match="it is on its way"):
        asyncio.run(walk.run())
    assert len(walk.here) == len(BUNDLES) - 1
    walk = Walk()
    walk.refused = {BUNDLES[2]: KeyError("a bug")}
    with pytest.raises(KeyError, match="a bug"):
        asyncio.run(walk.run())


def test_what_another_broker_says_against_a_request_is_told_as_it_says_it() -> None:
    told = refusal(PeerAnswer(412, b'{"reason": "has consumers"}', "other:8080"), "bundle x")
    assert isinstance(told, RestError)
    assert (told.http_status, str(told)) == (412, "has consumers")
    told = refusal(PeerAnswer(503, b"", "other:8080"), "bundle x")
    assert isinstance(told, UnavailableError)
    assert str(told) == "bundle x: status 503 (the broker at other:8080)"
