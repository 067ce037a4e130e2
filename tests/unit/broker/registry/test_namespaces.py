"""Remembered policies."""

from __future__ import annotations

import asyncio
import json

import pytest

from geminga.broker.registry import namespaces as module
from geminga.broker.resources.namespaces import LOCAL_POLICIES_PATH
from geminga.metadata import MemoryMetadataStore
from geminga.model.topic_name import TopicName
from geminga.wire.bookkeeper.isolation import EVERYWHERE, IN_NO_GROUP, IsolationGroups
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.policy_levels import NAMESPACE, run_quietly, seconds, topic_of


def test_policies_are_remembered_until_they_change() -> None:
    async def scenario(world: BrokerWorld) -> None:
        namespaces = world.broker.namespaces
        first = await namespaces.policies("public/default")
        assert first is not None
        assert await namespaces.policies("public/default") is first
        assert await namespaces.policies("public/missing") is None
        await world.resources.namespaces.create("public/missing", {})
        assert await namespaces.policies("public/missing") is not None
        namespaces.forget("public/default")
        assert await namespaces.policies("public/default") is not first

    run_with_broker(scenario)


def test_policies_whose_reading_began_before_they_changed_are_not_remembered() -> None:
    """The answer to a slow read comes after the change was told: it holds for who asked, and for nobody else."""

    async def scenario(world: BrokerWorld) -> None:
        namespaces = world.broker.namespaces
        world.metadata.faults.delay_ms_max = 200
        for round_number in range(100):
            namespaces.forget(NAMESPACE)
            change = world.resources.namespaces.set_policy(NAMESPACE, "message_ttl_in_seconds", round_number)
            changing = asyncio.ensure_future(change)
            await seconds(0.01 * (round_number % 50))
            old = asyncio.ensure_future(namespaces.policies(NAMESPACE))
            await changing
            namespaces.forget(NAMESPACE)
            await old
            found = await namespaces.policies(NAMESPACE)
            assert found is not None
            assert found.document["message_ttl_in_seconds"] == round_number

    run_quietly(scenario)


def test_change_by_another_broker_is_followed_at_once_and_after_a_minute_if_its_watch_was_lost() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = MemoryMetadataStore(world.runtime, world.metadata.server)
        path = f"{module.POLICIES_PREFIX}{NAMESPACE}"
        await namespace_ttl(world)
        for lost_percent, ttl, wait_s in ((0, 11, 1), (100, 22, module.POLICIES_AGE_MS_MAX / 1000)):
            world.metadata.faults.watch_lost_percent = lost_percent
            await other.put(path, b'{"message_ttl_in_seconds": %d}' % ttl, expected_version=None)
            await seconds(wait_s)
            assert await namespace_ttl(world) == ttl

    run_quietly(scenario)


def test_bookies_of_local_policies_belong_to_the_policies_and_their_changes_are_followed() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = MemoryMetadataStore(world.runtime, world.metadata.server)
        path = f"{LOCAL_POLICIES_PATH}/{NAMESPACE}"
        topic = await topic_of(world)
        assert topic.ledger.persistence.groups is None
        told = {"bookkeeperAffinityGroupPrimary": "a,b", "bookkeeperAffinityGroupSecondary": "c"}
        for group, expected in (
            (told, IsolationGroups(("a", "b"), ("c",))),
            (
                {"bookkeeperAffinityGroupPrimary": "c", "bookkeeperAffinityGroupSecondary": None},
                IsolationGroups(("c",)),
            ),
            ({"bookkeeperAffinityGroupPrimary": 7}, IsolationGroups()),
            ("a", None),
            (None, None),
        ):
            await other.put(path, json.dumps({"bookieAffinityGroup": group}).encode(), expected_version=None)
            await seconds(1)
            assert topic.ledger.persistence.groups == expected
            own = await world.broker.policies.rules(TopicName.parse(f"persistent://{NAMESPACE}/__change_events"))
            assert own.bookies == expected, "the broker's own topics of a namespace are with the others"

    run_quietly(scenario)


def test_strict_affinity_keeps_the_other_namespaces_off_bookies_in_groups() -> None:
    async def scenario(world: BrokerWorld) -> None:
        policies = world.broker.policies
        names = [TopicName.parse(f"persistent://{NAMESPACE}/{local}") for local in ("t", "__change_events")]
        assert [(await policies.rules(name)).bookies for name in names] == [None, None]
        policies.use_settings({**policies.settings, "strictBookieAffinityEnabled": True})
        assert [(await policies.rules(name)).bookies for name in names] == [IN_NO_GROUP, EVERYWHERE]
        await world.resources.bookie_affinity.set(NAMESPACE, {"bookkeeperAffinityGroupPrimary": "a"})
        await seconds(1)
        assert [(await policies.rules(name)).bookies for name in names] == [IsolationGroups(("a",))] * 2

    run_quietly(scenario)


def test_change_between_the_first_read_and_the_watch_is_not_missed() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = MemoryMetadataStore(world.runtime, world.metadata.server)
        missed = []
        for number in range(40):
            name = f"public/new-{number}"
            await world.resources.namespaces.create(name, {})
            world.metadata.faults.delay_ms_max = 50
            reading = asyncio.ensure_future(world.broker.namespaces.policies(name))
            await seconds(number * 0.002)
            await other.put(f"{module.POLICIES_PREFIX}{name}", b'{"message_ttl_in_seconds": 7}', expected_version=None)
            await reading
            await seconds(0.5)
            found = await world.broker.namespaces.policies(name)
            assert found is not None
            if found.document.get("message_ttl_in_seconds") != 7:
                missed.append(number)
        assert missed == []

    run_quietly(scenario)


def test_only_namespaces_that_exist_are_watched_and_no_more_than_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "NAMESPACES_REMEMBERED_MAX", 3)

    async def scenario(world: BrokerWorld) -> None:
        namespaces = world.broker.namespaces
        for i in range(5):
            assert await namespaces.policies(f"public/missing-{i}") is None
            await world.resources.namespaces.create(f"public/n{i}", {})
            assert await namespaces.policies(f"public/n{i}") is not None
        assert list(namespaces._watched) == ["public/n2", "public/n3", "public/n4"]
        namespaces.close()
        assert not world.metadata._watches._of_nodes

    run_quietly(scenario)


async def namespace_ttl(world: BrokerWorld) -> object:
    found = await world.broker.namespaces.policies(NAMESPACE)
    assert found is not None
    return found.document.get("message_ttl_in_seconds")
