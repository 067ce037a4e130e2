"""A message is published to try something out; dead letters go back to where they came from."""

from __future__ import annotations

from typing import Any, Final

from geminga.admin.errors import NotFoundError
from geminga.app.console.core.addresses import address
from geminga.app.console.core.positions import start_of
from geminga.app.console.core.sought import properties_of
from geminga.app.console.core.words import plural
from geminga.app.console.reading.browsing import partitions_of
from geminga.app.console.reading.choosing import topic_named
from geminga.app.console.reading.dead_letters import letters_waiting, targets_of
from geminga.app.console.tables import Act, Done, Field, Question, Refusal, View

#: Entries that one act sends back: it has the time of a page.
SENT_BACK_MAX: Final = 1_000
#: Milliseconds without a letter until it ends.
QUIET_MS: Final = 1_500
#: Targets that the question names.
NAMED_MAX: Final = 5
#: Of a topic without a schema: its payloads stay bytes, and it gets none.
_BYTES: Final = {"name": "", "type": "BYTES", "schema": "", "properties": {}}
#: What the value of a schema is typed as, where it is not plain text.
_TYPED_AS: Final = {
    "AVRO": "as JSON",
    "JSON": "as JSON",
    "BOOLEAN": "true or false",
    "BYTES": "as text",
    "STRING": "as text",
}


async def publish_question(view: View) -> Question:
    """To which topic, by which schema."""
    topic = str(topic_named(view.wanted("topic")))
    version, kind = await _schema(view, topic)
    typed = _TYPED_AS.get(kind, f"as a text that is a {kind}")
    by = f"Its value is typed {typed} and checked against version {version} of its schema, {kind}."
    none = "The topic has no schema: the value is stored as it is typed."
    made = "" if await _is_there(view, topic) else " The topic is not there: it is made, where that is allowed."
    return Question(
        f"Publish one message to {topic}.{made} {none if version is None else by}",
        fields=(
            Field("value", "Value", view.given("value"), "textarea", is_required=False),
            Field("key", "Key", view.given("key"), is_required=False),
            Field(
                "properties", "Properties", view.given("properties"), "textarea", (), "name=value, one a line.", False
            ),
            Field("encoding", "The value is typed as", "text", "select", (("text", "text"), ("base64", "base64"))),
        ),
        button="Publish",
        chosen={"topic": topic},
        is_harmless=True,
        back=address("/messages", topic=topic),
    )


async def publish(view: View) -> Done:
    """As REST publishes: the broker checks the value, and who may produce. Raises Refusal where it stores nothing."""
    topic = str(topic_named(view.wanted("topic")))
    version, _ = await _schema(view, topic)
    message: dict[str, Any] = {"payload": view.given("value"), "encoding": view.given("encoding") or "text"}
    if view.given("key"):
        message["key"] = view.given("key")
    if properties := properties_of(view.given("properties")):
        message["properties"] = properties
    schema = {"valueSchema": _BYTES} if version is None else {"schemaVersion": version}
    answer = await view.admin.messages.publish(topic, {"messages": [message], "producerName": "console", **schema})
    result = answer["messagePublishResults"][0]
    if result.get("errorCode"):
        raise Refusal(
            f"It was not stored: {str(result.get('errorMsg') or 'the broker does not say why').rstrip('.')}.", 409
        )
    return Done(f"Message {result['messageId']} is stored.", _stored(topic, str(result["messageId"])))


def _stored(topic: str, message_id: str) -> str:
    """Where it is seen: its id is ``ledger:entry:partition``."""
    partition = message_id.split(":")[2] if message_id.count(":") >= 2 else "-1"
    if partition != "-1" and not topic_named(topic).is_partition:
        topic = f"{topic}-partition-{partition}"
    return address("/messages", topic=topic, start=start_of(message_id).place)


async def _schema(view: View, topic: str) -> tuple[int | None, str]:
    """Version and type of the newest; None: there is none. Raises AdminError."""
    try:
        found = await view.admin.schemas.get(topic)
    except NotFoundError:
        return None, ""
    return int(found["version"]), str(found["type"])


async def _is_there(view: View, topic: str) -> bool:
    try:
        await partitions_of(view.admin, topic)
    except NotFoundError:
        return False
    return True


async def redrive_question(view: View) -> Question:
    """How many wait, and where they go."""
    topic = str(topic_named(view.wanted("topic")).partitioned_topic)
    waiting = await letters_waiting(view.admin, topic)
    most = SENT_BACK_MAX if waiting is None else min(waiting, SENT_BACK_MAX)
    back = address("/dead-letters/topic", topic=topic)
    if waiting == 0:
        return Question(f"No letter of {topic} waits to be sent back.", back=back, obstacle="There is nothing to do.")
    targets = await targets_of(view.admin, topic)
    named = ", ".join(each for each in targets[:NAMED_MAX] if each) or "none that is allowed"
    more = " and others" if len(targets) > NAMED_MAX else ""
    much = "it has too many partitions to count them"
    if waiting is not None:
        much = f"{plural(waiting, 'entry', 'entries')} {'waits' if waiting == 1 else 'wait'}"
    return Question(
        f"Send letters of {topic} back to where they came from, oldest first: {much}. The newest of them came from "
        f"{named}{more}. Those that name no origin in the namespace go to {topic}-refused.",
        fields=(
            Field("most", "How many", str(most), "number", hint=f"At most {SENT_BACK_MAX:,} at a time."),
            Field(
                "at_least_once",
                "Also without transactions",
                "",
                "checkbox",
                hint="Where the cluster has none, a letter may be sent back twice when this is cut off.",
                is_required=False,
            ),
        ),
        button="Send back",
        chosen={"topic": topic},
        back=back,
    )


async def redrive(view: View) -> Done:
    """Each once, in transactions; raises Refusal where there are none and the visitor allows nothing else."""
    from geminga.app.handles.core.letters import encrypted_told, held_told
    from geminga.app.handles.redrive import has_transactions
    from geminga.app.handles.redrive import redrive as send_back

    topic = str(topic_named(view.wanted("topic")).partitioned_topic)
    most = view.number("most", 1, least=1, most=SENT_BACK_MAX)
    async with view.client() as client:
        is_exact = await has_transactions(client)
        if not is_exact and not view.given("at_least_once"):
            raise Refusal(
                "The cluster has no transactions: say that a letter may be sent back twice, and try again.", 409
            )
        done = await send_back(client, topic, is_exact=is_exact, quiet_ms=QUIET_MS, most=most)
    refused = f", {plural(done.refused, 'letter')} to {topic}-refused" if done.refused else ""
    left = f"{encrypted_told(done.encrypted)}{held_told(done.held, done.why)}"
    told = f"{plural(done.sent, 'letter')} sent back{refused}{left}."
    return Done(told, address("/dead-letters/topic", topic=topic))


ACTS: Final = (
    Act("publish", "Publish a message", publish_question, publish),
    Act("redrive", "Send dead letters back", redrive_question, redrive),
)
