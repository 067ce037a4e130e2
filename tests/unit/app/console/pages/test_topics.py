"""Pages of topics and subscriptions: whose numbers their plots have."""

from __future__ import annotations

from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from support.worlds.console_pages import Visiting, visit

TOPIC = "persistent://public/default/t"


def test_a_topic_that_is_called_like_a_subscription_has_plots_of_its_own() -> None:
    """Who may see ``t x`` need not see what waits in ``x`` of ``t``."""

    async def story(visitor: Visiting) -> None:
        client = visitor.client.client
        for number, name in enumerate((TOPIC, f"{TOPIC} x"), 7):
            topic = await visitor.world.broker.registry.get(TopicName.parse(name), create=True)
            assert isinstance(topic, PersistentTopic)
            await topic.ensure_subscription("x", EARLIEST)
            await client.create_producer(name, producer_id=number)
        for _ in range(5):
            await visitor.client.send(b"v", producer_id=7)
        assert "backlog: now 5 messages" in (await visitor.get("/subscription", topic=TOPIC, subscription="x")).html
        assert "backlog: now 0 messages" in (await visitor.get("/topic", topic=f"{TOPIC} x")).html

    visit(story)
