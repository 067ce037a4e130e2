"""One other cluster: our own client of it, and its administration, over which topics are made there.

A topic is copied to one with as many partitions and no other: what is missing over there is made, unless this broker is
told to make nothing (``createTopicToRemoteClusterForReplication``); a mismatch ends the try with both counts. The
producer's name is Pulsar's, ``pulsar.repl.<here>--><there>``: there is one at a time for each topic, so that a broker
that lost the topic and its next owner do not both copy it.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

from geminga.broker.core.coercion import Json
from geminga.broker.geo.ports import AwayError
from geminga.broker.peers.client_tables import EncodedSchema
from geminga.broker.peers.http_client import PeerAnswer, PeerHttp, addresses_of
from geminga.broker.peers.links import PeerLinks
from geminga.broker.peers.topics import topic_path
from geminga.client import (
    BrokerMetadataError,
    BrokerPersistenceError,
    Client,
    ClientArguments,
    ConnectError,
    EntryProducer,
    InvalidConfiguration,
    InvalidUrl,
    NotConnected,
    ProducerBusy,
    PulsarException,
    ReadError,
    ServiceUnitNotReady,
    Timeout,
    TooManyLookupRequestException,
    authentication_from,
    connect,
)
from geminga.client import LookupError as FailedLookup
from geminga.client.producer_rules.encoded_batch import WholeEntry
from geminga.model.errors import UnavailableError
from geminga.model.position import Position
from geminga.model.topic_name import REPLICATOR_PREFIX, TopicName
from geminga.runtime import Runtime, get_logger, spawn, wait_ms
from geminga.wire.pulsar.schema_info import SchemaInfo

if TYPE_CHECKING:
    from geminga.broker.geo.clusters import ClusterBytes
    from geminga.broker.geo.core.copying import Copy
    from geminga.broker.geo.ports import CopyDone

_log = get_logger(__name__)

#: What its brokers show behind the client's version.
DESCRIPTION: Final = "replicator"
#: Entries and bytes of one topic that are on their way; the first is Pulsar's ``replicationProducerQueueSize``.
ENTRIES_MAX: Final = 1000
TOPIC_BYTES_MAX: Final = 4 << 20
#: Of the client: more than may be on its way, so that it refuses nothing.
CLIENT_BYTES_MAX: Final = 1 << 30
#: An entry without an answer for so long ends the link, which is then made anew.
ANSWER_S_MAX: Final = 30
#: Topics whose links are made at the same time: of ten thousand at once each would wait for the others until its
#: requests are given up, and none of that work would be kept.
OPENING_MAX: Final = 64
#: A cluster that is away is asked so often whether it is back, for all topics together.
PROBE_S: Final = 5.0
#: Whatever is answered.
PROBE_PATH: Final = "/admin/v2/clusters"
#: What is over when a broker over there, or the link, is back; that of a former owner of a topic is ``ProducerBusy``.
NOT_NOW: Final = (
    BrokerMetadataError,
    BrokerPersistenceError,
    ConnectError,
    FailedLookup,
    NotConnected,
    ProducerBusy,
    ReadError,
    ServiceUnitNotReady,
    Timeout,
    TooManyLookupRequestException,
)
#: Behind a replicator's name, of the producer that brings a schema: it is to be let in wherever a replicator is.
SCHEMAS: Final = ".schemas"
#: How long a link that ends waits for answers that are under way.
CLOSE_S_MAX: Final = 1.0


class RemoteCluster:
    """See the module."""

    __slots__ = (
        "_back",
        "_client",
        "_http",
        "_is_closed",
        "_local",
        "_opening",
        "_outgoing",
        "_probing",
        "_runtime",
        "_unreachable",
        "_web_urls",
        "document",
        "name",
    )

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        document: Mapping[str, Json],
        links: PeerLinks,
        local: str,
        outgoing: ClusterBytes,
    ) -> None:
        """``document``: its ``ClusterData``. Raises UnavailableError where that leads nowhere."""
        self._runtime = runtime
        self.name = name
        self.document = document
        self._local = local
        self._outgoing = outgoing
        #: Done when it is back; None: it is not known to be away.
        self._back: asyncio.Future[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._opening = asyncio.Semaphore(OPENING_MAX)
        self._is_closed = False
        #: Why none of its addresses answers, until one does; empty: that is not known.
        self._unreachable = ""
        # As in Apache: either says so for its own files.
        uses_tls = _has_tls(document) or links.uses_tls
        url = _text(document, "brokerServiceUrlTls" if uses_tls else "brokerServiceUrl")
        web = _text(document, "serviceUrlTls" if uses_tls else "serviceUrl")
        if not url or not web:
            keys = "brokerServiceUrlTls and serviceUrlTls" if uses_tls else "brokerServiceUrl and serviceUrl"
            why = (
                " with TLS (brokerClientTlsEnabled=true of this broker)" if not _has_tls(document) and uses_tls else ""
            )
            raise UnavailableError(f"cluster {name} has no {keys}, which is where it is reached{why}")
        self._web_urls = addresses_of(web)
        try:
            arguments = _arguments(document, links)
            proxied: ClientArguments = {**arguments, **self._proxy(uses_tls=uses_tls)}
            self._http = PeerHttp(runtime, PeerLinks(arguments, uses_tls=uses_tls))
            self._client: Client = connect(url, runtime=runtime, **proxied)
        except (InvalidConfiguration, InvalidUrl) as error:
            raise UnavailableError(f"cluster {name}: {error}") from error

    def _proxy(self, *, uses_tls: bool) -> ClientArguments:
        """Through which proxy its brokers are reached; as in Apache's brokers its administration is not."""
        url, protocol = _text(self.document, "proxyServiceUrl"), _text(self.document, "proxyProtocol")
        if not url:
            return {}
        if not protocol or not uses_tls:
            why = "it names no proxyProtocol" if not protocol else "it is reached without TLS"
            _log.warning(
                "cluster %s is reached directly: %s, so that its proxyServiceUrl leads nowhere", self.name, why
            )
            return {}
        return {"proxy_service_url": url, "proxy_protocol": protocol}

    async def open(self, topic: TopicName, partitions: int, *, makes_topics: bool = True) -> RemoteLink:
        """The topic over there, which has ``partitions`` as here, 0: none. ``makes_topics``: where it is missing.

        Raises GemingaError.
        """
        async with self._opening:
            if self._is_closed:
                raise UnavailableError(f"cluster {self.name} is not reached this way any more")
            if self._unreachable and self._back is not None:
                # Found by somebody else meanwhile: who waited for a turn need not wait for answers, too.
                raise AwayError(self._unreachable, self._back)
            return await self._open(topic, partitions, makes_topics=makes_topics)

    async def _open(self, topic: TopicName, partitions: int, *, makes_topics: bool) -> RemoteLink:
        await self._find_or_make(topic, partitions, makes_topics=makes_topics)
        try:
            producer = await self._client.create_producer(
                str(topic),
                producer_name=self._producer_name,
                batching_enabled=False,
                max_pending_messages=0,
                send_timeout_millis=ANSWER_S_MAX * 1000,
            )
        except NOT_NOW as error:
            raise self._away(f"cluster {self.name}: {error}") from error
        except PulsarException as error:
            raise UnavailableError(f"cluster {self.name}: {error}") from error
        if not isinstance(producer, EntryProducer):
            await producer.close()
            raise UnavailableError(f"cluster {self.name} has a partitioned topic {topic}, which has none here")
        producer.end_with_refusal()
        return RemoteLink(self, topic, cast("EntryProducer[bytes]", producer), self._outgoing)

    @property
    def _producer_name(self) -> str:
        return f"{REPLICATOR_PREFIX}{self._local}-->{self.name}"

    async def version_of(self, topic: TopicName, schema: SchemaInfo) -> bytes:
        """As of :class:`geminga.broker.geo.ports.RemoteTopic`. Raises UnavailableError."""
        try:
            producer = await self._client.create_producer(
                str(topic),
                producer_name=f"{self._producer_name}{SCHEMAS}",
                schema=EncodedSchema(schema),
                batching_enabled=False,
            )
        except PulsarException as error:
            raise UnavailableError(f"{error}") from error
        try:
            assert isinstance(producer, EntryProducer)
            return cast("EntryProducer[bytes]", producer).schema_version
        finally:
            await producer.close()

    async def answer(self, path: str, method: str = "GET", body: bytes = b"") -> PeerAnswer:
        """Of its administration. Raises UnavailableError."""
        return await self._http.first_answer(self._web_urls, method, path, body)

    async def close(self) -> None:
        """Its links end, and nobody looks whether it is back; what it was asked before may still be answered."""
        self._is_closed = True
        self._outgoing.end()
        if self._probing is not None:
            self._probing.cancel()
        self._is_back()
        await self._client.close()

    # ---- while it is away

    def _away(self, reason: str) -> AwayError:
        """All that wait try again soon after it is back, and nobody asks until then but one."""
        if self._is_closed:
            # Who asks again is told how it is reached now. A probe would have nobody to end it.
            back: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            back.set_result(None)
            return AwayError(reason, back)
        if self._back is None:
            self._back = asyncio.get_running_loop().create_future()
            self._probing = spawn(self._probe(), name=f"wait for cluster {self.name}")
        return AwayError(reason, self._back)

    async def _probe(self) -> None:
        while True:
            await wait_ms(PROBE_S * 1000)
            try:
                async with asyncio.timeout(PROBE_S):
                    await self._http.first_answer(self._web_urls, "GET", PROBE_PATH)
            except (UnavailableError, TimeoutError):
                continue
            break
        self._is_back()

    def _is_back(self) -> None:
        back, self._back = self._back, None
        self._unreachable = ""
        if back is not None and not back.done():
            back.set_result(None)

    # ---- topics

    async def _find_or_make(self, topic: TopicName, partitions: int, *, makes_topics: bool) -> None:
        whole = topic.partitioned_topic if partitions else topic
        path = topic_path(whole)
        found = await self._ask("GET", f"{path}/partitions?checkAllowAutoCreation=false")
        count = _partitions_in(found) if found.is_good else 0
        if not found.is_good and found.status != HTTPStatus.NOT_FOUND:
            raise self._refused(found, f": partitions of {whole}")
        if not found.is_good and not makes_topics:
            # Nor by the producer that would come next, where that cluster makes what a producer asks for.
            raise UnavailableError(
                f"{whole} is not in cluster {self.name}, and this broker makes no topics there "
                "(createTopicToRemoteClusterForReplication=false): make it there"
            )
        if not makes_topics:
            made = found
        elif count == 0 and partitions:
            body = str(partitions).encode()
            made = await self._ask("PUT", f"{path}/partitions?createLocalTopicOnly=true", body)
            count = partitions
        elif count == 0:
            made = await self._ask("PUT", path)
            if found.is_good and made.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                return  # who may produce there need not administer it: a topic that is there is enough
        else:
            made = found
        if not made.is_good and made.status != HTTPStatus.CONFLICT:
            raise self._refused(made, f" does not make {whole}")
        if made.status == HTTPStatus.CONFLICT and partitions:
            # Made by somebody else at the same time, or there without partitions.
            found = await self._ask("GET", f"{path}/partitions?checkAllowAutoCreation=false")
            count = _partitions_in(found) if found.is_good else 0
        if count != partitions:
            raise UnavailableError(
                f"{whole} has {_counted(partitions)} here and {_counted(count)} in cluster {self.name}: they must be "
                "equal"
            )

    async def _ask(self, method: str, path: str, body: bytes = b"") -> PeerAnswer:
        """The answer of the first of its addresses that answers. Raises AwayError."""
        try:
            return await self._http.first_answer(self._web_urls, method, path, body)
        except UnavailableError as error:
            self._unreachable = f"{error}"
            raise self._away(self._unreachable) from error

    def _refused(self, answer: PeerAnswer, what: str) -> UnavailableError:
        """For an answer that is not good; that of a broker which is not ready is no refusal."""
        text = f"cluster {self.name}{what}: {answer.reason}"
        is_away = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and answer.status != HTTPStatus.NOT_IMPLEMENTED
        return self._away(text) if is_away else UnavailableError(text)


class RemoteLink:
    """:class:`geminga.broker.geo.ports.RemoteTopic` by a producer of our own client."""

    __slots__ = (
        "_bytes",
        "_cluster",
        "_done",
        "_failure",
        "_heard_of",
        "_is_ended",
        "_is_telling",
        "_outgoing",
        "_producer",
        "_sizes",
        "_stored",
        "_topic",
    )

    def __init__(
        self, cluster: RemoteCluster, topic: TopicName, producer: EntryProducer[bytes], outgoing: ClusterBytes
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._producer = producer
        self._outgoing = outgoing
        #: Of what is on its way; answers come in order.
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._is_ended = False
        self._done: CopyDone | None = None
        #: Why the first that was not stored was not; None: there is none.
        self._failure: UnavailableError | None = None
        #: What was heard and is not told on yet: of how many, and how many are stored.
        self._heard_of = 0
        self._stored = 0
        self._is_telling = False

    @property
    def is_connected(self) -> bool:
        """As of the port."""
        return self._producer.is_connected()

    @property
    def is_full(self) -> bool:
        """As of the port."""
        if self._is_ended:
            return False
        return len(self._sizes) >= ENTRIES_MAX or self._bytes >= TOPIC_BYTES_MAX or self._outgoing.is_full

    async def room(self) -> None:
        """As of the port."""
        while self.is_full:
            await self._outgoing.changed()

    async def version_of(self, schema: SchemaInfo) -> bytes:
        """As of the port."""
        return await self._cluster.version_of(self._topic, schema)

    def send(self, copy: Copy, position: Position, done: CopyDone) -> None:
        """As of the port."""
        metadata, payload = copy.metadata, copy.payload
        entry = WholeEntry(
            metadata,
            payload,
            copy.messages or 1,
            position[0],
            position[1],
            self._heard,
            is_chunk=copy.is_chunk,
            is_marker=copy.is_marker,
        )
        self._done = done
        try:
            self._producer.send_encoded(entry)
        except PulsarException as error:
            self._is_ended = True
            raise UnavailableError(f"cluster {self._cluster.name}: {position}: {error}") from error
        size_bytes = len(metadata) + len(payload)
        self._sizes.append(size_bytes)
        self._bytes += size_bytes
        self._outgoing.add(size_bytes)

    def _heard(self, ledger_id: int, entry_id: int, error: Exception | None) -> None:
        """Of one, in the midst of the client's work: it is told on in the next turn, with all that one read brought."""
        self._heard_of += 1
        if self._failure is None:
            if error is None:
                self._stored += 1
            else:
                self._is_ended = True
                place = Position(ledger_id, entry_id)
                self._failure = UnavailableError(f"cluster {self._cluster.name}: {place}: {error}")
        if not self._is_telling:
            self._is_telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_telling = False
        done, stored, count = self._done, self._stored, self._heard_of
        self._stored = self._heard_of = 0
        size_bytes = sum([self._sizes.popleft() for _ in range(count)])
        self._bytes -= size_bytes
        self._outgoing.add(-size_bytes)
        assert done is not None
        if stored:
            done(stored, None)
        if self._failure is not None:
            done(0, self._failure)

    async def close(self) -> None:
        """As of the port."""
        self._is_ended = True
        self._outgoing.wake()
        closing = spawn(self._close(), name=f"close the copying of {self._topic} to {self._cluster.name}")
        await asyncio.wait([closing], timeout=CLOSE_S_MAX)

    async def _close(self) -> None:
        try:
            await self._producer.close()
        except PulsarException as error:
            _log.info("closing the copying of %s to %s: %s", self._topic, self._cluster.name, error)


def _arguments(document: Mapping[str, Json], links: PeerLinks) -> ClientArguments:
    """Credentials and files: those of the cluster, else the broker's. Raises InvalidConfiguration."""
    found: ClientArguments = {
        **links.client_arguments,
        "memory_limit_bytes": CLIENT_BYTES_MAX,
        "description": DESCRIPTION,
    }
    plugin = _text(document, "authenticationPlugin")
    if plugin:
        found["authentication"] = authentication_from(plugin, _text(document, "authenticationParameters"))
    if _has_tls(document):
        _take_tls(found, document)
    if listener := _text(document, "listenerName"):
        found["listener_name"] = listener
    return found


def _has_tls(document: Mapping[str, Json]) -> bool:
    return document.get("brokerClientTlsEnabled") is True


def _take_tls(found: ClientArguments, document: Mapping[str, Json]) -> None:
    """Files of the cluster, PEM or PKCS#12, each in the place of the broker's and of its password."""
    has_stores = document.get("brokerClientTlsEnabledWithKeyStore") is True
    trust = _text(document, "brokerClientTlsTrustStore" if has_stores else "brokerClientTrustCertsFilePath")
    if trust:
        found["tls_trust_certs_file_path"] = trust
        found["tls_trust_certs_password"] = _text(document, "brokerClientTlsTrustStorePassword") if has_stores else ""
    certificate = _text(document, "brokerClientTlsKeyStore" if has_stores else "brokerClientCertificateFilePath")
    if certificate:
        found["tls_certificate_file_path"] = certificate
        found["tls_certificate_password"] = _text(document, "brokerClientTlsKeyStorePassword") if has_stores else ""
        found["tls_private_key_file_path"] = "" if has_stores else _text(document, "brokerClientKeyFilePath")
    if document.get("tlsAllowInsecureConnection") is True:
        found["tls_allow_insecure_connection"] = True


def _text(document: Mapping[str, Json], key: str) -> str:
    value = document.get(key)
    return value.strip() if isinstance(value, str) else ""


def _partitions_in(answer: PeerAnswer) -> int:
    found = answer.json()
    count = found.get("partitions") if isinstance(found, dict) else None
    if not isinstance(count, int):
        raise UnavailableError(f"{answer.url} answered no count of partitions: {json.dumps(found)[:100]}")
    return count


def _counted(partitions: int) -> str:
    return f"{partitions} partitions" if partitions else "no partitions"
