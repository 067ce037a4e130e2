"""What is remembered of definitions is what they have in common, and has a limit."""

from __future__ import annotations

import pytest

from geminga.broker.schema.core import identities
from geminga.broker.schema.core.compatibility import identity_of, is_same_schema
from geminga.broker.schema.core.identities import REMEMBERED_ENTRY_BYTES, Identities
from geminga.wire.pulsar.schema_info import INLINE, KeyValueParts, SchemaInfo, SchemaType, key_value_schema
from support.house.python_calls import counted_calls
from support.worlds.schemas import B_OPTIONAL, A, record_info

ONE = record_info(A)
SCHEMAS = (
    ONE,
    SchemaInfo("x", SchemaType.AVRO, ONE.schema + b" ", {"p": "q"}),
    SchemaInfo("", SchemaType.JSON, ONE.schema),
    record_info(A, B_OPTIONAL),
    SchemaInfo("", SchemaType.AVRO, b"{"),
    SchemaInfo("", SchemaType.AVRO, b"{ "),
    SchemaInfo("", SchemaType.STRING),
    SchemaInfo("", SchemaType.STRING, b"null"),
    SchemaInfo("", SchemaType.INT32),
    key_value_schema("", KeyValueParts(SchemaInfo("", SchemaType.STRING), ONE, INLINE)),
    key_value_schema("", KeyValueParts(SchemaInfo("", SchemaType.INT32), ONE, INLINE)),
)


def test_schemas_have_one_identity_if_they_are_the_same() -> None:
    known = Identities()
    for _ in range(2):
        for one in SCHEMAS:
            for other in SCHEMAS:
                assert (known.of(one) == known.of(other)) == is_same_schema(one, other)
    broken = SchemaInfo("", SchemaType.KEY_VALUE, b"?")
    assert known.of(broken) is identity_of(broken) is None
    assert not is_same_schema(broken, broken)


def test_a_definition_is_parsed_once_and_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    size = REMEMBERED_ENTRY_BYTES + len(ONE.schema)
    monkeypatch.setattr(identities, "REMEMBERED_BYTES_MAX", 3 * size)
    known = Identities()

    def calls_for(info: SchemaInfo) -> int:
        with counted_calls() as calls:
            assert known.of(info) == identity
            return calls()

    identity = identity_of(ONE)
    Identities().of(ONE)  # what the first parse of a process makes for all others is no part of it
    first = calls_for(ONE)
    assert calls_for(ONE) < first / 4
    for info in (record_info(A, B_OPTIONAL), SchemaInfo("", SchemaType.STRING)):
        known.of(info)
    assert calls_for(ONE) < first / 4
    # The longest unused goes.
    long = SchemaInfo("", SchemaType.BYTES, b"x" * (2 * size - REMEMBERED_ENTRY_BYTES))
    known.of(long)
    assert calls_for(ONE) < first / 4
    known.of(SchemaInfo("", SchemaType.BYTES, b"x" * (4 * size)))
    assert calls_for(ONE) == first
