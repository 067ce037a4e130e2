"""Whether a schema would be accepted by a topic, without adding it."""

from __future__ import annotations

from typing import Final

from geminga.admin.errors import AdminError, ConflictError, NotFoundError
from geminga.app.console.core.addresses import address
from geminga.app.console.reading.choosing import topic_named
from geminga.app.console.tables import Act, Done, Field, Question, Refusal, View

#: That can be typed.
TYPES: Final = (
    "AVRO",
    "JSON",
    "PROTOBUF",
    "PROTOBUF_NATIVE",
    "KEY_VALUE",
    "STRING",
    "INT32",
    "INT64",
    "DOUBLE",
    "BOOLEAN",
)


async def check_question(view: View) -> Question:
    """Of which topic, measured by which version."""
    topic = str(topic_named(view.wanted("topic")).partitioned_topic)
    try:
        found = await view.admin.schemas.get(topic)
    except NotFoundError:
        found = {}
    newest = f" Its newest version is {found['version']}, {found['type']}." if found else " It has none yet."
    kind = view.given("type") or str(found.get("type") or "AVRO")
    return Question(
        f"Ask whether a schema would be accepted by {topic}. Nothing is added.{newest}",
        fields=(
            Field("type", "Type", kind, "select", tuple((each, each) for each in dict.fromkeys((kind, *TYPES)))),
            Field(
                "definition",
                "Definition",
                view.given("definition") or str(found.get("data") or ""),
                "textarea",
                hint="JSON, as the page of the schema shows it; nothing for primitive types.",
                is_required=False,
            ),
        ),
        button="Check",
        chosen={"topic": topic},
        is_harmless=True,
        back=address("/schemas", topic=topic),
    )


async def check(view: View) -> Done:
    """The broker's answer."""
    topic = str(topic_named(view.wanted("topic")).partitioned_topic)
    schema = {"type": view.wanted("type"), "schema": view.given("definition"), "properties": {}}
    try:
        answer = await view.admin.schemas.test_compatibility(topic, schema)
    except ConflictError as error:
        raise Refusal(f"It would be refused: {error.reason.rstrip('.')}.", 409) from error
    except AdminError as error:
        if error.status != 422:
            raise
        raise Refusal(f"It is no schema: {error.reason.rstrip('.')}.", 422) from error
    strategy = answer.get("schemaCompatibilityStrategy")
    if not answer.get("compatibility"):
        raise Refusal(f"It would be refused: it is not compatible by {strategy}.", 409)
    return Done(f"It would be accepted: it is compatible by {strategy}.", address("/schemas", topic=topic))


ACTS: Final = (Act("check-schema", "Check a schema", check_question, check),)
