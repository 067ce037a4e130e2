"""How many tenants there may be, and namespaces of each; which names new subscriptions may have."""

from __future__ import annotations

import asyncio
import json

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, Type
from support.worlds.policy_levels import run_quietly, topic_of
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


def test_a_burst_makes_no_more_tenants_namespaces_and_topics_than_the_broker_says() -> None:
    """Each of them found that there was room."""

    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        world.metadata.faults.delay_ms_max = 20

        async def put(path: str, body: object) -> tuple[int, str]:
            answer = await ask(application, "PUT", f"/admin/v2/{path}", json.dumps(body).encode())
            return answer.status, answer.reason if answer.body else ""

        async def outcomes(path: str, body: object = None) -> list[tuple[int, str]]:
            return sorted(await asyncio.gather(*(put(f"{path}{number}", body) for number in range(6))))

        there = len(await world.resources.tenants.list())
        refused = (412, "Exceed the maximum number of tenants")
        info = {"allowedClusters": ["standalone"]}
        assert await outcomes("tenants/t", info) == [(204, "")] * (5 - there) + [refused] * (1 + there)
        refused = (412, "Exceed the maximum number of namespace in tenant :t")
        tenant = (await world.resources.tenants.list())[-1]
        refused = (412, f"Exceed the maximum number of namespace in tenant :{tenant}")
        assert await outcomes(f"namespaces/{tenant}/n", {}) == [(204, "")] * 2 + [refused] * 4
        refused = (409, "Exceed maximum number of topics in namespace.")
        assert await outcomes("persistent/public/default/t") == [(204, "")] * 3 + [refused] * 3
        # Refused for another reason, it takes no place; one that is there says so, also where there is no room.
        assert await put("tenants/t9", info) == (412, "Exceed the maximum number of tenants")

    run_quietly(scenario, tenants_max=5, namespaces_per_tenant_max=2, topics_per_namespace_max=3)


def test_new_subscriptions_have_plain_names_where_the_broker_wants_it() -> None:
    """Those that are there stay, and readers, whose subscriptions are not stored, have the names that they like."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        application = rest_application(world.broker)
        path = "/admin/v2/persistent/public/default/topic/subscription"
        for name, status in (("plain-1:=._", 204), ("with%20space", 412), ("a%2Fb", 412)):
            answer = await ask(application, "PUT", f"{path}/{name}", b"")
            assert answer.status == status, name
        assert "consists of letters" in answer.reason
        client = await world.client()
        request = pb.CommandSubscribe(
            topic=str(topic.name), subscription="a/b", consumer_id=1, request_id=1, subType=pb.CommandSubscribe.Shared
        )
        client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        refused = await client.error()
        assert (refused.error, "not 'a/b'" in refused.message) == (pb.NotAllowedError, True)
        await client.subscribe(subscription="a reader", consumer_id=2, durable=False)
        assert [*topic.subscriptions] == ["plain-1:=._", "a reader"]

    run_quietly(scenario, strict_subscription_names=True)
