"""Isolation policies that are set while a namespace can not be unloaded, or goes."""

from __future__ import annotations

import json

from geminga.broker.ownership.core.local_policies import local_policies_path
from geminga.model.topic_name import TopicName
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


async def prepared(world: BrokerWorld) -> None:
    for namespace in NAMESPACES:
        await world.resources.namespaces.create(namespace)
        await world.broker.registry.get(TopicName.parse(f"persistent://{namespace}/t"), create=True)
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
