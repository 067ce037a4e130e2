"""Pages of dead letters."""

from __future__ import annotations

from support.worlds.broker_world import TOPIC
from support.worlds.console_pages import Visiting, visit

LETTERS = "persistent://public/default/orders-billing-DLQ"


def test_letters_are_found_with_where_they_came_from() -> None:
    async def story(visitor: Visiting) -> None:
        assert "No topic of public/default whose name ends" in await visitor.page("/dead-letters")
        await visitor.client.client.create_producer(LETTERS, producer_id=2)
        asked = await visitor.get("/acts/redrive", topic=LETTERS)
        assert "No letter of" in asked.text
        for origin in (TOPIC, "persistent://elsewhere/ns/t"):
            properties = [{"key": "REAL_TOPIC", "value": origin}, {"key": "REAL_SUBSCRIPTION", "value": "billing"}]
            await visitor.client.send(b"x", producer_id=2, metadata={"properties": properties})
        page = await visitor.page("/dead-letters")
        assert f"{LETTERS} dead letters 2 Send back those of {LETTERS}" in page
        letters = await visitor.page("/dead-letters/topic", topic=LETTERS)
        assert "; given up by billing public/default/" in letters
        assert "no origin that is allowed public/default/orders-billing-DLQ-refused" in letters
        question = (await visitor.get("/acts/redrive", topic=LETTERS)).text
        assert f"2 entries wait. The newest of them came from {TOPIC}." in question
        assert f"go to {LETTERS}-refused" in question

    visit(story)
