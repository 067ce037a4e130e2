"""``geminga.client.blocking``: the client for scripts and threads, with the names of the asynchronous one.

::

    with geminga.client.blocking.connect("pulsar://localhost:6650") as client:
        producer = client.create_producer("topic")
        producer.send(b"hello")

One thread per process runs the loop; a forked child that makes its own client gets its own. Objects may be
used from several threads. Listeners and callbacks run on threads that may block.

Generated from ``client/__init__.py`` by ``tools/generate_blocking.py``: do not edit.
"""

from __future__ import annotations

from typing import Unpack

from geminga.client import connect as connect_async
from geminga.client._api.authentication import (
    Authentication,
    AuthenticationBasic,
    AuthenticationTLS,
    AuthenticationToken,
)
from geminga.client._api.crypto import CryptoKeyReader, EncryptionKeyInfo, FileKeyDecryptor
from geminga.client._api.errors import (
    AlreadyClosed,
    AuthenticationError,
    AuthorizationError,
    BrokerMetadataError,
    BrokerPersistenceError,
    ChecksumError,
    ConnectError,
    ConsumerAssignError,
    ConsumerBusy,
    ConsumerNotFound,
    ConsumerNotInitialized,
    CryptoError,
    CumulativeAcknowledgementNotAllowedError,
    ErrorGettingAuthenticationData,
    ForkedProcess,
    IncompatibleSchema,
    Interrupted,
    InvalidConfiguration,
    InvalidMessage,
    InvalidTopicName,
    InvalidTxnStatusError,
    InvalidUrl,
    LookupError,
    MemoryBufferIsFull,
    MessageTooBig,
    NotAllowedError,
    NotConnected,
    OperationNotSupported,
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    ProducerBusy,
    ProducerFenced,
    ProducerNotInitialized,
    ProducerQueueIsFull,
    PulsarException,
    ReadError,
    ServiceUnitNotReady,
    SubscriptionNotFound,
    Timeout,
    TooManyLookupRequestException,
    TopicNotFound,
    TopicTerminated,
    TransactionConflict,
    TransactionCoordinatorNotFoundError,
    TransactionNotFound,
    UnexpectedError,
    UnknownError,
    UnknownOption,
    UnsupportedVersionError,
    WrongLoop,
    WrongProtocol,
)
from geminga.client._api.http_headers import http_headers
from geminga.client._api.interceptors import ProducerInterceptor
from geminga.client._api.message_id import MessageId
from geminga.client._api.oauth2 import AuthenticationOauth2
from geminga.client._api.opening import Opening
from geminga.client._api.options import (
    BatchingType,
    ClientArguments,
    ClientOptions,
    CompressionType,
    CryptoFailureAction,
    HashingScheme,
    OutgoingMessage,
    PartitionsRoutingMode,
    ProducerAccessMode,
    ProducerOptions,
)
from geminga.client._api.plugins import authentication_from
from geminga.client._api.producer import EntryProducer, SendCallback
from geminga.client._api.service_targets import ServiceUrlProvider
from geminga.client._batch_source import BatchSource, open_batches
from geminga.client._consuming.factory import Topics
from geminga.client._entry_stream import EntryStream
from geminga.client._messages.consumer_interceptors import ConsumerInterceptor
from geminga.client._messages.consumer_options import (
    BatchReceivePolicy,
    ConsumerCryptoFailureAction,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    ConsumerOptions,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    MultiplierRedeliveryBackoff,
    ReaderArguments,
    RegexSubscriptionMode,
)
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.message import EncryptionContext, Message
from geminga.client._producing.factory import ProducerArguments
from geminga.client._table_view import TableListener
from geminga.client.blocking._client import Client, ConsumerArguments, MessageListener, ReaderListener
from geminga.client.blocking._consumer import Consumer
from geminga.client.blocking._facade import on_loop
from geminga.client.blocking._producer import MessageFields, Producer
from geminga.client.blocking._reader import Reader
from geminga.client.blocking._table_view import TableView
from geminga.client.blocking._transaction import Transaction
from geminga.client.consumer_rules.redelivery_backoff import RedeliveryBackoff
from geminga.client.rules.stats import ConsumerStats
from geminga.client.rules.transaction import TransactionState
from geminga.model.txn_id import TxnId
from geminga.runtime import Runtime


def connect(
    service_url: str | ServiceUrlProvider, *, runtime: Runtime | None = None, **options: Unpack[ClientArguments]
) -> Client:
    """A client for ``pulsar://host:port[,host:port...]`` (``pulsar+ssl`` for TLS); connects when it is first used.

    A provider of :mod:`geminga.client.failover` instead of a URL moves it between clusters.

    The options are those of :class:`ClientOptions`. ``runtime``: the world it lives in, real unless a simulation gives
    its own. Raises InvalidUrl and InvalidConfiguration.
    """
    return Client(*on_loop(lambda: connect_async(service_url, runtime=runtime, **options)))


__all__ = [
    "AlreadyClosed",
    "Authentication",
    "AuthenticationBasic",
    "AuthenticationError",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "AuthorizationError",
    "BatchReceivePolicy",
    "BatchSource",
    "BatchingType",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "Client",
    "ClientArguments",
    "ClientOptions",
    "CompressionType",
    "ConnectError",
    "Consumer",
    "ConsumerArguments",
    "ConsumerAssignError",
    "ConsumerBusy",
    "ConsumerCryptoFailureAction",
    "ConsumerDeadLetterPolicy",
    "ConsumerInterceptor",
    "ConsumerKeySharedPolicy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "ConsumerOptions",
    "ConsumerStats",
    "ConsumerType",
    "CryptoError",
    "CryptoFailureAction",
    "CryptoKeyReader",
    "CumulativeAcknowledgementNotAllowedError",
    "EncryptionContext",
    "EncryptionKeyInfo",
    "EntryBatch",
    "EntryProducer",
    "EntryStream",
    "ErrorGettingAuthenticationData",
    "FileKeyDecryptor",
    "ForkedProcess",
    "HashingScheme",
    "IncompatibleSchema",
    "InitialPosition",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "KeySharedMode",
    "LookupError",
    "MemoryBufferIsFull",
    "Message",
    "MessageFields",
    "MessageId",
    "MessageListener",
    "MessageTooBig",
    "MultiplierRedeliveryBackoff",
    "NotAllowedError",
    "NotConnected",
    "Opening",
    "OperationNotSupported",
    "OutgoingMessage",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "ProducerArguments",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerInterceptor",
    "ProducerNotInitialized",
    "ProducerOptions",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "Reader",
    "ReaderArguments",
    "ReaderListener",
    "RedeliveryBackoff",
    "RegexSubscriptionMode",
    "SendCallback",
    "ServiceUnitNotReady",
    "SubscriptionNotFound",
    "TableListener",
    "TableView",
    "Timeout",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicTerminated",
    "Topics",
    "Transaction",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "TransactionState",
    "TxnId",
    "UnexpectedError",
    "UnknownError",
    "UnknownOption",
    "UnsupportedVersionError",
    "WrongLoop",
    "WrongProtocol",
    "authentication_from",
    "connect",
    "http_headers",
    "open_batches",
]
