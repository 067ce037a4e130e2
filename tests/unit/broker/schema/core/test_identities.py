"""What is remembered of definitions is what they have in common, and has a limit."""

from __future__ import annotations

import pytest

from geminga.broker.schema.core import identities
from geminga.broker.schema.core.compatibility import identity_of, is_same_schema
from geminga.broker.schema.core.identities import REMEMBERED_ENTRY_BYTES, Identities
from geminga.wire.pulsar.schema_info import INLINE, KeyValueParts, SchemaInfo, SchemaType, key_value_schema
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
    for info in SCHEMAS:
        known.keep(info, identity_of(info))
    for one in SCHEMAS:
        for other in SCHEMAS:
            assert (known.of(one) == known.of(other)) == is_same_schema(one, other)
    broken = SchemaInfo("", SchemaType.KEY_VALUE, b"?")
    with pytest.raises(KeyError):
        known.of(broken)
    known.keep(broken, identity_of(broken))
    assert known.of(broken) is None
    assert not is_same_schema(broken, broken)


def test_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    size = REMEMBERED_ENTRY_BYTES + len(ONE.schema)
    monkeypatch.setattr(identities, "REMEMBERED_BYTES_MAX", 3 * size)
    known = Identities()
    string, long, longer = (
        SchemaInfo("", SchemaType.STRING),
        *(SchemaInfo("", SchemaType.BYTES, b"x" * (count * size - REMEMBERED_ENTRY_BYTES)) for count in (2, 4)),
    )
    for info in (ONE, record_info(A, B_OPTIONAL), string):
        known.keep(info, b"i")
        known.keep(info, identity_of(info))  # whoever else found it
    assert known.of(ONE) == identity_of(ONE)
    # The longest unused goes.
    known.keep(long, None)
    assert known.of(ONE) == identity_of(ONE)
    with pytest.raises(KeyError):
        known.of(string)
    known.keep(longer, None)
    with pytest.raises(KeyError):
        known.of(ONE)
