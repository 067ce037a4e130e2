"""The eight strategies, and what they mean for each type of schema."""

from __future__ import annotations

import json

import pytest

from geminga.broker.schema.core.compatibility import is_same_schema
from geminga.broker.schema.core.strategy import Strategy
from geminga.wire.pulsar.schema_info import INLINE, SEPARATED, KeyValueParts, SchemaInfo, SchemaType, key_value_schema
from support.worlds.schemas import (
    B_OPTIONAL,
    C_OPTIONAL,
    A,
    B,
    native_definition,
    record_info,
    why_incompatible,
    why_unfit_for_consumer,
)

BASE = record_info(A)
#: New schema -> (can read BASE, can be read with BASE).
CHANGES = {
    "optional field added": (record_info(A, B_OPTIONAL), True, True),
    "required field added": (record_info(A, B), False, True),
    "required field removed": (record_info(C_OPTIONAL), True, False),
    "type changed": (record_info({"name": "a", "type": "string"}), False, False),
    "type widened": (record_info({"name": "a", "type": "long"}), True, False),
}
STRING, INT32 = SchemaInfo("", SchemaType.STRING), SchemaInfo("", SchemaType.INT32)


def fits(new: SchemaInfo, existing: list[SchemaInfo], strategy: Strategy) -> bool:
    return not why_incompatible(new, existing, strategy)


@pytest.mark.parametrize("name", CHANGES)
def test_strategies_ask_for_their_direction(name: str) -> None:
    new, reads, is_read = CHANGES[name]
    for kind in ("", "_TRANSITIVE"):
        assert fits(new, [BASE], Strategy("BACKWARD" + kind)) == reads
        assert fits(new, [BASE], Strategy("FORWARD" + kind)) == is_read
        assert fits(new, [BASE], Strategy("FULL" + kind)) == (reads and is_read)
    assert fits(new, [BASE], Strategy.ALWAYS_COMPATIBLE)
    assert not fits(new, [BASE], Strategy.ALWAYS_INCOMPATIBLE)


def test_only_transitive_strategies_look_behind_the_newest() -> None:
    first = record_info(A, B)
    newest = record_info(A)
    new = record_info(A, {"name": "b", "type": "string", "default": ""})
    for name in ("BACKWARD", "FORWARD", "FULL"):
        assert fits(new, [first, newest], Strategy(name))
        assert not fits(new, [first, newest], Strategy(f"{name}_TRANSITIVE"))


def test_an_equal_schema_always_fits() -> None:
    for strategy in Strategy:
        assert fits(BASE, [BASE], strategy)


def test_another_type_never_fits_but_for_always_compatible() -> None:
    for strategy in Strategy:
        is_free = strategy is Strategy.ALWAYS_COMPATIBLE
        assert fits(INT32, [STRING], strategy) == is_free
        assert fits(BASE, [STRING], strategy) == is_free
        assert fits(record_info(A, kind=SchemaType.JSON), [BASE], strategy) == is_free


def test_reasons_name_strategy_and_place() -> None:
    new = CHANGES["required field added"][0]
    reason = why_incompatible(new, [BASE], Strategy.BACKWARD)
    assert "BACKWARD" in reason
    assert "field b" in reason
    assert "AVRO, new schema type STRING" in why_incompatible(STRING, [BASE], Strategy.FULL)


@pytest.mark.parametrize("kind", [SchemaType.JSON, SchemaType.PROTOBUF])
def test_json_and_protobuf_follow_record_info(kind: SchemaType) -> None:
    assert fits(record_info(A, B_OPTIONAL, kind=kind), [record_info(A, kind=kind)], Strategy.FULL)
    assert not fits(record_info(A, B, kind=kind), [record_info(A, kind=kind)], Strategy.FULL)


def test_json_schema_of_old_clients_may_be_replaced_and_agrees_by_id() -> None:
    def old(name: str, extra: str) -> SchemaInfo:
        return SchemaInfo("", SchemaType.JSON, json.dumps({"type": "object", "id": name, "x": extra}).encode())

    json_avro = record_info(A, kind=SchemaType.JSON)
    assert fits(json_avro, [old("u", "")], Strategy.FULL)
    assert fits(old("u", ""), [json_avro], Strategy.FULL)
    assert fits(old("u", "1"), [old("u", "2")], Strategy.FULL)
    assert not fits(old("u", ""), [old("v", "")], Strategy.FULL)


def key_value(key: SchemaInfo, value: SchemaInfo) -> SchemaInfo:
    return key_value_schema("", KeyValueParts(key, value, SEPARATED))


def test_key_value_compares_both_parts() -> None:
    wider = record_info(A, B_OPTIONAL)
    narrower = record_info(A, B)
    assert fits(key_value(STRING, wider), [key_value(STRING, BASE)], Strategy.FULL)
    assert fits(key_value(wider, STRING), [key_value(BASE, STRING)], Strategy.FULL)
    assert "value: " in why_incompatible(key_value(STRING, narrower), [key_value(STRING, BASE)], Strategy.FULL)
    assert "key: " in why_incompatible(key_value(narrower, STRING), [key_value(BASE, STRING)], Strategy.FULL)
    assert "STRING to INT32" in why_incompatible(key_value(INT32, BASE), [key_value(STRING, BASE)], Strategy.FULL)
    assert not fits(key_value(STRING, wider), [key_value(STRING, BASE)], Strategy.ALWAYS_INCOMPATIBLE)


def test_protobuf_native_keeps_its_root_message() -> None:
    def native(root: str) -> SchemaInfo:
        return SchemaInfo("", SchemaType.PROTOBUF_NATIVE, native_definition(root))

    changed = SchemaInfo("", SchemaType.PROTOBUF_NATIVE, native_definition("p.Outer") + b" ")
    assert fits(changed, [native("p.Outer")], Strategy.FULL)
    assert "root message" in why_incompatible(native("p.Outer.Inner"), [native("p.Outer")], Strategy.BACKWARD)


def test_a_stored_definition_that_does_not_parse_is_incompatible() -> None:
    broken = SchemaInfo("", SchemaType.AVRO, b"{")
    assert not fits(BASE, [broken], Strategy.FULL)
    assert not is_same_schema(BASE, broken)


@pytest.mark.parametrize("strategy", Strategy)
def test_consumers_must_read_what_is_there(strategy: Strategy) -> None:
    newer = record_info(A, B)
    reason = why_unfit_for_consumer(newer, [BASE], strategy)
    assert bool(reason) == (strategy is not Strategy.ALWAYS_COMPATIBLE)
    assert not why_unfit_for_consumer(BASE, [BASE], strategy)


def test_a_consumer_may_be_older_unless_the_strategy_is_transitive_both_ways() -> None:
    """Reading the newest schema is enough; BACKWARD_TRANSITIVE and FULL_TRANSITIVE ask for all."""
    existing = [record_info({"name": "a", "type": "string"}), BASE]
    for name in ("BACKWARD", "FORWARD", "FORWARD_TRANSITIVE", "FULL"):
        assert not why_unfit_for_consumer(record_info({"name": "a", "type": "long"}), existing, Strategy(name))
    for name in ("BACKWARD_TRANSITIVE", "FULL_TRANSITIVE"):
        assert why_unfit_for_consumer(record_info({"name": "a", "type": "long"}), existing, Strategy(name))


def test_the_same_schema_is_known_whatever_its_text() -> None:
    spaced = SchemaInfo("x", SchemaType.AVRO, json.dumps(json.loads(BASE.schema), indent=2).encode(), {"p": "q"})
    assert is_same_schema(spaced, BASE)
    assert not is_same_schema(SchemaInfo("", SchemaType.JSON, BASE.schema), BASE)
    assert not is_same_schema(record_info(A, B), BASE)
    assert is_same_schema(SchemaInfo("", SchemaType.STRING, b"null"), STRING)


def test_the_same_key_value_schema_has_the_same_parts_and_encoding() -> None:
    spaced = SchemaInfo("", SchemaType.AVRO, BASE.schema + b" ")
    assert is_same_schema(key_value(STRING, BASE), key_value(STRING, spaced))
    # Their definitions are equal byte by byte.
    assert not is_same_schema(key_value(STRING, BASE), key_value(INT32, BASE))
    inline = key_value_schema("", KeyValueParts(STRING, BASE, INLINE))
    assert not is_same_schema(key_value(STRING, BASE), inline)
    assert fits(inline, [key_value(STRING, BASE)], Strategy.FULL)
    assert not is_same_schema(inline, SchemaInfo("", SchemaType.KEY_VALUE, b"?"))
