"""Deleting a namespace while clients come."""

from __future__ import annotations

import asyncio

import pytest

from geminga.app.configuration.server_config import ServerConfig
from geminga.broker.registry.namespaces import TopicMode
from geminga.broker.resources import Resources
from geminga.broker.resources.remains import BUNDLE_ROOTS, PARENT_ROOTS
from geminga.broker.rest.namespace_routes.deletion import delete_empty_namespace, delete_namespace_and_topics
from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.registry import schema_id_of
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import AppendResult
from geminga.metadata.memory import MemoryMetadataStore
from geminga.metadata.ports import Node
from geminga.model.errors import (
    ConflictError,
    GemingaError,
    MetadataError,
    NotFoundError,
    TopicNotFoundError,
    UnavailableError,
)
from geminga.model.topic_name import TopicName
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from support.worlds.broker_world import BrokerWorld
from support.worlds.metadata_stores import UnreachableStore, all_paths
from support.worlds.policy_levels import run_quietly, seconds
from support.worlds.rest_world import ask, rest_application

NAMESPACE = "public/going"
NAME = TopicName.parse(f"persistent://{NAMESPACE}/topic")
#: How long after the deletion began, or before, a client comes; the store takes up to a tenth of a second for each
#: answer.
LEADS_MS = (-150, -90, -50, 0, 5, 20, 50, 90, 150, 250, 400, 700)


async def store(world: BrokerWorld) -> bool:
    """A topic that comes into being with one message; whether that was answered for."""
    try:
        topic = await world.broker.registry.get(NAME, create=True)
    except GemingaError:
        return False
    assert isinstance(topic, PersistentTopic)
    stored: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    topic.ledger.append([b"message"], stored.set_result)
    return (await stored).error is None


def test_namespace_with_topics_is_refused_and_goes_on() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.resources.namespaces.create(NAMESPACE)
        assert await store(world)
        with pytest.raises(ConflictError, match="non empty"):
            await delete_empty_namespace(world.broker.administered, NAMESPACE)
        assert not (await world.resources.namespaces.get(NAMESPACE)).is_deleted
        assert await store(world)

    run_quietly(scenario)


def test_topic_that_comes_while_an_empty_namespace_goes_is_refused_or_kept() -> None:
    """It was looked at, found empty, and deleted with whatever had come since."""

    def outcome(lead_ms: int) -> str:
        async def scenario(world: BrokerWorld) -> str:
            await world.resources.namespaces.create(NAMESPACE)
            world.metadata.faults.delay_ms_max = 100

            async def delete() -> None:
                await seconds(max(0, -lead_ms) / 1000)
                await delete_empty_namespace(world.broker.administered, NAMESPACE)

            deletion = asyncio.ensure_future(delete())
            await seconds(max(0, lead_ms) / 1000)
            answered = await store(world)
            try:
                await deletion
            except ConflictError:
                assert await world.broker.registry.exists(NAME)
                assert not (await world.resources.namespaces.get(NAMESPACE)).is_deleted
                return "kept"
            if answered:
                assert await world.broker.registry.exists(NAME), f"{lead_ms} ms: answered for and gone"
            return "deleted"

        return run_quietly_for(scenario)

    assert {outcome(lead_ms) for lead_ms in LEADS_MS} == {"kept", "deleted"}


def run_quietly_for(scenario) -> str:
    outcomes: list[str] = []

    async def keep(world: BrokerWorld) -> None:
        outcomes.append(await scenario(world))

    run_quietly(keep)
    return outcomes[0]


def test_policies_changed_while_a_namespace_goes_are_not_deleted_unseen() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.resources.namespaces.create(NAMESPACE)
        await store(world)
        world.metadata.faults.delay_ms_max = 50
        deletion = asyncio.ensure_future(delete_namespace_and_topics(world.broker.administered, NAMESPACE))
        while not (await world.resources.namespaces.get(NAMESPACE)).is_deleted:
            await seconds(0.001)
        await world.resources.namespaces.set_policy(NAMESPACE, "deduplicationEnabled", True)
        with pytest.raises(ConflictError):
            await deletion
        await delete_namespace_and_topics(world.broker.administered, NAMESPACE)
        assert await world.resources.namespaces.find(NAMESPACE) is None

    run_quietly(scenario)


# ---- topics with policies and schemas of their own

TOPICS = [TopicName.parse(f"persistent://{NAMESPACE}/{name}") for name in ("A", "a", "z")]
PARTITIONED = TopicName.parse(f"persistent://{NAMESPACE}/parts")


async def fill(world: BrokerWorld) -> None:
    """Topics before and after the events in the order of their names, each with a policy and a schema."""
    await world.resources.namespaces.create(NAMESPACE)
    await world.broker.partitions.create(PARTITIONED, 2)
    for name in TOPICS:
        await world.broker.registry.get(name, create=True)
    for name in (*TOPICS, PARTITIONED):
        await world.broker.policies.topics.update(name, lambda document: {**document, "messageTTLInSeconds": 7})
        info = SchemaInfo("", SchemaType.STRING, b"")
        await world.broker.schemas.registry.put_if_absent(schema_id_of(name), info, Strategy.ALWAYS_COMPATIBLE)


async def left(world: BrokerWorld) -> list[str]:
    """What is still stored of the namespace, its own node aside."""
    # A ledger without messages is an empty node.
    found = await world.broker.registry.list(NAMESPACE, mode=TopicMode.ALL, has_system=True)

    own = f"/admin/policies/{NAMESPACE}"
    found += [path for path in await all_paths(world.metadata) if NAMESPACE in path and path != own]
    return found


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_of_a_deleted_namespace_no_node_is_left_and_of_its_tenant_none_when_it_goes(domain: str) -> None:
    """Eight of them stayed for each namespace that ever was: what its topics, schemas, bundles and policies hung on."""
    namespace = "gone/with"

    async def scenario(world: BrokerWorld) -> None:
        cluster = (await world.resources.clusters.list())[0]
        tenant = {"allowedClusters": [cluster]}
        before = await all_paths(world.metadata)
        await world.resources.tenants.create("gone", tenant)
        for name in (namespace, "gone/other"):
            await world.resources.namespaces.create(name)
            await world.broker.partitions.create(TopicName.parse(f"{domain}://{name}/parts"), 2)
            await world.broker.registry.get(TopicName.parse(f"{domain}://{name}/one"), create=True)
            info = SchemaInfo("", SchemaType.STRING, b"")
            await world.broker.schemas.registry.put_if_absent(f"{name}/one", info, Strategy.ALWAYS_COMPATIBLE)
            for path in (*BUNDLE_ROOTS, "/namespace", "/geminga/delayed-index"):
                await world.metadata.put(f"{path}/{name}/0x0_0x1", b"x", expected_version=None)
                if path in PARENT_ROOTS:
                    await world.metadata.delete(f"{path}/{name}/0x0_0x1")
            await world.metadata.put(f"/admin/local-policies/{name}", b"{}", expected_version=None)
        await delete_namespace_and_topics(world.broker.administered, namespace)
        assert [path for path in await all_paths(world.metadata) if namespace in path] == []
        other = [path for path in await all_paths(world.metadata) if "gone/other" in path]
        assert len(other) >= 10
        await delete_namespace_and_topics(world.broker.administered, "gone/other")
        await world.resources.tenants.delete("gone")
        # Roots and the ids that were given out aside.
        left = [path for path in await all_paths(world.metadata) if path not in before and path.count("/") > 2]
        assert [path for path in left if not path.startswith("/ledgers/")] == []
        assert [path for path in await all_paths(world.metadata) if "gone" in path] == []

    run_quietly(scenario)


@pytest.mark.parametrize("events", ["loaded", "unloaded", "deleted", "after a restart"])
def test_forced_deletion_leaves_nothing_of_topics_with_policies(events: str) -> None:
    """Their policies could not be forgotten where the events were gone, and the topics' ledgers stayed for ever."""

    async def scenario(world: BrokerWorld) -> None:
        await fill(world)
        change_events = TopicName.parse(f"persistent://{NAMESPACE}/__change_events")
        if events == "unloaded":
            await world.broker.registry.unload(change_events)
        elif events == "deleted":
            await world.broker.registry.delete(change_events, force=True)
        elif events == "after a restart":
            await world.restart()
        await delete_namespace_and_topics(world.broker.administered, NAMESPACE)
        assert await world.resources.namespaces.find(NAMESPACE) is None
        assert await left(world) == []
        # What comes by these names later has nothing of theirs.
        await world.resources.namespaces.create(NAMESPACE)
        for name in TOPICS:
            await world.broker.registry.get(name, create=True)
            assert await world.broker.policies.topics.get(name) is None

    run_quietly(scenario)


class LateTopicStore(UnreachableStore):
    """A topic comes just before the namespace is marked, and after the mark nothing is written."""

    world: BrokerWorld | None = None

    async def put(self, path: str, value: bytes, **options) -> Node:
        world = self.world
        if world is not None and path == f"/admin/policies/{NAMESPACE}":
            self.world = None
            assert await store(world)
            node = await super().put(path, value, **options)
            self.writes_left = 0
            return node
        return await super().put(path, value, **options)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_namespace_that_could_not_be_unmarked_goes_on_with_the_next_refusal(is_restarted: bool) -> None:
    """It stayed marked: nobody could use its topic, and each further request was refused, too."""

    async def scenario(world: BrokerWorld) -> None:
        await world.resources.namespaces.create(NAMESPACE)
        metadata = LateTopicStore(world.runtime, world.metadata.server)
        world.metadata, world.resources = metadata, Resources(metadata)
        await world.restart()
        metadata.world = world
        with pytest.raises(MetadataError):
            await delete_empty_namespace(world.broker.administered, NAMESPACE)
        metadata.writes_left = None
        if is_restarted:
            await world.restart()
        assert (await world.resources.namespaces.get(NAMESPACE)).is_deleted
        with pytest.raises(ConflictError, match="non empty"):
            await delete_empty_namespace(world.broker.administered, NAMESPACE)
        assert not (await world.resources.namespaces.get(NAMESPACE)).is_deleted
        assert await store(world)

    run_quietly(scenario)


class ServedAgainStore(MemoryMetadataStore):
    """Before topics are listed for the time that is due, another broker takes the mark back and a topic comes."""

    world: BrokerWorld | None = None
    lists_left = 0
    is_stored = False

    async def children(self, path: str) -> list[str]:
        world = self.world
        if world is not None and path == f"/managed-ledgers/{NAMESPACE}/persistent":
            self.lists_left -= 1
            if self.lists_left == 0:
                self.world = None
                await world.resources.namespaces.set_policy(NAMESPACE, "deleted", False)
                world.broker.namespaces.forget(NAMESPACE)
                self.is_stored = await store(world)
        return await super().children(path)


@pytest.mark.parametrize("lists", range(1, 7))
def test_an_unforced_deletion_deletes_nothing_that_came_when_another_broker_took_the_mark_back(lists: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.resources.namespaces.create(NAMESPACE)
        metadata = ServedAgainStore(world.runtime, world.metadata.server)
        world.metadata, world.resources = metadata, Resources(metadata)
        await world.restart()
        metadata.world, metadata.lists_left = world, lists
        outcome = (
            await asyncio.gather(delete_empty_namespace(world.broker.administered, NAMESPACE), return_exceptions=True)
        )[0]
        assert metadata.is_stored
        assert isinstance(outcome, ConflictError)
        assert await world.broker.registry.exists(NAME)
        assert not (await world.resources.namespaces.get(NAMESPACE)).is_deleted
        assert await store(world)

    run_quietly(scenario)


def test_forced_deletion_that_fails_anywhere_is_finished_by_the_same_request() -> None:
    """In a run of its own for each number of writes that the metadata take; the broker starts anew after it."""

    def outcome(failing: int) -> str:
        async def scenario(world: BrokerWorld) -> str:
            await fill(world)
            store = UnreachableStore(world.runtime, world.metadata.server)
            world.metadata, world.resources = store, Resources(store)
            await world.restart()
            store.writes_left = failing - 1
            result = "done"
            try:
                await delete_namespace_and_topics(world.broker.administered, NAMESPACE)
            except GemingaError:
                result = "cut off"
            is_over, store.writes_left = store.writes_left > 0, None
            await world.restart()
            if result == "cut off" or await world.resources.namespaces.find(NAMESPACE) is not None:
                await delete_namespace_and_topics(world.broker.administered, NAMESPACE)
            assert await world.resources.namespaces.find(NAMESPACE) is None
            assert await left(world) == [], f"write {failing}"
            return "over" if is_over else result

        return run_quietly_for(scenario)

    outcomes: list[str] = []
    while "over" not in outcomes:
        outcomes.append(outcome(len(outcomes) + 1))
    assert outcomes.count("cut off") >= 10


def test_stop_ends_a_forced_deletion_at_its_next_step() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await fill(world)
        world.broker.begin_stop()
        with pytest.raises(UnavailableError):
            await delete_namespace_and_topics(world.broker.administered, NAMESPACE)
        assert await world.broker.registry.exists(TOPICS[0])

    run_quietly(scenario)


def test_partitioned_topic_that_is_being_made_goes_with_its_namespace() -> None:
    """Partitions that were made after the namespace had been looked at stayed for ever."""

    async def scenario(world: BrokerWorld) -> None:
        await world.resources.namespaces.create(NAMESPACE)
        world.metadata.faults.delay_ms_max = 20
        creation = asyncio.ensure_future(world.broker.partitions.create(PARTITIONED, 1000))
        while not await world.broker.registry.list(NAMESPACE):
            await seconds(0.001)
        await delete_namespace_and_topics(world.broker.administered, NAMESPACE)
        await asyncio.wait([creation])
        assert isinstance(creation.exception(), TopicNotFoundError)
        assert await left(world) == []

    run_quietly(scenario)


def test_a_tenant_goes_while_somebody_deletes_a_namespace_of_it() -> None:
    """It was refused because the namespace was not there, with the others left."""

    def outcome(lead_ms: int) -> None:
        async def scenario(world: BrokerWorld) -> None:
            application = rest_application(
                world.broker, forced=ServerConfig(force_delete_namespace=True, force_delete_tenant=True)
            )
            await world.resources.tenants.create("going", {"allowedClusters": ["standalone"]})
            for name in ("a", "b", "c"):
                await world.resources.namespaces.create(f"going/{name}")
                await world.broker.registry.get(TopicName.parse(f"persistent://going/{name}/t"), create=True)
            world.metadata.faults.delay_ms_max = 50
            tenant = asyncio.ensure_future(ask(application, "DELETE", "/admin/v2/tenants/going?force=true", b""))
            await seconds(lead_ms / 1000)
            namespace = await ask(application, "DELETE", "/admin/v2/namespaces/going/b?force=true", b"")
            assert (await tenant).status == 204, f"{lead_ms} ms"
            assert namespace.status in (204, 404)
            assert not await world.resources.tenants.exists("going")

        run_quietly(scenario)

    for lead_ms in range(0, 900, 150):
        outcome(lead_ms)


@pytest.mark.parametrize("forced", [(True, False), (True, True), (False, True), (True, False, False)])
@pytest.mark.parametrize("lead_s", [0, 0.02, 0.1, 0.3])
def test_deletions_of_one_namespace_beside_each_other_are_one_behind_the_other(
    forced: tuple[bool, ...], lead_s: float
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.resources.namespaces.create(NAMESPACE)
        assert await store(world)
        world.metadata.faults.delay_ms_max = 50
        topics = world.broker.administered
        deletions = []
        for is_forced in forced:
            delete = delete_namespace_and_topics if is_forced else delete_empty_namespace
            deletions.append(asyncio.ensure_future(delete(topics, NAMESPACE)))
            await seconds(lead_s)
        outcomes = await asyncio.gather(*deletions, return_exceptions=True)
        for number, (is_forced, outcome) in enumerate(zip(forced, outcomes, strict=True)):
            if number == forced.index(True):
                assert outcome is None
            elif number > forced.index(True):
                assert isinstance(outcome, NotFoundError), "it is gone by then"
            else:
                assert not is_forced
                assert isinstance(outcome, ConflictError)
        assert await world.resources.namespaces.find(NAMESPACE) is None
        assert await left(world) == []

    run_quietly(scenario)


@pytest.mark.parametrize("is_empty", [True, False])
def test_unforced_deletions_beside_each_other_say_what_is_so(is_empty: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.resources.namespaces.create(NAMESPACE)
        if not is_empty:
            assert await store(world)
        world.metadata.faults.delay_ms_max = 50
        topics = world.broker.administered
        deletions = (delete_empty_namespace(topics, NAMESPACE) for _ in range(3))
        outcomes = await asyncio.gather(*deletions, return_exceptions=True)
        if is_empty:
            assert [type(outcome) for outcome in outcomes] == [type(None), NotFoundError, NotFoundError]
        else:
            assert [type(outcome) for outcome in outcomes] == [ConflictError] * 3
            assert not (await world.resources.namespaces.get(NAMESPACE)).is_deleted
            assert await store(world)

    run_quietly(scenario)
