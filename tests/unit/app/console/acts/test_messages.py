"""A message is published to try something out."""

from __future__ import annotations

from geminga.admin.errors import NotFoundError
from support.worlds.broker_world import TOPIC
from support.worlds.console_pages import Visiting, visit
from support.worlds.handles_world import sim_admin

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'


def test_message_is_published_as_it_is_typed_and_the_topic_gets_no_schema() -> None:
    async def story(visitor: Visiting) -> None:
        given = {"value": "hello", "key": "k", "properties": "a=1"}
        done = await visitor.act("publish", given, topic=TOPIC)
        assert done.status == 200
        assert "is stored." in done.text
        assert "k hello a=1 console" in done.text
        assert await _has_no_schema(visitor)
        bytes_ = await visitor.act("publish", {"value": "AAE=", "encoding": "base64"}, topic=TOPIC)
        assert "00 01" in bytes_.text

    visit(story)


def test_value_is_checked_against_the_schema_of_the_topic() -> None:
    async def story(visitor: Visiting) -> None:
        admin = sim_admin(visitor.application)
        await admin.schemas.upload(TOPIC, {"type": "AVRO", "schema": RECORD, "properties": {}})
        question = (await visitor.get("/acts/publish", topic=TOPIC)).text
        assert "Its value is typed as JSON and checked against version 0 of its schema, AVRO." in question
        assert '{ "a": 5 }' in (await visitor.act("publish", {"value": '{"a": 5}'}, topic=TOPIC)).text
        refused = await visitor.act("publish", {"value": '{"a": "x"}'}, topic=TOPIC)
        assert 400 <= refused.status < 500
        assert "does not fit its Avro schema" in refused.text
        bad = await visitor.act("publish", {"value": '{"a": 5}', "properties": "x"}, topic=TOPIC)
        assert (bad.status, "expected name=value" in bad.text) == (400, True)
        new = (await visitor.get("/acts/publish", topic="persistent://public/default/new")).text
        assert "The topic is not there: it is made, where that is allowed." in new
        strange = await visitor.act("publish", {"value": "x"}, topic="persistent://public/none/t")
        assert strange.status == 404

    visit(story)


def test_message_to_a_topic_with_partitions_is_found_where_it_is() -> None:
    async def story(visitor: Visiting) -> None:
        await sim_admin(visitor.application).topics.create_partitioned("parts", 3)
        done = await visitor.act("publish", {"value": "hello"}, topic="parts")
        assert "hello" in done.text
        assert "persistent://public/default/parts-partition-" in done.text

    visit(story)


async def _has_no_schema(visitor: Visiting) -> bool:
    try:
        await sim_admin(visitor.application).schemas.get(TOPIC)
    except NotFoundError:
        return True
    return False
