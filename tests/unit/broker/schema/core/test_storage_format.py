"""What is stored of schemas."""

from __future__ import annotations

import hashlib

import pytest

from geminga.broker.schema.core.storage_format import (
    IndexEntry,
    Locator,
    StoredSchema,
    decode_entry,
    decode_locator,
    encode_entry,
    encode_locator,
    hash_of,
    live_versions,
)
from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.wire._generated import schema_storage_pb2 as pb
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType

INFO = SchemaInfo("t/n/topic", SchemaType.AVRO, b'"int"', {"b": "2", "a": "1"})
INDEX = (IndexEntry(0, Position(3, 0), b"h0"), IndexEntry(1, Position(9, 0), b""))


def test_locator_has_the_documented_bytes() -> None:
    locator = Locator((IndexEntry(0, Position(7, 0), b"\xaa"),))
    assert encode_locator(locator).hex() == "0a0b0800120408071000" + "1a01aa" + "120b0800120408071000" + "1a01aa"


def test_locator_survives_and_its_newest_is_the_last() -> None:
    found = decode_locator(encode_locator(Locator(INDEX)), "/schemas/x")
    assert found == Locator(INDEX)
    assert found.newest == INDEX[-1]
    assert pb.SchemaLocator.FromString(encode_locator(found)).info.version == 1


def test_a_locator_without_index_has_its_newest() -> None:
    whole = pb.SchemaLocator.FromString(encode_locator(Locator(INDEX)))
    whole.ClearField("index")
    assert decode_locator(whole.SerializeToString(), "/schemas/x").index == INDEX[-1:]


def test_damaged_locators_are_told() -> None:
    with pytest.raises(CorruptionError, match="/schemas/x"):
        decode_locator(b"\xff", "/schemas/x")
    whole = pb.SchemaLocator.FromString(encode_locator(Locator(INDEX)))
    whole.info.version = 7
    with pytest.raises(CorruptionError, match="newest version 7"):
        decode_locator(whole.SerializeToString(), "/schemas/x")


def test_entries_survive() -> None:
    stored = StoredSchema(4, INFO, 12345, "user")
    assert decode_entry(encode_entry("t/n/topic", stored, INDEX), 4, "here") == stored


def test_entry_has_the_documented_bytes() -> None:
    stored = StoredSchema(0, SchemaInfo("", SchemaType.AVRO, b'"int"'), 1)
    documented = "12210a107075626c69632f64656661756c742f74" + "1200" + "1805" + "220522696e7422" + "2801" + "3000"
    assert encode_entry("public/default/t", stored, ()).hex() == documented


def test_stored_types_are_one_more_than_on_the_wire() -> None:
    data = encode_entry("t/n/topic", StoredSchema(0, INFO, 1), ())
    assert pb.SchemaInfo.FromString(pb.SchemaEntry.FromString(data).schema_data).type == SchemaType.AVRO + 1


def test_damaged_entries_are_told() -> None:
    with pytest.raises(CorruptionError, match="here"):
        decode_entry(b"\xff", 0, "here")
    odd = pb.SchemaInfo(schema_id="x", user="", type=99, schema=b"", timestamp=1, deleted=False)
    with pytest.raises(CorruptionError, match="here"):
        decode_entry(pb.SchemaEntry(schema_data=odd.SerializeToString()).SerializeToString(), 0, "here")


def test_hash_is_that_of_the_definition() -> None:
    assert hash_of(INFO) == hashlib.sha256(b'"int"').digest()


def test_live_versions_are_those_after_the_newest_deletion() -> None:
    def stored(version: int, is_deleted: bool = False) -> StoredSchema:
        return StoredSchema(version, INFO, 1, is_deleted=is_deleted)

    assert [s.version for s in live_versions([stored(0), stored(1)])] == [0, 1]
    assert [s.version for s in live_versions([stored(0, True), stored(1), stored(2, True), stored(3)])] == [3]
    assert not live_versions([stored(0), stored(1, True)])
