"""Pages of the cluster, of replication and of compaction."""

from __future__ import annotations

from support.worlds.broker_world import TOPIC
from support.worlds.console_pages import Visiting, visit
from support.worlds.handles_world import sim_admin
from support.worlds.policy_levels import seconds


def test_cluster_shows_its_brokers() -> None:
    async def story(visitor: Visiting) -> None:
        page = await visitor.page("/cluster")
        assert "This broker serves, and its storage takes writes." in page
        assert "leader this one 1" in page

    visit(story)


def test_topic_says_to_where_it_is_copied() -> None:
    async def story(visitor: Visiting) -> None:
        await visitor.page("/replication")
        assert "It is not copied to another cluster." in await visitor.page("/replication", topic=TOPIC)

    visit(story)


def test_topic_is_compacted_and_says_so() -> None:
    async def story(visitor: Visiting) -> None:
        for number in range(3):
            await visitor.client.send(b"%d" % number, metadata={"partition_key": "k"})
        await visitor.page("/compaction")
        assert "This topic was not compacted yet" in await visitor.page("/compaction", topic=TOPIC)
        done = await visitor.act("compact", {}, topic=TOPIC)
        assert f"The compaction of {TOPIC} has begun." in done.text
        await seconds(5)
        page = await visitor.page("/compaction", topic=TOPIC)
        assert "The last compaction is done. Not compacted 0 entries" in page
        assert "2 messages" in page
        await sim_admin(visitor.application).topics.create_partitioned("parts", 2)
        parts = await visitor.get("/acts/compact", topic="parts")
        assert "Compact persistent://public/default/parts" in parts.text
        assert "0 1" in await visitor.page("/compaction", topic="parts")

    visit(story)
