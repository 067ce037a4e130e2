"""Pages of topics and subscriptions: whose numbers their plots have."""

from __future__ import annotations

import json

import pytest

from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from support.worlds.console_pages import Visiting, visit
from support.worlds.rest_world import ask

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


@pytest.mark.parametrize("end", [" ", "\n", "\u3000"])
def test_a_topic_whose_name_ends_with_a_blank_is_not_taken_for_the_one_without(end: str) -> None:
    """A client may make one beside any topic, and in a list they look alike."""

    async def story(visitor: Visiting) -> None:
        client, twin = visitor.client.client, f"{TOPIC}{end}"
        for number, name in enumerate((TOPIC, twin), 7):
            await client.create_producer(name, producer_id=number)
        await visitor.client.send(b"precious", producer_id=7)
        for number in (7, 8):
            await client.close_producer(number)
        for path in ("/messages", "/dead-letters/topic"):
            assert "precious" not in (await visitor.get(path, topic=twin)).html
            assert "precious" in (await visitor.get(path, topic=TOPIC)).html
        assert (await visitor.act("delete-topic", {}, topic=twin)).status == 200
        listed = json.loads((await ask(visitor.application, "GET", "/admin/v2/persistent/public/default", b"")).body)
        assert TOPIC in listed
        assert twin not in listed

    visit(story)
