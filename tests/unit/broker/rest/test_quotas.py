"""Quotas of bundles over REST: which bundles there are, what is kept, what is refused."""

from __future__ import annotations

import json

from geminga.broker.resources.bundle_quotas import INITIAL
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly
from support.worlds.rest_world import ask, rest_application

QUOTAS = "/admin/v2/resource-quotas"
BUNDLE = f"{QUOTAS}/public/default/0x00000000_0x40000000"


def test_quotas_are_set_told_and_removed() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)

        async def told(path: str) -> object:
            return json.loads((await ask(application, "GET", path, b"")).body)

        assert await told(BUNDLE) == await told(QUOTAS) == INITIAL
        assert (await ask(application, "POST", BUNDLE, b'{"msgRateIn":7}')).status == 204
        assert (await ask(application, "POST", QUOTAS, b'{"memory":3}')).status == 204
        nothing = {**dict.fromkeys(INITIAL, 0.0), "dynamic": True}
        assert await told(BUNDLE) == {**nothing, "msgRateIn": 7.0}
        assert await told(QUOTAS) == {**nothing, "memory": 3.0}
        for body in (b"", b"[]", b'{"msgRateIn":"x"}', b'{"msgRateIn":-1}'):
            assert (await ask(application, "POST", BUNDLE, body)).status in (400, 412)
        assert await told(BUNDLE) == {**nothing, "msgRateIn": 7.0}
        assert (await ask(application, "DELETE", BUNDLE, b"")).status == 204
        assert await told(BUNDLE) == await told(QUOTAS)
        assert (await ask(application, "DELETE", BUNDLE, b"")).status == 404

    run_quietly(scenario)


def test_a_bundle_that_there_is_not_has_none() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        for method in ("GET", "POST", "DELETE"):
            for bundle, status in (("public/default/0x00000000_0x00000001", 412), ("public/nowhere/0x0_0x1", 404)):
                assert (await ask(application, method, f"{QUOTAS}/{bundle}")).status == status

    run_quietly(scenario)
