"""The events of ``__change_events``: Avro records with the names of Pulsar's classes.

See docs/formats/topic-policies.md.

Records are written with :data:`SCHEMA` and read with the schema they were written with, whoever wrote them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from geminga.broker.resources.documents import Document, Json
from geminga.model.errors import CorruptionError
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from fastavro.types import Schema

_EVENTS: Final = "org.apache.pulsar.common.events"
_DATA: Final = "org.apache.pulsar.common.policies.data"

#: Fields of TopicPolicies that hold one number or flag -> their Avro type.
_SCALARS: Final = {
    "deduplicationEnabled": "boolean",
    "messageTTLInSeconds": "int",
    "maxProducerPerTopic": "int",
    "maxConsumerPerTopic": "int",
    "maxConsumersPerSubscription": "int",
    "maxSubscriptionsPerTopic": "int",
    "maxUnackedMessagesOnConsumer": "int",
    "maxUnackedMessagesOnSubscription": "int",
    "maxMessageSize": "int",
    "deduplicationSnapshotIntervalSeconds": "int",
    "delayedDeliveryEnabled": "boolean",
    "delayedDeliveryTickTimeMillis": "long",
    "compactionThreshold": "long",
}


def _optional(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": ["null", kind], "default": None}


def _record(namespace: str, name: str, fields: list[dict[str, object]]) -> dict[str, object]:
    return {"type": "record", "namespace": namespace, "name": name, "fields": fields}


_QUOTA: Final = _record(
    f"{_DATA}.impl",
    "BacklogQuotaImpl",
    [
        _optional("limit", "long"),
        _optional("limitSize", "long"),
        _optional("limitTime", "int"),
        _optional(
            "policy",
            {
                "type": "enum",
                "namespace": f"{_DATA}.BacklogQuota",
                "name": "RetentionPolicy",
                "symbols": ["producer_request_hold", "producer_exception", "consumer_backlog_eviction"],
            },
        ),
    ],
)
_RETENTION: Final = _record(
    _DATA,
    "RetentionPolicies",
    [{"name": "retentionTimeInMinutes", "type": "int"}, {"name": "retentionSizeInMB", "type": "long"}],
)
#: A Java enum within a class, as Avro names it.
_SUBSCRIPTION_TYPE: Final = {
    "type": "enum",
    "namespace": "org.apache.pulsar.common.api.proto.CommandSubscribe",
    "name": "SubType",
    "symbols": ["Exclusive", "Shared", "Failover", "Key_Shared"],
}
_POLICIES: Final = _record(
    _DATA,
    "TopicPolicies",
    [
        _optional("backLogQuotaMap", {"type": "map", "values": _QUOTA}),
        _optional(
            "subscriptionTypesEnabled",
            {"type": "array", "items": _SUBSCRIPTION_TYPE, "java-class": "java.util.List"},
        ),
        _optional("retentionPolicies", _RETENTION),
        *(_optional(name, kind) for name, kind in _SCALARS.items()),
    ],
)
_TOPIC_EVENT: Final = _record(
    _EVENTS,
    "TopicPoliciesEvent",
    [
        *(_optional(name, "string") for name in ("domain", "tenant", "namespace", "topic")),
        _optional("policies", _POLICIES),
    ],
)


def _enum(name: str, *symbols: str) -> dict[str, object]:
    return {"type": "enum", "namespace": _EVENTS, "name": name, "symbols": list(symbols)}


#: The Avro schema of an event, as JSON text.
SCHEMA: Final = json.dumps(
    _record(
        _EVENTS,
        "PulsarEvent",
        [
            _optional("eventType", _enum("EventType", "TOPIC_POLICY")),
            _optional("actionType", _enum("ActionType", "INSERT", "DELETE", "UPDATE", "NONE")),
            _optional("topicPoliciesEvent", _TOPIC_EVENT),
        ],
    ),
    separators=(",", ":"),
).encode()


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
    fastavro.schemaless_writer(buffer, parse(SCHEMA), event)
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
    return name, {key: value for key, value in policies.items() if value not in (None, {}, [])}
