"""A topic made a moment ago is wanted unless namespace or partitioned topic are deleted."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest
from starlette.types import ASGIApp

from geminga.broker.registry.new_topics import may_be_new, may_have_partitions, stays_new
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import ConflictError, NotAllowedError, TopicNotFoundError
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn
from support.worlds.broker_world import ENDPOINTS, BrokerWorld, run_with_broker
from support.worlds.rest_world import ask, rest_application

TOPICS = "/admin/v2/persistent/public/default"


@pytest.mark.parametrize(
    ("text", "is_wanted"),
    [
        ("persistent://public/default/one", True),
        ("persistent://public/default/one-partition-0", True),
        ("persistent://public/default/whole", False),
        ("persistent://public/default/going", False),
        ("persistent://public/default/whole-partition-0", True),
        ("persistent://public/default/going-partition-0", False),
        ("persistent://public/going/one", False),
        ("persistent://public/gone/one", False),
    ],
)
def test_what_is_deleted_takes_no_new_topics(text: str, is_wanted: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        resources = world.broker.resources
        for local in ("whole", "going"):
            await world.broker.partitions.create(TopicName.parse(f"persistent://public/default/{local}"), 2)
        going = TopicName.parse("persistent://public/default/going")
        await resources.partitioned_topics.mark_deleted(going, True, partitions=2)
        await resources.namespaces.create("public/going", {"replication_clusters": ["standalone"]})
        await resources.namespaces.set_policy("public/going", "deleted", True)
        name = TopicName.parse(text)
        assert await may_be_new(resources, name) is is_wanted
        if name.is_partition:
            whole = name.partitioned_topic
            assert await may_have_partitions(resources, whole) is (whole.local_name == "whole")

    run_with_broker(scenario)


@pytest.mark.parametrize("properties", [None, {"key": "value"}])
def test_topic_is_either_partitioned_or_not_though_two_make_it_at_once(properties: dict[str, str] | None) -> None:
    async def scenario(world: BrokerWorld) -> None:
        async def make(name: TopicName, turns: int, *, partitions: int) -> bool:
            for _ in range(turns):
                await next_turn()
            with suppress(ConflictError, TopicNotFoundError, NotAllowedError):
                if partitions:
                    await world.broker.partitions.create(name, partitions)
                elif properties is None:
                    await world.broker.registry.get(name, create=True)
                else:
                    await world.broker.registry.create(name, properties)
                return True
            return False

        for turns in range(-10, 10):
            name = TopicName.parse(f"public/default/topic{turns}")
            whole, plain = await asyncio.gather(make(name, turns, partitions=2), make(name, -turns, partitions=0))
            found = await world.broker.resources.partitioned_topics.find(name)
            assert (found is not None, await world.broker.registry.exists(name)) == (whole, plain)
            assert whole is not plain

    run_with_broker(scenario)


@pytest.mark.parametrize("properties", [{}, {"key": "value"}], ids=["plain", "with properties"])
def test_one_of_two_brokers_makes_the_topic_and_the_other_one_says_that_it_is_there(properties: dict[str, str]) -> None:
    """Each may find what the other one wrote: neither takes its own back for one that goes itself."""

    async def scenario(world: BrokerWorld) -> None:
        metadata = MemoryMetadataStore(world.runtime, world.metadata.server)
        other = BrokerWorld(world.runtime, world.config, world.ledger_config, store=metadata, bookie=world.bookie)
        await other.broker.start(ENDPOINTS)
        plainly, partitioned = (rest_application(each.broker) for each in (world, other))
        ways: set[tuple[int, bool]] = set()

        async def make(application: ASGIApp, path: str, body: object) -> int:
            answer = await ask(application, "PUT", path, json.dumps(body).encode())
            assert answer.status == 204 or answer.reason == "This topic already exists", answer
            return answer.status

        # Requests and replies take their time, so that each may come first anywhere.
        world.metadata.faults.delay_ms_max = metadata.faults.delay_ms_max = 10
        for number in range(150):
            path, name = f"{TOPICS}/at-once-{number}", TopicName.parse(f"public/default/at-once-{number}")
            plain, whole = await asyncio.gather(
                make(plainly, path, properties), make(partitioned, f"{path}/partitions", 2)
            )
            assert sorted((plain, whole)) == [204, 409], number
            assert await world.broker.registry.exists(name) is (plain == 204)
            found = await other.resources.partitioned_topics.find(name)
            assert (found is not None) is (whole == 204)
            ways.add((plain, found is not None and found.stands))
        assert ways >= {(204, False), (409, True)}
        await other.stop()

    run_with_broker(scenario)


def test_two_administrators_do_not_both_make_a_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        for turns, properties in ((0, {}), (3, {}), (0, {"key": "value"}), (3, {"key": "value"})):
            path = f"{TOPICS}/twice-{turns}-{len(properties)}"

            async def make(late: int, path: str = path, properties: dict[str, str] = properties) -> int:
                for _ in range(late):
                    await next_turn()
                return (await ask(application, "PUT", path, json.dumps(properties).encode())).status

            assert sorted(await asyncio.gather(make(0), make(turns))) == [204, 409]

    run_with_broker(scenario)


@pytest.mark.parametrize("partitions", [0, 3])
def test_two_administrators_do_not_both_make_a_subscription(partitions: int) -> None:
    """The second would be told that it begins where it does not."""

    async def scenario(world: BrokerWorld) -> None:
        application, topic = rest_application(world.broker), f"{TOPICS}/subscribed"
        made = await ask(
            application, "PUT", f"{topic}/partitions" if partitions else topic, str(partitions or {}).encode()
        )
        assert made.status == 204
        world.metadata.faults.delay_ms_max = 10
        for number in range(20):
            path = f"{topic}/subscription/sub-{number}"
            answers = await asyncio.gather(
                *(ask(application, "PUT", path, f'"{start}"'.encode()) for start in ("earliest", "latest"))
            )
            assert sorted(answer.status for answer in answers) == [204, 409]
            assert [answer.reason for answer in answers if answer.status == 409] == [
                "Subscription already exists for topic"
            ]

    run_with_broker(scenario)


def test_what_stands_is_told_to_nobody_and_outlives_a_change_of_properties() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topics, name = world.resources.partitioned_topics, TopicName.parse("public/default/standing")
        await topics.create(name, 2, {"key": "value"})
        assert not await stays_new(world.resources, name)
        for properties in ({"key": "value"}, {"key": "other"}):
            await topics.set_properties(name, properties)
            found = await topics.find(name)
            assert found is not None
            assert (found.stands, found.properties) == (True, properties)
        await topics.mark_deleted(name, True, partitions=2)
        assert not await stays_new(world.resources, name)
        await topics.delete(name)
        assert await stays_new(world.resources, name)

    run_with_broker(scenario)
