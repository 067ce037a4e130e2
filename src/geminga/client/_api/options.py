"""Options of clients and producers, and the protocol's enumerations under the official client's names."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

from geminga.client._api.authentication import Authentication, AuthenticationTLS
from geminga.client._api.errors import InvalidConfiguration, UnknownOption
from geminga.client._api.transaction import Transaction
from geminga.client.rules.option_kinds import (
    COUNT,
    COUNT_POSITIVE,
    FLAG,
    INT64_MAX,
    NOTHING,
    SIZE_BYTES,
    TEXT,
    TEXTS,
    TIME_MS,
    TIME_MS_POSITIVE,
    Either,
    Function,
    Kind,
    Many,
    Member,
    Number,
    With,
    first_problem,
    problem,
)
from geminga.model.errors import ConfigurationError
from geminga.runtime.local_file import read_local_file

if TYPE_CHECKING:
    from geminga.client._api.crypto import CryptoKeyReader
    from geminga.client._api.interceptors import ProducerInterceptor
    from geminga.runtime.tls.contexts import Made


class CompressionType(IntEnum):
    """How payloads are compressed; the numbers are the protocol's."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class ProducerAccessMode(IntEnum):
    """Whether a topic takes several producers; the numbers are the protocol's."""

    #: Any number of producers.
    Shared = 0
    #: Only one; a second one fails with ProducerFenced.
    Exclusive = 1
    #: Only one; a second one waits until the first is gone.
    WaitForExclusive = 2
    #: Only one; a second one takes over, and the first fails with ProducerFenced.
    ExclusiveWithFencing = 3


class PartitionsRoutingMode(Enum):
    """Which partition a message without key goes to; one with a key goes where its hash says (unless custom)."""

    #: All to one partition, picked when the producer is made.
    UseSinglePartition = 0
    #: One partition after the other; with batching, one per batch window.
    RoundRobinDistribution = 1
    #: What ``message_router`` says.
    CustomPartition = 2


class HashingScheme(Enum):
    """How a key becomes a partition. Clients of other languages must use the same to agree."""

    JavaStringHash = 0
    Murmur3_32Hash = 1


class BatchingType(Enum):
    """How messages become batches."""

    #: All in the order of sending.
    Default = 0
    #: One batch per key, so that Key_Shared subscriptions can spread them.
    KeyBased = 1


class CryptoFailureAction(Enum):
    """What to do with a message whose encryption fails."""

    #: Fail the send.
    FAIL = 0
    #: Send it in the clear.
    SEND = 1


#: Limits of the options.
BATCH_MESSAGES_MAX: Final = 1 << 20


class ClientArguments(TypedDict, total=False):
    """The options of ``connect``: the fields of :class:`ClientOptions`."""

    authentication: Authentication | None
    operation_timeout_ms: int
    connection_timeout_ms: int
    keep_alive_interval_ms: int
    initial_backoff_ms: int
    maximum_backoff_ms: int
    connections_per_broker: int
    lookup_redirects_max: int
    memory_limit_bytes: int
    prefetch_limit_bytes: int
    listener_name: str
    description: str
    tls_trust_certs_file_path: str
    tls_allow_insecure_connection: bool
    tls_validate_hostname: bool
    tls_certificate_file_path: str
    tls_private_key_file_path: str
    tls_certificate_password: str
    tls_trust_certs_password: str
    proxy_service_url: str
    proxy_protocol: str


#: Of ``proxy_protocol``: the proxy takes connections with TLS and sends each to the host that it asks for (SNI).
PROXY_SNI: Final = "SNI"
#: As in the Java client.
DESCRIPTION_LENGTH_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What :func:`geminga.client.connect` takes; times in milliseconds, sizes in bytes."""

    authentication: Authentication | None = None
    #: Limit of each operation that asks the broker (creating, closing, lookups), retries included.
    operation_timeout_ms: int = 30_000
    #: Limit of connecting to one address, handshake included.
    connection_timeout_ms: int = 10_000
    #: A connection from which nothing came for one to two such intervals is broken.
    keep_alive_interval_ms: int = 30_000
    initial_backoff_ms: int = 100
    maximum_backoff_ms: int = 60_000
    connections_per_broker: int = 1
    #: Redirects that one lookup follows.
    lookup_redirects_max: int = 20
    #: Payload bytes that all producers together may hold without receipt; 0: no limit.
    memory_limit_bytes: int = 64 * 1024 * 1024
    #: Bytes of messages that are prefetched by all consumers together, by the size of the last ones; each topic or
    #: partition has the same part of it, and one message in any case. 0: ``receiver_queue_size`` alone says it.
    prefetch_limit_bytes: int = 256 * 1024 * 1024
    #: Which of the broker's advertised addresses lookup should give; empty: the usual ones.
    listener_name: str = ""
    #: Told to brokers behind the client's version, and seen in their statistics; at most 64 characters.
    description: str = ""
    #: A PEM file of certificates to trust, or a PKCS#12 store; empty: the system's.
    tls_trust_certs_file_path: str = ""
    tls_allow_insecure_connection: bool = False
    tls_validate_hostname: bool = True
    #: A PEM file, or a PKCS#12 store, which has the key too.
    tls_certificate_file_path: str = ""
    tls_private_key_file_path: str = ""
    #: Of the store, or of an encrypted key; and of the store of certificates to trust.
    tls_certificate_password: str = field(default="", repr=False)
    tls_trust_certs_password: str = field(default="", repr=False)
    #: ``pulsar+ssl://host:port`` through which every broker is reached; which one it is to be, TLS says there.
    proxy_service_url: str = ""
    #: How that proxy is spoken to: ``SNI``.
    proxy_protocol: str = ""

    def check(self) -> None:
        """Raise InvalidConfiguration for values that can not be."""
        check_kinds(self, _CLIENT_KINDS)
        if len(self.description) > DESCRIPTION_LENGTH_MAX:
            raise InvalidConfiguration(f"description: at most {DESCRIPTION_LENGTH_MAX} characters")
        if self.proxy_protocol != (PROXY_SNI if self.proxy_service_url else ""):
            raise InvalidConfiguration(
                f"proxy_protocol: expected {PROXY_SNI!r} with proxy_service_url, and nothing without, not "
                f"{self.proxy_protocol!r}"
            )

    def tls_files(self) -> list[str]:
        """Paths of certificates, keys and trust; empty texts for none."""
        return [*self._own_certificate(), self.tls_trust_certs_file_path]

    def tls_made(self) -> Made:
        """The context for TLS of what the files hold now; raises InvalidConfiguration for those that are not good."""
        # Not with the options: most clients speak no TLS.
        from geminga.runtime.tls.contexts import Made
        from geminga.runtime.tls.material import reason_of

        certificate, key = self._own_certificate()
        path = self.tls_trust_certs_file_path
        if self.tls_certificate_password or self.tls_trust_certs_password or _is_store(certificate) or _is_store(path):
            return self._made_of_stores(certificate, key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if path:
                context.load_verify_locations(path)
            else:
                context.load_default_certs(ssl.Purpose.SERVER_AUTH)
            if certificate:
                path = f"{certificate}, {key}" if key else certificate
                # Without a password OpenSSL would ask at the terminal.
                context.load_cert_chain(certificate, key or None, password=lambda: "")
        except (OSError, ssl.SSLError, ValueError) as error:
            raise InvalidConfiguration(f"TLS: {path}: {reason_of(error)}; expected PEM files") from error
        if self.tls_allow_insecure_connection:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif not self.tls_validate_hostname:
            context.check_hostname = False
        return Made(context, None)

    def _made_of_stores(self, certificate: str, key: str) -> Made:
        """The same where something is a store, or has a password: what reads those needs ``cryptography``."""
        from geminga.runtime.tls.contexts import client_context
        from geminga.runtime.tls.settings import Material, Named, Rules

        material = Material(
            Named("tls_certificate_file_path", certificate),
            Named("tls_private_key_file_path", key),
            Named("tls_trust_certs_file_path", self.tls_trust_certs_file_path),
            "tls_certificate_password",
            self.tls_certificate_password,
            "tls_trust_certs_password",
            self.tls_trust_certs_password,
        )
        checks_server = not self.tls_allow_insecure_connection
        try:
            return client_context(
                material, Rules(), checks_server=checks_server, checks_name=self.tls_validate_hostname
            )
        except ConfigurationError as error:
            raise InvalidConfiguration(f"TLS: {error}") from error

    def _own_certificate(self) -> tuple[str, str]:
        if isinstance(self.authentication, AuthenticationTLS):
            return self.authentication.certificate_path, self.authentication.private_key_path
        return self.tls_certificate_file_path, self.tls_private_key_file_path


def _is_store(path: str) -> bool:
    """Whether it is a PKCS#12 store, or one of Java's own, which is refused with the command that converts it."""
    from geminga.runtime.tls.material import is_java_store, is_pkcs12

    try:
        data = read_local_file(path) if path else b""
    except OSError:
        return False  # who reads it says why
    return is_pkcs12(data) or is_java_store(data)


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """What :meth:`Client.create_producer` takes beside the topic; times in milliseconds, sizes in bytes."""

    producer_name: str = ""
    #: The first message gets the number behind it; None: behind what the broker remembers of this name.
    initial_sequence_id: int | None = None
    #: A message without receipt for so long fails with Timeout, and so does a ``send`` that had no room for so long; 0:
    #: never.
    send_timeout_millis: int = 30_000
    compression_type: CompressionType = CompressionType.NONE
    #: Messages without receipt that a producer holds at most; 0: only ``memory_limit_bytes`` of the client limits.
    max_pending_messages: int = 0
    #: The same over all partitions of a topic; 0: no limit of its own.
    max_pending_messages_across_partitions: int = 0
    #: ``send`` waits while the queue is full; False: it raises. ``send_nowait`` always raises.
    block_if_queue_full: bool = True
    batching_enabled: bool = True
    batching_max_messages: int = 1000
    batching_max_allowed_size_in_bytes: int = 128 * 1024
    batching_max_publish_delay_ms: int = 10
    batching_type: BatchingType = BatchingType.Default
    chunking_enabled: bool = False
    #: Bytes of the largest chunk; 0: as large as the broker takes.
    chunk_max_message_size: int = 0
    message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution
    hashing_scheme: HashingScheme = HashingScheme.JavaStringHash
    #: For CustomPartition: (message, number of partitions) -> partition.
    message_router: Callable[[OutgoingMessage, int], int] | None = None
    #: Partitions are connected when the first message goes to them.
    lazy_start_partitioned_producers: bool = False
    #: How often a partitioned topic is asked for new partitions; 0: never.
    auto_update_partitions_interval_ms: int = 60_000
    properties: Mapping[str, str] = field(default_factory=dict)
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    #: Names of the keys that messages are encrypted with, read from ``crypto_key_reader``; one name or several.
    encryption_key: str | Sequence[str] = ()
    crypto_key_reader: CryptoKeyReader | None = None
    crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL
    interceptors: Sequence[ProducerInterceptor] = ()
    #: A subscription that is created with the topic, so that nothing is lost before the first consumer comes.
    initial_subscription_name: str = ""

    def check(self) -> None:
        """Raise InvalidConfiguration for values that can not be."""
        check_kinds(self, _PRODUCER_KINDS)
        if self.chunking_enabled and self.batching_enabled:
            raise InvalidConfiguration("chunking_enabled: batching must be off, a batch is never cut into chunks")
        if (self.message_routing_mode is PartitionsRoutingMode.CustomPartition) != (self.message_router is not None):
            raise InvalidConfiguration("message_router: goes with message_routing_mode CustomPartition, and only so")
        if bool(self.encryption_key) != (self.crypto_key_reader is not None):
            raise InvalidConfiguration("encryption_key and crypto_key_reader: both or neither")


@dataclass(slots=True)
class OutgoingMessage:
    """A message as routers and interceptors see it; interceptors may change it before it is sent."""

    content: object
    properties: Mapping[str, str] | None = None
    partition_key: str | bytes | None = None
    ordering_key: str | bytes | None = None
    sequence_id: int | None = None
    #: Milliseconds since the epoch.
    event_timestamp: int | None = None
    #: Milliseconds since the epoch.
    deliver_at: int | None = None
    deliver_after: timedelta | None = None
    replication_clusters: Sequence[str] | None = None
    disable_replication: bool = False
    txn: Transaction | None = None


Options = TypeVar("Options")


def options_from(kind: type[Options], arguments: Mapping[str, object]) -> Options:
    """Options by name; raises UnknownOption for a name that is none."""
    known = list(kind.__annotations__)
    for name in arguments:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise UnknownOption(f"{name}: no such option" + (f"; did you mean {near[0]}?" if near else ""))
    return kind(**arguments)


def check_kinds(options: object, kinds: Mapping[str, Kind]) -> None:
    """Raise InvalidConfiguration for the first attribute of ``options`` that is not of its kind."""
    wrong = first_problem(options, kinds)
    if wrong is not None:
        raise InvalidConfiguration(wrong)


def check_argument(name: str, value: object, kind: Kind) -> None:
    """Raise InvalidConfiguration if ``value`` is not of its kind."""
    wrong = problem(name, value, kind)
    if wrong is not None:
        raise InvalidConfiguration(wrong)


_CLIENT_KINDS: Final[Mapping[str, Kind]] = {
    "authentication": Either(NOTHING, With("an Authentication", "method_name", "data")),
    "operation_timeout_ms": TIME_MS_POSITIVE,
    "connection_timeout_ms": TIME_MS_POSITIVE,
    "keep_alive_interval_ms": TIME_MS_POSITIVE,
    "initial_backoff_ms": TIME_MS_POSITIVE,
    "maximum_backoff_ms": TIME_MS_POSITIVE,
    "connections_per_broker": COUNT_POSITIVE,
    "lookup_redirects_max": COUNT,
    "memory_limit_bytes": SIZE_BYTES,
    "prefetch_limit_bytes": SIZE_BYTES,
    "listener_name": TEXT,
    "description": TEXT,
    "tls_trust_certs_file_path": TEXT,
    "tls_allow_insecure_connection": FLAG,
    "tls_validate_hostname": FLAG,
    "tls_certificate_file_path": TEXT,
    "tls_private_key_file_path": TEXT,
    "tls_certificate_password": TEXT,
    "tls_trust_certs_password": TEXT,
    "proxy_service_url": TEXT,
    "proxy_protocol": TEXT,
}

_PRODUCER_KINDS: Final[Mapping[str, Kind]] = {
    "producer_name": TEXT,
    "initial_sequence_id": Either(NOTHING, Number(-1, INT64_MAX - 1)),
    "send_timeout_millis": TIME_MS,
    "compression_type": Member(CompressionType),
    "max_pending_messages": COUNT,
    "max_pending_messages_across_partitions": COUNT,
    "block_if_queue_full": FLAG,
    "batching_enabled": FLAG,
    "batching_max_messages": Number(1, BATCH_MESSAGES_MAX),
    "batching_max_allowed_size_in_bytes": Number(1, INT64_MAX),
    "batching_max_publish_delay_ms": TIME_MS_POSITIVE,
    "batching_type": Member(BatchingType),
    "chunking_enabled": FLAG,
    "chunk_max_message_size": SIZE_BYTES,
    "message_routing_mode": Member(PartitionsRoutingMode),
    "hashing_scheme": Member(HashingScheme),
    "message_router": Either(NOTHING, Function("a function of a message and the number of partitions", is_plain=True)),
    "lazy_start_partitioned_producers": FLAG,
    "auto_update_partitions_interval_ms": TIME_MS,
    "properties": TEXTS,
    "access_mode": Member(ProducerAccessMode),
    "encryption_key": Either(TEXT, Many(TEXT)),
    "crypto_key_reader": Either(NOTHING, With("a CryptoKeyReader", "get_public_key")),
    "crypto_failure_action": Member(CryptoFailureAction),
    "interceptors": Many(
        With(
            "a ProducerInterceptor",
            "before_send",
            "on_send_acknowledgement",
            "on_partitions_change",
            "close",
            are_plain=True,
        )
    ),
    "initial_subscription_name": TEXT,
}
