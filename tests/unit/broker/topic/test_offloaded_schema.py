"""Versions of schemas that go with offloaded messages."""

from __future__ import annotations

import asyncio

from geminga.broker.schema.core.storage_format import StoredSchema
from geminga.broker.topic.offloaded_schema import find_schema
from geminga.model.errors import NoSuchLedgerError
from geminga.model.topic_name import TopicName
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, encode_version

NAME = TopicName.parse("orders")


def test_a_version_is_found_and_what_is_none_is_left_out():
    async def find(name, version):
        info = SchemaInfo("s", SchemaType.JSON, b"{}", {"a": "b"})
        return StoredSchema(version, info, 5) if version == 3 else None

    found = asyncio.run(find_schema(find, NAME, encode_version(3)))
    assert found == (encode_version(3), "JSON", "s", b"{}", {"a": "b"}, 5)
    for version in (encode_version(4), b"short", b"\xff" * 8):
        assert asyncio.run(find_schema(find, NAME, version)) is None


def test_a_version_whose_ledger_is_gone_does_not_keep_messages_from_the_lake():
    async def find(name, version):
        raise NoSuchLedgerError("ledger 5 is not there")

    assert asyncio.run(find_schema(find, NAME, encode_version(3))) is None
