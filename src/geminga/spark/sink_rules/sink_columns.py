"""Which column of a DataFrame becomes what of a message; a column that would be lost is an error.

Types are Spark's, as in the JSON form of a schema: ``"string"``, ``"timestamp"``, or a mapping for nested ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink_rules.record_schema import SparkType
from geminga.spark.sink_rules.sink_options import SinkOptions, ValueSchema

VALUE: Final = "value"
KEY: Final = "__key"
TOPIC: Final = "__topic"
EVENT_TIME: Final = "__eventTime"
PROPERTIES: Final = "__properties"
MESSAGE_PROPERTIES: Final = "__messageProperties"
PARTITION: Final = "__partition"
DELIVER_AT: Final = "__deliverAt"
ORDERING_KEY: Final = "__orderingKey"

_TEXT_OR_BYTES: Final = ("binary", "string")
_TIMES: Final = ("timestamp", "long")
_ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    KEY: _TEXT_OR_BYTES,
    TOPIC: ("string",),
    EVENT_TIME: _TIMES,
    PARTITION: ("integer", "short", "byte", "long"),
    DELIVER_AT: _TIMES,
    ORDERING_KEY: _TEXT_OR_BYTES,
}
#: Columns that reading gives and only a broker can write.
_BROKERS_OWN: Final = (
    "__messageId",
    "__publishTime",
    "__redeliveryCount",
    "__producerName",
    "__sequenceId",
    "__schemaVersion",
)


#: Columns of Spark's Kafka source and sink, and what has their meaning here.
_OF_KAFKA: Final[Mapping[str, str]] = {
    "key": "rename it to __key",
    "headers": "make it __properties, a map<string,string>",
    "topic": "rename it to __topic",
    "partition": "rename it to __partition, or drop it and let the key decide",
    "timestamp": "rename it to __eventTime",
    "timestampType": "drop it",
    "offset": "drop it",
}


class ValueKind(Enum):
    """What the payload is made of."""

    #: The column ``value``, bytes or text.
    BYTES = "bytes"
    #: Columns as the fields of a record.
    COLUMNS = "columns"
    #: The column ``value``, whose fields are those of the record.
    STRUCT = "struct"


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The roles of the columns, by name; an empty name: there is no such column."""

    value_kind: ValueKind
    #: Of the payload: ``value`` alone, or the record's fields in order.
    values: tuple[str, ...]
    #: None: payloads are bytes.
    schema: ValueSchema | None
    key: str = ""
    #: The key is bytes, and travels as base64 where it is no text.
    is_key_binary: bool = False
    topic: str = ""
    event_time: str = ""
    #: Timestamps count microseconds, plain numbers milliseconds.
    is_event_time_micros: bool = False
    properties: str = ""
    partition: str = ""
    deliver_at: str = ""
    is_deliver_at_micros: bool = False
    ordering_key: str = ""


def sink_columns(fields: Sequence[tuple[str, SparkType]], options: SinkOptions) -> SinkColumns:
    """The roles of a DataFrame's columns, given as (name, type); raises OptionError."""
    types = dict(fields)
    if len(types) < len(fields):
        raise OptionError(f"columns {', '.join(name for name, _ in fields)}: one name is there twice")
    for name, kind in fields:
        _check_metadata(name, kind)
    if PROPERTIES in types and MESSAGE_PROPERTIES in types:
        raise OptionError(f"columns {PROPERTIES} and {MESSAGE_PROPERTIES} are two names of the same: drop one")
    if not options.topic and TOPIC not in types:
        raise OptionError(f"no topic: give the option topic or a column {TOPIC}")
    values = tuple(name for name, _ in fields if not name.startswith("__"))
    value_kind, schema = _value(values, types, options)
    for name in options.ordered_by:
        if name not in types:
            raise OptionError(f"option orderedBy names {name}, and the columns are {', '.join(types)}")
        if isinstance(types[name], Mapping):
            raise OptionError(f"option orderedBy names {name}, which has no order: only plain types have")
    return SinkColumns(
        value_kind=value_kind,
        values=values,
        schema=schema,
        key=KEY if KEY in types else "",
        is_key_binary=types.get(KEY) == "binary",
        topic=TOPIC if TOPIC in types and not options.topic else "",
        event_time=EVENT_TIME if EVENT_TIME in types else "",
        is_event_time_micros=types.get(EVENT_TIME) == "timestamp",
        properties=next((name for name in (PROPERTIES, MESSAGE_PROPERTIES) if name in types), ""),
        partition=PARTITION if PARTITION in types else "",
        deliver_at=DELIVER_AT if DELIVER_AT in types else "",
        is_deliver_at_micros=types.get(DELIVER_AT) == "timestamp",
        ordering_key=ORDERING_KEY if ORDERING_KEY in types else "",
    )


def _check_metadata(name: str, kind: SparkType) -> None:
    if not name.startswith("__"):
        return
    if name in _BROKERS_OWN:
        raise OptionError(f"column {name} is the broker's to write: leave it out with .drop({name!r})")
    if name in (PROPERTIES, MESSAGE_PROPERTIES):
        is_map = isinstance(kind, Mapping) and kind.get("type") == "map"
        if not (is_map and isinstance(kind, Mapping) and kind["keyType"] == kind["valueType"] == "string"):
            raise OptionError(f"column {name} is {type_name(kind)}: expected map<string,string>")
        return
    allowed = _ALLOWED.get(name)
    if allowed is None:
        known = ", ".join((*_ALLOWED, PROPERTIES))
        raise OptionError(f"column {name} is not known to the sink; names with two underscores are {known}")
    if kind not in allowed:
        raise OptionError(f"column {name} is {type_name(kind)}: expected {' or '.join(allowed)}")


def _value(
    values: tuple[str, ...], types: Mapping[str, SparkType], options: SinkOptions
) -> tuple[ValueKind, ValueSchema | None]:
    if not values:
        raise OptionError("no payload: a column named value, or columns that become a record, must be there")
    if values != (VALUE,):
        _check_kafka_shape(values, types, options)
        if len(values) == 1 and options.value_schema is None:
            raise OptionError(
                f"column {values[0]} is neither value nor known: name it value, "
                "or say schemaType to make it a record with one field"
            )
        return ValueKind.COLUMNS, options.value_schema or ValueSchema.AVRO
    kind = types[VALUE]
    if isinstance(kind, Mapping) and kind.get("type") == "struct":
        return ValueKind.STRUCT, options.value_schema or ValueSchema.AVRO
    if kind not in _TEXT_OR_BYTES:
        raise OptionError(f"column value is {type_name(kind)}: expected binary, string or a struct; cast it")
    if options.value_schema is not None:
        raise OptionError(f"option schemaType={options.value_schema.value}: a value of {kind} needs no schema")
    return ValueKind.BYTES, None


def _check_kafka_shape(values: tuple[str, ...], types: Mapping[str, SparkType], options: SinkOptions) -> None:
    """A value of bytes or text beside nothing but Kafka's columns is no record, unless the options say so."""
    others = [name for name in values if name != VALUE]
    if (
        options.value_schema is None
        and types.get(VALUE) in _TEXT_OR_BYTES
        and all(name in _OF_KAFKA for name in others)
    ):
        advice = "; ".join(f"{name}: {_OF_KAFKA[name]}" for name in others)
        raise OptionError(
            f"columns {', '.join(values)} are those of Spark's Kafka sink, which have other names here. {advice}. "
            "Or set schemaType=avro or json, if they are the fields of a record"
        )


def type_name(kind: SparkType) -> str:
    """A type for messages."""
    return kind if isinstance(kind, str) else str(kind.get("type", "?"))
