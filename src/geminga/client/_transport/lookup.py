"""Which broker serves a topic, how many partitions it has, which topics a namespace has: the binary lookup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from geminga.client._api.errors import ConnectError, LookupError, PulsarException, Timeout, TopicNotFound
from geminga.client._api.options import ClientOptions
from geminga.client._transport.connection import ClientConnection
from geminga.client._transport.handlers import ServiceUrl
from geminga.client._transport.pool import BrokerAddress, ConnectionPool
from geminga.client._transport.service_urls import Address, told_addresses
from geminga.client.rules.backoff import Backoff
from geminga.runtime import Runtime, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.schema_info import SCHEMA_VERSION_BYTES

T = TypeVar("T")
_Type = pb.BaseCommand


@dataclass(frozen=True, slots=True)
class TopicList:
    """Topics of a namespace at one moment."""

    topics: list[str]
    #: The broker's hash of the list; the next request may name it.
    topics_hash: str
    #: The broker applied the pattern already.
    is_filtered: bool
    #: False: the same as at the hash that was named; ``topics`` is empty then.
    is_changed: bool


def any_topic_of(namespace: str) -> str:
    """A topic that somebody names who asks about a namespace; it is never made."""
    return f"persistent://{namespace}/__lookup"


class Lookup:
    """Asks brokers; retriable errors are tried again with backoff until the operation timeout."""

    def __init__(self, runtime: Runtime, pool: ConnectionPool, options: ClientOptions) -> None:
        self._runtime = runtime
        self._pool = pool
        self._options = options

    async def find_broker(self, topic: str) -> BrokerAddress:
        """The broker that serves ``topic``, or a partition; raises the broker's error, LookupError or Timeout."""
        return await self.retry(lambda: self.find_broker_once(topic), f"lookup of {topic}")

    def addresses_of(self, service: ServiceUrl, topic: str) -> list[Address]:
        """Where another cluster is reached, with TLS where this one has it; raises LookupError if it does not say."""
        uses_tls = self._pool.uses_tls
        url = service.tls if uses_tls else service.plain
        if not url:
            raise LookupError(
                f"{topic} moved to a cluster that tells no address {'with' if uses_tls else 'without'} TLS"
            )
        return told_addresses(url)

    async def find_broker_at(self, service: ServiceUrl, topic: str) -> BrokerAddress:
        """As :meth:`find_broker_once`, asked of the brokers of another cluster. Raises LookupError."""
        failure: PulsarException | None = None
        for address in self.addresses_of(service, topic):
            try:
                connection = await self._pool.broker_connection(BrokerAddress(address.url, address.url))
                return await self._find(connection, topic, is_redirected=True)
            except (ConnectError, Timeout) as error:
                failure = error
        try:
            raise failure or LookupError(f"{topic} moved to a cluster without an address")
        finally:
            del failure  # see runtime's value_of

    async def find_broker_once(self, topic: str) -> BrokerAddress:
        """One attempt, redirects included. Raises LookupError."""
        return await self._find(await self._pool.service_connection(topic), topic)

    async def _find(self, connection: ClientConnection, topic: str, *, is_redirected: bool = False) -> BrokerAddress:
        is_tls = connection.url.startswith("pulsar+ssl")
        is_authoritative = proxied = False
        for _ in range(self._options.lookup_redirects_max + 1):
            answer = (await self._ask(connection, topic, is_authoritative)).lookupTopicResponse
            # A client with TLS goes nowhere without it: its credentials would be anybody's.
            url = answer.brokerServiceUrlTls if is_tls else answer.brokerServiceUrl
            if not url:
                what = f"an answer without the broker's address{' for TLS' if is_tls else ''}"
                raise LookupError(f"lookup of {topic} at {connection.url}: {what}")
            proxied = answer.proxy_through_service_url
            # Back where was asked: an address of the service URL, what was told over HTTP, or who a redirect led to,
            # which may be another cluster.
            back = connection.url if is_redirected else self._pool.way_back(connection)
            target = BrokerAddress(url, back if proxied else url)
            if answer.response == pb.CommandLookupTopicResponse.Connect:
                return target
            is_authoritative, is_redirected = answer.authoritative, True
            connection = await self._pool.broker_connection(target)
        raise LookupError(f"lookup of {topic}: more than {self._options.lookup_redirects_max} redirects")

    async def _ask(self, connection: ClientConnection, topic: str, is_authoritative: bool) -> pb.BaseCommand:
        request_id = connection.next_request_id()
        request = pb.CommandLookupTopic(topic=topic, request_id=request_id, authoritative=is_authoritative)
        if self._options.listener_name:
            request.advertised_listener_name = self._options.listener_name
        command = pb.BaseCommand(type=_Type.LOOKUP, lookupTopic=request)
        return await connection.request(command, request_id, self._options.operation_timeout_ms / 1000)

    async def partitions(self, topic: str, auto_create: bool = True) -> int:
        """Number of partitions, 0 for a topic without; ``auto_create``: as the broker's policy for new topics says."""

        async def ask() -> int:
            connection = await self._pool.service_connection(topic)
            request_id = connection.next_request_id()
            request = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=request_id)
            if not auto_create:
                request.metadata_auto_creation_enabled = False
            command = pb.BaseCommand(type=_Type.PARTITIONED_METADATA, partitionMetadata=request)
            answer = await connection.request(command, request_id, self._options.operation_timeout_ms / 1000)
            return int(answer.partitionMetadataResponse.partitions)

        return await self.retry(ask, f"partitions of {topic}")

    async def topics_of_namespace(
        self,
        namespace: str,
        mode: pb.CommandGetTopicsOfNamespace.Mode = pb.CommandGetTopicsOfNamespace.PERSISTENT,
        pattern: str = "",
        topics_hash: str = "",
    ) -> TopicList:
        """The topics of ``tenant/namespace``, partitions one by one; ``pattern`` is a hint the broker may ignore."""

        async def ask() -> TopicList:
            connection = await self._pool.service_connection(any_topic_of(namespace))
            request_id = connection.next_request_id()
            request = pb.CommandGetTopicsOfNamespace(namespace=namespace, request_id=request_id, mode=mode)
            if pattern:
                request.topics_pattern = pattern
            if topics_hash:
                request.topics_hash = topics_hash
            command = pb.BaseCommand(type=_Type.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request)
            answer = await connection.request(command, request_id, self._options.operation_timeout_ms / 1000)
            found = answer.getTopicsOfNamespaceResponse
            return TopicList(list(found.topics), found.topics_hash, found.filtered, found.changed)

        return await self.retry(ask, f"topics of {namespace}")

    async def schema(self, topic: str, version: bytes | None) -> tuple[pb.Schema, bytes] | None:
        """The topic's schema of ``version`` (None: the newest) and its version; None if there is none.

        What is no number names none: brokers that are asked for it say an error, or close the connection.
        """
        if version and len(version) < SCHEMA_VERSION_BYTES:
            return None

        async def ask() -> tuple[pb.Schema, bytes] | None:
            connection = await self._pool.broker_connection(await self.find_broker_once(topic))
            request_id = connection.next_request_id()
            request = pb.CommandGetSchema(topic=topic, request_id=request_id)
            if version is not None:
                request.schema_version = version
            command = pb.BaseCommand(type=_Type.GET_SCHEMA, getSchema=request)
            try:
                answer = await connection.request(command, request_id, self._options.operation_timeout_ms / 1000)
            except TopicNotFound:  # what brokers say to "no such schema" too
                return None
            found = answer.getSchemaResponse
            return found.schema, found.schema_version

        return await self.retry(ask, f"schema of {topic}")

    async def retry(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        """Repeat ``attempt`` after retriable errors, until the operation timeout; then raise the last one."""
        clock = self._runtime.clock
        deadline_ms = clock.monotonic() * 1000 + self._options.operation_timeout_ms
        backoff: Backoff | None = None
        while True:
            try:
                return await attempt()
            except PulsarException as error:
                backoff = backoff or Backoff(self._options.initial_backoff_ms, self._options.maximum_backoff_ms)
                now_ms = clock.monotonic() * 1000
                delay_ms = backoff.next_ms(now_ms, self._runtime.rng.random())
                if not error.retriable or self._pool.is_closed:
                    raise
                if now_ms + delay_ms >= deadline_ms:
                    if isinstance(error, Timeout):
                        raise
                    raise type(error)(f"{what}: {error} (tried for {self._options.operation_timeout_ms} ms)") from error
            await wait_ms(delay_ms)
