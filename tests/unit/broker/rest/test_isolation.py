"""Isolation policies that are set while a namespace can not be unloaded, or goes."""

from __future__ import annotations

import json
from collections.abc import Iterable

from geminga.broker.ownership.core.local_policies import local_policies_path
from geminga.model.topic_name import TopicName
from support.house.python_calls import counted_calls
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly
from support.worlds.rest_world import ask, rest_application

POLICY = "/admin/v2/clusters/standalone/namespaceIsolationPolicies/mine"
NAMESPACES = ("public/aa", "public/bb", "public/cc")


def policy(primary: str) -> bytes:
    parameters = {"min_limit": "1", "usage_threshold": "80"}
    failover = {"policy_type": "min_available", "parameters": parameters}
    members = {"namespaces": ["public/.*"], "primary": [primary], "secondary": [], "auto_failover_policy": failover}
    return json.dumps(members).encode()


async def loaded(world: BrokerWorld) -> set[str]:
    """Namespaces with a topic that is loaded, since it was or by now."""
    return {name.namespace for name in (topic.name for topic in world.broker.registry.loaded.values())}


async def loaded_topics(world: BrokerWorld, namespaces: Iterable[str]) -> None:
    for namespace in namespaces:
        await world.resources.namespaces.create(namespace)
        await world.broker.registry.get(TopicName.parse(f"persistent://{namespace}/t"), create=True)


async def prepared(world: BrokerWorld) -> None:
    await loaded_topics(world, NAMESPACES)
    assert await loaded(world) == set(NAMESPACES)


def test_namespaces_behind_one_that_can_not_be_unloaded_are() -> None:
    """The policy is stored, and setting it again finds nothing to unload: those that were left stayed."""

    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        await prepared(world)
        damaged = local_policies_path(NAMESPACES[0])
        await world.metadata.put(damaged, b"no JSON", expected_version=None)
        answer = await ask(application, "POST", POLICY, policy("one.*"))
        assert answer.status == 500
        assert answer.reason == "Stored data are damaged"
        assert await loaded(world) == {NAMESPACES[0]}
        assert (await ask(application, "POST", POLICY, policy("one.*"))).status == 204

    run_quietly(scenario)


def test_a_tenant_that_is_not_there_keeps_no_policy_from_being_set_and_no_group_from_going() -> None:
    """Its node without a value is listed: the parent of a namespace whose tenant went meanwhile."""

    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        await prepared(world)
        await world.metadata.put("/admin/policies/gone", b"", expected_version=None)
        assert (await ask(application, "POST", POLICY, policy("one.*"))).status == 204
        assert await loaded(world) == set()
        group = "/admin/v2/resourcegroups/some"
        assert (await ask(application, "PUT", group, b"{}")).status == 204
        assert (await ask(application, "DELETE", group, b"")).status == 204

    run_quietly(scenario)


def test_expressions_are_compiled_once_however_many_bundles_a_broker_has() -> None:
    """Each bundle compiled all of them, in one turn of the loop: seconds for a few thousand bundles."""

    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        document = json.loads(policy("one.*"))
        document["namespaces"] = [f"none/n{number}.*" for number in range(100)]
        assert (await ask(application, "POST", POLICY, json.dumps(document).encode())).status == 204
        broker = json.loads((await ask(application, "GET", "/admin/v2/brokers/standalone", b"")).body)[0]

        async def calls() -> int:
            with counted_calls() as made:
                answer = await ask(application, "GET", f"/admin/v2/brokers/standalone/{broker}/ownedNamespaces", b"")
                assert answer.status == 200
                return made()

        await loaded_topics(world, NAMESPACES[:1])
        first = await calls()
        await loaded_topics(world, [f"public/more{number}" for number in range(10)])
        assert (await calls() - first) / 10 < 1_000

    run_quietly(scenario)
