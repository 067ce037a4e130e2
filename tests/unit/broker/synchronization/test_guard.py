"""What this cluster stores that another one's change must not take away."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from geminga import sim
from geminga.broker.resources import Resources
from geminga.broker.synchronization.core.deciding import Objections
from geminga.broker.synchronization.guard import StoredTopics
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import NotFoundError, UnavailableError
from geminga.model.topic_name import TopicName
from support.worlds.event_topics import rules_of

NAMESPACE = "/admin/policies/t/n"
TOPIC = "/admin/partitioned-topics/t/n/persistent/a%2Fb"
BOTH, EAST = (json.dumps({"replication_clusters": names}).encode() for names in (["east", "west"], ["east"]))


class Stage:
    def __init__(self, store: MemoryMetadataStore) -> None:
        self.store = store
        self.made: list[tuple[str, int]] = []
        self.error: Exception | None = None
        self.guard = self.guard_with()

    def guard_with(self, **config: object) -> StoredTopics:
        """Of a broker with such settings."""
        resources, name = Resources(self.store), TopicName.parse("persistent://t/n/events")
        return StoredTopics(self.store, resources, "west", name, self._make, rules_of(resources, **config))

    async def _make(self, name: TopicName, count: int) -> None:
        self.made.append((str(name), count))
        if self.error is not None:
            raise self.error

    async def store_topic(self, name: str) -> None:
        await self.store.put(f"/managed-ledgers/{name}", b"", expected_version=None)


def run(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def main(world: sim.SimWorld) -> None:
        await story(Stage(MemoryMetadataStore(world.node("a").runtime)))

    sim.run(main)


def partitions(count: int) -> bytes:
    return b'{"partitions":%d}' % count


def test_what_has_topics_here_is_kept() -> None:
    async def story(stage: Stage) -> None:
        keeps = stage.guard.keeps
        assert "this cluster" in await keeps("/admin/clusters/west")
        assert await keeps("/admin/clusters/east") == await keeps(NAMESPACE) == await keeps(TOPIC) == ""
        await stage.store_topic("t/n/persistent/a%2Fb")
        assert "topics of it" in await keeps(NAMESPACE)
        assert await keeps("/admin/policies/t") == await keeps("/admin/policies/t/other") == ""
        # A topic without partitions, and one of a longer name.
        await stage.store_topic("t/n/persistent/a%2Fb-partition-x")
        await stage.store_topic("t/n/persistent/a%2Fbc-partition-0")
        assert await keeps(TOPIC) == ""
        await stage.store_topic("t/n/persistent/a%2Fb-partition-3")
        assert await keeps(TOPIC) == ""
        for count in (4, 200):
            await stage.store.put(TOPIC, partitions(count), expected_version=None)
            assert "partitions of it" in await keeps(TOPIC)
        objections = stage.guard.objections
        assert "partitions of it" in (await objections(TOPIC, partitions(4), None)).keeps
        assert await objections(TOPIC, None, None) == Objections()

    run(story)


def test_partitions_are_never_fewer_than_are_stored() -> None:
    async def story(stage: Stage) -> None:
        await stage.store_topic("t/n/persistent/a%2Fb-partition-3")
        objections = stage.guard.objections
        assert (await objections(TOPIC, partitions(5), partitions(3))).shrinks
        assert (await objections(TOPIC, partitions(5), b"{}")).shrinks
        assert (await objections(TOPIC, partitions(200), partitions(3))).shrinks
        assert not (await objections(TOPIC, partitions(200), partitions(4))).shrinks
        assert await objections(TOPIC, partitions(5), partitions(4)) == Objections()
        assert await objections(TOPIC, partitions(5), partitions(6)) == Objections(grows=True)

    run(story)


def test_cluster_that_is_taken_out_of_a_namespace_objects() -> None:
    async def story(stage: Stage) -> None:
        assert await stage.guard.objections(NAMESPACE, BOTH, EAST) == Objections(leaves=True)
        assert await stage.guard.objections(NAMESPACE, EAST, BOTH) == Objections()
        assert await stage.guard.objections("/admin/policies/t", BOTH, EAST) == Objections()

    run(story)


def test_namespace_of_the_cluster_s_own_topics_stays() -> None:
    """A start does not make it again, and transactions need it."""

    async def story(stage: Stage) -> None:
        assert "own topics" in await stage.guard.keeps("/admin/policies/pulsar/system")
        assert await stage.guard.keeps("/admin/policies/public/default") == ""

    run(story)


def test_cluster_is_known_where_it_is_one() -> None:
    async def story(stage: Stage) -> None:
        assert not await stage.guard.knows("east")
        await stage.store.put("/admin/clusters/east", b"{}", expected_version=None)
        assert await stage.guard.knows("east")

    run(story)


def test_more_partitions_are_made_first() -> None:
    async def story(stage: Stage) -> None:
        prepare = stage.guard.prepare
        await prepare(TOPIC, None, partitions(4))
        await prepare(TOPIC, partitions(4), partitions(4))
        await prepare(TOPIC, partitions(4), None)
        await prepare(TOPIC.replace("/persistent/", "/non-persistent/"), partitions(2), partitions(4))
        await prepare(NAMESPACE, partitions(2), partitions(4))
        assert stage.made == []
        await prepare(TOPIC, partitions(2), partitions(4))
        assert stage.made == [("persistent://t/n/a/b", 4)]
        stage.error = NotFoundError("no such topic")
        await prepare(TOPIC, partitions(2), partitions(4))
        stage.error = UnavailableError("not now")
        with pytest.raises(UnavailableError):
            await prepare(TOPIC, partitions(2), partitions(4))

    run(story)


def test_doubts_about_the_topic_are_told() -> None:
    async def story(stage: Stage) -> None:
        async def doubts(**policies: object) -> str:
            await stage.store.put(NAMESPACE, json.dumps(policies).encode(), expected_version=None)
            return await stage.guard.doubts()

        assert "there is no namespace t/n" in await stage.guard.doubts()
        assert await stage.guard.others() == []
        assert "lives in no other cluster" in await doubts(replication_clusters=["west"])
        both = ["west", "east"]
        assert await doubts(replication_clusters=both) == ""
        assert await stage.guard.others() == ["east"]
        expires = await doubts(replication_clusters=both, subscription_expiration_time_minutes=7)
        assert "7 minutes, the time after which subscriptions expire" in expires
        assert "60 s, the time to live" in await doubts(replication_clusters=both, message_ttl_in_seconds=60)
        quota = {"destination_storage": {"limit": 1, "limitSize": 1, "policy": "consumer_backlog_eviction"}}
        assert "a backlog quota" in await doubts(replication_clusters=both, backlog_quota_map=quota)
        quota["destination_storage"]["policy"] = "producer_exception"
        assert await doubts(replication_clusters=both, backlog_quota_map=quota) == ""
        # What a broker says of all topics holds for this one, too.
        assert "90 s, the time to live" in await stage.guard_with(message_ttl_s=90).doubts()
        inactive = {"delete_inactive_topics_mode": "delete_when_subscriptions_caught_up"}
        assert "is deleted when all of it is read" in await stage.guard_with(**inactive).doubts()

    run(story)
