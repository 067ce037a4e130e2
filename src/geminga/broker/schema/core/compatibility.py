"""Whether a new schema fits those a topic has, by strategy: Pulsar's rules.

``existing`` are the topic's schemas, oldest first, none of them deleted. "Can read" is Avro's schema resolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from geminga.broker.schema.core.avro import AvroDefinitionError, AvroType, canonical_form, parse_definition
from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.core.validity import NO_DEFINITION, json_schema_id
from geminga.wire.pulsar.protobuf_definition import root_message_name
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, key_value_parts

#: Strategies under which a consumer needs to read the newest schema only (Pulsar's checkConsumerCompatibility).
_CONSUMER_READS_NEWEST = frozenset((Strategy.BACKWARD, Strategy.FORWARD, Strategy.FORWARD_TRANSITIVE, Strategy.FULL))


def is_same_schema(one: SchemaInfo, other: SchemaInfo) -> bool:
    """Whether two schemas are one version: same type, and equal definitions (for Avro: whatever their text).

    KeyValue: same parts and encoding, which only the properties tell. Pulsar compares the bytes alone, and so takes
    INT32 for STRING.
    """
    if one.type is not other.type:
        return False
    if one.schema == other.schema and one.type is not SchemaType.KEY_VALUE:
        return True
    identity = identity_of(one)
    return identity is not None and identity == identity_of(other)


def identity_of(info: SchemaInfo) -> bytes | None:
    """32 bytes that are equal for two schemas that are one version; None: it is like no other, not even itself.

    That is a KeyValue whose parts can not be told apart.
    """
    if info.type is SchemaType.KEY_VALUE:
        try:
            parts = key_value_parts(info)
        except ValueError:
            return None
        key, value = identity_of(parts.key), identity_of(parts.value)
        if key is None or value is None:
            return None
        text = parts.encoding.encode() + key + value
    elif info.schema in NO_DEFINITION:
        text = b""
    else:
        text = b"=" + info.schema
        if info.type.is_avro_based:
            try:
                text = b"~" + canonical_form(info.schema).encode()
            except AvroDefinitionError:
                pass
    return sha256(info.type.name.encode() + b"\0" + text).digest()


def obstacles(new: SchemaInfo, existing: Sequence[SchemaInfo], strategy: Strategy) -> Iterator[str]:
    """Why ``new`` may not become a version beside ``existing`` (not empty); all are empty where it may.

    A step for each version that counts, the newest first: there may be very many.
    """
    return _compared(new, existing if strategy.is_transitive else existing[-1:], strategy)


def obstacles_for_consumer(new: SchemaInfo, existing: Sequence[SchemaInfo], strategy: Strategy) -> Iterator[str]:
    """Why a consumer with schema ``new`` may not read a topic with the schemas ``existing`` (not empty), likewise."""
    if strategy in _CONSUMER_READS_NEWEST:
        return _compared(new, existing[-1:], Strategy.BACKWARD)
    return _compared(new, existing, strategy)


def _compared(new: SchemaInfo, existing: Sequence[SchemaInfo], strategy: Strategy) -> Iterator[str]:
    for old in reversed(existing) if strategy is not Strategy.ALWAYS_COMPATIBLE else ():
        if old.type is not new.type:
            yield f"Incompatible schema: exists schema type {old.type.name}, new schema type {new.type.name}"
        elif is_same_schema(old, new):
            yield ""
        else:
            reason = _why_apart(new, old, strategy)
            yield f"Incompatible schema ({strategy.value}): {reason}" if reason else ""


def _why_apart(new: SchemaInfo, old: SchemaInfo, strategy: Strategy) -> str:
    if strategy is Strategy.ALWAYS_COMPATIBLE:
        return ""
    kind = new.type
    if strategy in (Strategy.ALWAYS_INCOMPATIBLE, Strategy.UNDEFINED):
        return "no second schema is allowed"
    try:
        if kind is SchemaType.KEY_VALUE:
            return _key_value_apart(new, old, strategy)
        if kind is SchemaType.PROTOBUF_NATIVE:
            was, becomes = root_message_name(old.schema), root_message_name(new.schema)
            return "" if was == becomes else f"the root message changes from {was} to {becomes}"
        if kind is SchemaType.JSON:
            ids = json_schema_id(old.schema), json_schema_id(new.schema)
            if ids != (None, None):
                # JSON Schema of old clients: only two of them are compared, by their ids.
                return "the ids of the JSON schemas differ" if None not in ids and ids[0] != ids[1] else ""
        if kind.is_avro_based:
            return _avro_apart(parse_definition(new.schema), parse_definition(old.schema), strategy)
    except ValueError as error:
        return str(error)
    return ""


def _avro_apart(new: AvroType, old: AvroType, strategy: Strategy) -> str:
    from geminga.broker.schema.core.avro_resolution import why_unreadable  # loaded by the first that is compared

    if strategy.new_reads_old:
        reason = why_unreadable(new, old)
        if reason:
            return f"the new schema can not read what was written: {reason}"
    if strategy.old_reads_new:
        reason = why_unreadable(old, new)
        if reason:
            return f"what the new schema writes can not be read with the existing one: {reason}"
    return ""


def _key_value_apart(new: SchemaInfo, old: SchemaInfo, strategy: Strategy) -> str:
    now, before = key_value_parts(new), key_value_parts(old)
    for side, one, other in (("key", now.key, before.key), ("value", now.value, before.value)):
        if one.type is not other.type:
            return f"the {side} schema's type changes from {other.type.name} to {one.type.name}"
        if one.schema == other.schema:
            continue
        reason = _why_apart(one, other, strategy)
        if reason:
            return f"{side}: {reason}"
    return ""
