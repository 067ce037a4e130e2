"""A topic is compacted, and its page says how far that is."""

from __future__ import annotations

from support.worlds.broker_world import TOPIC
from support.worlds.console_pages import Visiting, visit
from support.worlds.handles_world import sim_admin
from support.worlds.policy_levels import seconds


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
