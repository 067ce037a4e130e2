"""What producers and consumers may do on a topic because of schemas, by policy.

Producers with a schema add it if it fits; those without are let in unless the policies enforce schemas. A consumer's
schema is added if nobody used the topic yet, otherwise it must be able to read what is there. Messages themselves are
never looked at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from geminga.broker.core.dedup_source import is_replicator
from geminga.broker.policies.core.schema_rows import (
    ALLOW_REPLICATED_SCHEMAS,
    ALLOW_SCHEMA_UPDATE,
    SCHEMA_COMPATIBILITY,
    SCHEMA_VALIDATION,
)
from geminga.broker.policies.rules import TopicRules
from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.registry import SchemaRegistry, schema_id_of
from geminga.broker.schema.store import SchemaQuorums, SchemaStore, path_of
from geminga.managed_ledger import ManagedLedgerFactory
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import IncompatibleSchemaError
from geminga.model.topic_name import TopicName
from geminga.runtime import Runtime
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, encode_version

if TYPE_CHECKING:
    from geminga.broker.schema.core.storage_format import StoredSchema
    from geminga.broker.topic.base import Topic

#: "No version": what PRODUCER_SUCCESS says to a producer without a schema.
NO_VERSION = b""


class Schemas:
    """See the module; ``registry`` is what the administration works on."""

    __slots__ = ("_exists", "_metadata", "_rules", "registry", "store")

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        ledgers: ManagedLedgerFactory,
        *,
        rules: Callable[[TopicName], Awaitable[TopicRules]],
        exists: Callable[[TopicName], Awaitable[bool]],
    ) -> None:
        """``rules``: of a topic; ``exists``: whether a topic, partitioned or not, is there. Both raise StorageError."""
        config = ledgers.config
        quorums = SchemaQuorums(config.ensemble_size, config.write_quorum, config.ack_quorum)
        self._metadata = metadata
        self._rules = rules
        self._exists = exists
        self.store = SchemaStore(metadata, ledgers.bookkeeper, quorums)
        self.registry = SchemaRegistry(runtime.clock, runtime.threads, self.store)

    # ---- policies

    async def strategy(self, name: TopicName) -> Strategy:
        """What a new schema of the topic must keep to."""
        return (await self._rules(name))[SCHEMA_COMPATIBILITY]

    async def may_add(self, name: TopicName, producer_name: str = "") -> bool:
        """Whether a producer of this name may bring new schemas; replicators may where others may not, if told so."""
        rules = await self._rules(name)
        return rules[ALLOW_SCHEMA_UPDATE] or (is_replicator(producer_name) and rules[ALLOW_REPLICATED_SCHEMAS])

    async def _is_enforced(self, name: TopicName) -> bool:
        return (await self._rules(name))[SCHEMA_VALIDATION]

    # ---- admission

    async def admit_producer(self, topic: Topic, request: pb.CommandProducer) -> bytes:
        """The schema version of a new producer (empty: it has none). Raises IncompatibleSchemaError and others."""
        return await self.add(topic.name, schema_of(request), request.producer_name)

    async def add(self, name: TopicName, info: SchemaInfo | None, producer_name: str = "") -> bytes:
        """The version of a producer's schema, added if need be; empty for None. Raises as the registry does."""
        schema_id = schema_id_of(name)
        if info is not None:
            version = await self.registry.put_if_absent(
                schema_id, info, await self.strategy(name), may_add=await self.may_add(name, producer_name)
            )
            return encode_version(version)
        if await self._is_enforced(name) and await self.registry.has_schema(schema_id):
            raise IncompatibleSchemaError(
                "Producers cannot connect or send message without a schema to topics with a schema "
                "when SchemaValidationEnforced is enabled"
            )
        return NO_VERSION

    async def admit_consumer(self, topic: Topic, request: pb.CommandSubscribe) -> None:
        """Raise IncompatibleSchemaError if a new consumer's schema does not fit the topic."""
        info = schema_of(request)
        if info is None or info.type in (SchemaType.AUTO_CONSUME, SchemaType.NONE):
            # Bytes can be read from every topic.
            return
        name = topic.schema_topic
        schema_id = schema_id_of(name)
        if name != topic.name or _is_used(topic) or await self.registry.has_schema(schema_id):
            await self.registry.check_consumer(schema_id, info, await self.strategy(name))
        else:
            await self.add(name, info)

    async def find(self, name: TopicName, version: int) -> StoredSchema | None:
        """One version of a topic's schema, deleted or not; None: there is none. Raises StorageError."""
        return await self.registry.get(schema_id_of(name), version)

    # ---- deletion

    async def forget_topic(self, name: TopicName) -> None:
        """The topic is being deleted: so are its schemas, unless a topic of the other domain shares the name.

        Raises StorageError; what is left can be deleted again.
        """
        domain = "non-persistent" if name.is_persistent else "persistent"
        other = TopicName.parse(f"{domain}://{name.namespace}/{name.local_name}")
        if await self._exists(other):
            return
        await self.registry.delete(schema_id_of(name))

    async def forget_namespace(self, namespace: str) -> None:
        """The namespace is being deleted: so are schemas of topics that never were. Raises StorageError."""
        for local_name in await self._metadata.children(path_of(namespace)):
            await self.registry.delete(f"{namespace}/{local_name}")


def _is_used(topic: Topic) -> bool:
    """Whether the topic holds messages, or has clients whose messages are not what AUTO_CONSUME makes of them.

    A replicator brings the schema of each message before it.
    """
    if topic.stored_bytes or not all(map(is_replicator, topic.producers)):
        return True
    return any(
        not consumer.is_auto_consume
        for subscription in topic.subscriptions.values()
        for consumer in subscription.consumers
    )


def schema_of(request: pb.CommandProducer | pb.CommandSubscribe | pb.CommandGetOrCreateSchema) -> SchemaInfo | None:
    """The schema that a command brings; None for none.

    Type NONE is how BYTES goes. The Go client sends it (Java and C++ send no schema then) and stamps its messages with
    the version it is told: so it is a schema like others, as in Pulsar.
    """
    return SchemaInfo.from_wire(request.schema) if request.HasField("schema") else None
