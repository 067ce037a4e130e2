"""Pages of schemas, and whether one would be accepted."""

from __future__ import annotations

import json

from support.worlds.broker_world import TOPIC
from support.worlds.console_pages import Visiting, visit
from support.worlds.handles_world import sim_admin


def record(*fields: dict[str, object]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": fields})


OLD = record({"name": "a", "type": "int"})
NEW = record({"name": "a", "type": "int"}, {"name": "b", "type": "string", "default": "x"})


async def _upload(visitor: Visiting, definition: str) -> None:
    admin = sim_admin(visitor.application)
    await admin.schemas.upload(TOPIC, {"type": "AVRO", "schema": definition, "properties": {}})


def test_versions_are_listed_read_and_compared() -> None:
    async def story(visitor: Visiting) -> None:
        assert "The topic has no schema: its messages are bytes." in await visitor.page("/schemas", topic=TOPIC)
        await _upload(visitor, OLD)
        await _upload(visitor, NEW)
        page = await visitor.page("/schemas", topic=TOPIC)
        assert "Version 1 (AVRO)" in page
        assert "compatible by FULL" in page
        assert "Version 0 (AVRO)" in await visitor.page("/schemas", topic=TOPIC, version=0)
        compared = await visitor.page("/schemas", topic=TOPIC, version=1, before=0)
        assert 'added b - string = "x"' in compared
        missing = await visitor.get("/schemas", topic=TOPIC, version=7)
        assert (missing.status, "no version 7" in missing.text) == (404, True)
        await visitor.page("/schemas")

    visit(story)


def test_schema_is_checked_without_being_added() -> None:
    async def story(visitor: Visiting) -> None:
        await _upload(visitor, OLD)
        accepted = await visitor.act("check-schema", {"definition": NEW}, topic=TOPIC)
        assert "It would be accepted: it is compatible by FULL." in accepted.text
        other = record({"name": "a", "type": "string"})
        refused = await visitor.act("check-schema", {"definition": other}, topic=TOPIC)
        assert (refused.status, "It would be refused" in refused.text) == (409, True)
        damaged = await visitor.act("check-schema", {"definition": "{"}, topic=TOPIC)
        assert (damaged.status, "It is no schema" in damaged.text) == (422, True)
        found = await sim_admin(visitor.application).schemas.list(TOPIC)
        assert len(found["getSchemaResponses"]) == 1

    visit(story)
