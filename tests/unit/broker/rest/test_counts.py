"""How many tenants there may be, and namespaces of each."""

from __future__ import annotations

import json

from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly
from support.worlds.rest_world import ask, rest_application


def test_no_more_tenants_and_namespaces_are_made_than_the_broker_says() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)

        async def put(path: str, body: object) -> tuple[int, str]:
            answer = await ask(application, "PUT", f"/admin/v2/{path}", json.dumps(body).encode())
            return answer.status, answer.reason if answer.body else ""

        tenants = len(await world.resources.tenants.list())
        info = {"allowedClusters": ["standalone"]}
        for number in range(tenants, 5):
            assert await put(f"tenants/t{number}", info) == (204, "")
        assert await put("tenants/t9", info) == (412, "Exceed the maximum number of tenants")
        for name in ("a", "b"):
            assert await put(f"namespaces/t4/{name}", {}) == (204, "")
        refused = (412, "Exceed the maximum number of namespace in tenant :t4")
        assert await put("namespaces/t4/c", {}) == refused
        assert await put("namespaces/t3/c", {}) == (204, "")
        await ask(application, "DELETE", "/admin/v2/namespaces/t4/b", b"")
        assert await put("namespaces/t4/c", {}) == (204, "")

    run_quietly(scenario, tenants_max=5, namespaces_per_tenant_max=2)
