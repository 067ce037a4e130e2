"""The events of ``__change_events``: Avro records with the names of Pulsar's classes.

See docs/formats/topic-policies.md.

Records are written with :data:`SCHEMA` and read with the schema they were written with, whoever wrote them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from geminga.broker.policies.core.avro_types import (
    AvroType,
    array,
    enum,
    fitted,
    optional,
    parsed,
    record,
    united,
    written,
)
from geminga.broker.policies.core.rows import ROWS
from geminga.broker.resources.documents import Document, Json
from geminga.model.errors import CorruptionError
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from fastavro.types import Schema

#: Begins the keys of policies for all clusters, as in Pulsar.
GLOBAL_PREFIX: Final = "__G__"
#: Says in policies that they are for all clusters.
IS_GLOBAL: Final = "isGlobal"
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


class EventSchema(NamedTuple):
    """A schema that events are written with."""

    #: As the registry has it.
    definition: bytes
    kind: AvroType
    #: Ready to read and write with.
    ready: Schema


class Kept(NamedTuple):
    """An event as it was read, and the schema it was written with: what we do not know of it is written again."""

    event: Document
    schema: EventSchema


class PolicyChange(NamedTuple):
    """What an event says."""

    name: TopicName
    #: Of all clusters, or of this one.
    is_global: bool
    #: All policies that the topic has there now; empty: none any more.
    policies: Document
    kept: Kept | None


def schema_of(definition: bytes) -> EventSchema:
    """A schema of the registry; raises CorruptionError."""
    try:
        # What a type means beside its bytes is nothing to us, and would change the values.
        document = _plain(json.loads(definition))
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"the schema of a policy event is none: {error}") from error
    return EventSchema(definition, parsed(document), parse(json.dumps(document).encode()))


def _plain(kind: Json) -> Json:
    if isinstance(kind, list):
        return [_plain(member) for member in kind]
    return {key: _plain(one) for key, one in kind.items() if key != "logicalType"} if isinstance(kind, dict) else kind


@cache
def own_schema() -> EventSchema:
    """The one that new events are written with."""
    return schema_of(SCHEMA)


def schema_to_write(kept: Kept | None) -> EventSchema:
    """What an event is written with again: all that it held fits in, and all that we may set."""
    if kept is None:
        return own_schema()
    theirs = kept.schema
    both = united(_EVENT, theirs.kind)
    # The writer's own, byte for byte, if nothing is missing in it: the registry has it already.
    return theirs if written(both) == written(theirs.kind) else schema_of(json.dumps(written(both)).encode())


def encode_update(
    name: TopicName,
    policies: Mapping[str, Json],
    kept: Kept | None = None,
    schema: EventSchema | None = None,
    clusters: Sequence[str] = (),
) -> bytes:
    """The event that ``policies`` are now all that the topic has; ``kept``: the one before. Raises CorruptionError.

    ``clusters``: those that it is for; none: any.
    """
    import fastavro

    before = kept.event if kept is not None else {}
    of_topic = before.get("topicPoliciesEvent")
    event = {
        **before,
        "eventType": "TOPIC_POLICY",
        "actionType": "UPDATE",
        "replicateTo": [*clusters] or None,
        "topicPoliciesEvent": {
            **(of_topic if isinstance(of_topic, dict) else {}),
            "domain": name.domain,
            "tenant": name.tenant,
            "namespace": name.namespace_name,
            "topic": name.local_name,
            "policies": dict(policies),
        },
    }
    schema = schema or own_schema()
    buffer = io.BytesIO()
    try:
        fastavro.schemaless_writer(buffer, schema.ready, fitted(event, schema.kind))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise CorruptionError(f"policies of {name} do not fit their schema: {error}") from error
    return buffer.getvalue()


def event_key(name: TopicName, *, is_global: bool) -> str:
    """The key of a topic's events: those for all clusters have keys of their own."""
    return f"{GLOBAL_PREFIX if is_global else ''}{name}"


def clusters_of(kept: Kept | None) -> list[str]:
    """The clusters that an event is for, as its message says, too; none: any. (Pulsar keeps a cluster's own there.)"""
    clusters = kept.event.get("replicateTo") if kept is not None else None
    return [each for each in clusters if isinstance(each, str)] if isinstance(clusters, list) else []


def is_for_all(key: str) -> bool:
    """Whether an event with this key goes to other clusters: policies of one cluster stay in it, whoever wrote them."""
    return key.startswith(GLOBAL_PREFIX)


def removed(key: str) -> PolicyChange:
    """What an event without a payload says. Raises InvalidTopicNameError."""
    return PolicyChange(TopicName.parse(key.removeprefix(GLOBAL_PREFIX)), is_for_all(key), {}, None)


def parse(schema: bytes) -> Schema:
    """A schema, ready to read and write with; raises CorruptionError."""
    import fastavro

    try:
        return fastavro.parse_schema(json.loads(schema))
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        raise CorruptionError(f"the schema of a policy event is none: {error}") from error


def decode(payload: bytes, schema: EventSchema) -> PolicyChange | None:
    """What an event says; None for one of another kind. Raises CorruptionError."""
    import fastavro

    try:
        event = cast("Document", fastavro.schemaless_reader(io.BytesIO(payload), schema.ready, None))
    except (EOFError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise CorruptionError(f"a policy event can not be read: {error}") from error
    found = event.get("topicPoliciesEvent")
    if event.get("eventType") != "TOPIC_POLICY" or not isinstance(found, dict):
        return None
    name = TopicName.parse(
        f"{found.get('domain')}://{found.get('tenant')}/{found.get('namespace')}/{found.get('topic')}"
    )
    policies = found.get("policies")
    given = policies if isinstance(policies, dict) else {}
    is_global = given.get(IS_GLOBAL) is True
    if event.get("actionType") == "DELETE" or not given:
        return PolicyChange(name, is_global, {}, None)
    document: Document = {key: value for key, value in given.items() if value is not None}
    return PolicyChange(name, is_global, document, Kept(event, schema))
