"""The events of ``__change_events``: Avro records with the names of Pulsar's classes.

See docs/formats/topic-policies.md.

Records are written with :data:`SCHEMA` and read with the schema they were written with, whoever wrote them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from geminga.broker.policies.core.avro_types import array, enum, fitted, optional, record, written
from geminga.broker.policies.core.rows import ROWS
from geminga.broker.resources.documents import Document, Json
from geminga.model.errors import CorruptionError
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from fastavro.types import Schema

_EVENTS: Final = "org.apache.pulsar.common.events"
_TEXT: Final = optional("string")
_POLICIES: Final = record(
    "org.apache.pulsar.common.policies.data.TopicPolicies",
    {name: kind for row in ROWS if row.topic is not None for name, kind in row.topic.avro.items()},
)
_TOPIC_EVENT: Final = record(
    f"{_EVENTS}.TopicPoliciesEvent",
    {"domain": _TEXT, "tenant": _TEXT, "namespace": _TEXT, "topic": _TEXT, "policies": optional(_POLICIES)},
)
_SNAPSHOTS: Final = ("", "_SEGMENTS", "_INDEXES")
_EVENT: Final = record(
    f"{_EVENTS}.PulsarEvent",
    {
        "eventType": optional(
            enum(
                f"{_EVENTS}.EventType",
                "TOPIC_POLICY",
                *(f"TRANSACTION_BUFFER_SNAPSHOT{which}" for which in _SNAPSHOTS),
            )
        ),
        "actionType": optional(enum(f"{_EVENTS}.ActionType", "INSERT", "DELETE", "UPDATE", "NONE")),
        "replicateTo": optional(array("string", "java.util.HashSet")),
        "topicPoliciesEvent": optional(_TOPIC_EVENT),
    },
)

#: The Avro schema of an event as JSON text: byte for byte that of Pulsar 4.2.4.
SCHEMA: Final = json.dumps(written(_EVENT), separators=(",", ":")).encode()


def encode_update(name: TopicName, policies: Mapping[str, Json]) -> bytes:
    """The event that ``policies`` are now all that the topic has of its own."""
    import fastavro

    event = {
        "eventType": "TOPIC_POLICY",
        "actionType": "UPDATE",
        "topicPoliciesEvent": {
            "domain": name.domain,
            "tenant": name.tenant,
            "namespace": name.namespace_name,
            "topic": name.local_name,
            "policies": dict(policies),
        },
    }
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, parse(SCHEMA), fitted(event, _EVENT))
    return buffer.getvalue()


def parse(schema: bytes) -> Schema:
    """A schema, ready to read and write with; raises CorruptionError."""
    import fastavro

    try:
        return fastavro.parse_schema(json.loads(schema))
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        raise CorruptionError(f"the schema of a policy event is none: {error}") from error


def decode(payload: bytes, schema: Schema) -> tuple[TopicName, Document | None] | None:
    """(topic, its policies; None: it has none any more); None for an event of another kind. Raises CorruptionError."""
    import fastavro

    try:
        event = cast("Document", fastavro.schemaless_reader(io.BytesIO(payload), schema, None))
    except (EOFError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise CorruptionError(f"a policy event can not be read: {error}") from error
    found = event.get("topicPoliciesEvent")
    if event.get("eventType") != "TOPIC_POLICY" or not isinstance(found, dict):
        return None
    name = TopicName.parse(
        f"{found.get('domain')}://{found.get('tenant')}/{found.get('namespace')}/{found.get('topic')}"
    )
    policies = found.get("policies")
    if event.get("actionType") == "DELETE" or not isinstance(policies, dict):
        return name, None
    return name, {key: value for key, value in policies.items() if value is not None}
