"""Pages of the cluster and of replication."""

from __future__ import annotations

from support.worlds.broker_world import TOPIC
from support.worlds.console_pages import Visiting, visit


def test_cluster_shows_its_brokers() -> None:
    async def story(visitor: Visiting) -> None:
        page = await visitor.page("/cluster")
        assert "This broker serves, and its storage takes writes." in page
        assert "leader this one 1" in page
        part = await visitor.get("/cluster", part="cluster")
        assert part.html.lstrip().startswith('<p class="notice ok">')

    visit(story)


def test_topic_says_to_where_it_is_copied() -> None:
    async def story(visitor: Visiting) -> None:
        await visitor.page("/replication")
        assert "It is not copied to another cluster." in await visitor.page("/replication", topic=TOPIC)

    visit(story)
