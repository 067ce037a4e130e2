"""A version of a topic's schema, as a lake file keeps it beside the rows that name it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from geminga.broker.schema.core.storage_format import StoredSchema
from geminga.lake.parquet import SchemaFacts
from geminga.model.errors import NoSuchLedgerError
from geminga.model.topic_name import TopicName
from geminga.wire.pulsar.schema_info import decode_version


async def find_schema(
    find: Callable[[TopicName, int], Awaitable[StoredSchema | None]], name: TopicName, version: bytes
) -> SchemaFacts | None:
    """None: the registry has no such version (any more), as of messages that name another cluster's. Raises
    StorageError."""
    try:
        number = decode_version(version)
    except ValueError:
        return None
    try:
        stored = await find(name, number) if number >= 0 else None
    except NoSuchLedgerError:
        stored = None  # deleted, or lost: a later attempt would not find it either
    if stored is None:
        return None
    info = stored.info
    return SchemaFacts(version, info.type.name, info.name, info.schema, dict(info.properties), stored.timestamp_ms)
