"""Pages of the cluster and of replication."""

from __future__ import annotations

from geminga.model.errors import UnavailableError
from support.worlds.broker_world import TOPIC
from support.worlds.console_pages import Visiting, visit
from support.worlds.other_cluster import join, replicate
from support.worlds.policy_levels import seconds

NAMESPACE, COPIED = "public/default", "persistent://public/default/copied"


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
        assert "None of the 1 topic that were looked at" in await visitor.page("/replication", namespace=NAMESPACE)
        other = join(visitor.world)
        other.away = UnavailableError("no route to west")
        await replicate(visitor.world, "standalone", "west")
        await visitor.client.client.create_producer(COPIED, producer_id=2)
        await visitor.client.send(b"x", producer_id=2)
        await seconds(1)
        for query in ({"topic": COPIED}, {"namespace": NAMESPACE}):
            page = await visitor.page("/replication", **query)
            assert "west stopped no route to west 1" in page
        assert "copied west stopped" in page  # of the topic
        assert "None of the" not in page
        part = await visitor.get("/replication", part="replication", namespace=NAMESPACE)
        assert "no route to west" in part.html
        assert "The namespace lives in standalone, west." in page
        none = await visitor.get("/replication", namespace="public/none")
        assert none.status == 404

    visit(story)
