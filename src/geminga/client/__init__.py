"""``geminga.client``: an asyncio-native client for Geminga and Apache Pulsar.

::

    async with geminga.client.connect("pulsar://localhost:6650") as client:
        async with client.create_producer("topic") as producer:
            await producer.send(b"hello")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, Unpack

if TYPE_CHECKING:
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
    from geminga.client._api.producer import EntryProducer, MessageFields, Producer, SendCallback
    from geminga.client._api.service_targets import ServiceUrlProvider
    from geminga.client._api.transaction import Transaction
    from geminga.client._batch_source import BatchSource, open_batches
    from geminga.client._client import Client
    from geminga.client._consuming.factory import Topics
    from geminga.client._entry_stream import EntryStream
    from geminga.client._messages.consumer import Consumer
    from geminga.client._messages.consumer_interceptors import ConsumerInterceptor
    from geminga.client._messages.consumer_options import (
        BatchReceivePolicy,
        ConsumerArguments,
        ConsumerCryptoFailureAction,
        ConsumerDeadLetterPolicy,
        ConsumerKeySharedPolicy,
        ConsumerOptions,
        ConsumerType,
        InitialPosition,
        KeySharedMode,
        MessageListener,
        MultiplierRedeliveryBackoff,
        ReaderArguments,
        RegexSubscriptionMode,
    )
    from geminga.client._messages.entry_batch import EntryBatch
    from geminga.client._messages.message import EncryptionContext, Message
    from geminga.client._producing.factory import ProducerArguments
    from geminga.client._reader import Reader, ReaderListener
    from geminga.client._table_view import TableListener, TableView
    from geminga.client.consumer_rules.redelivery_backoff import RedeliveryBackoff
    from geminga.client.rules.stats import ConsumerStats
    from geminga.client.rules.transaction import TransactionState
    from geminga.model.txn_id import TxnId
    from geminga.runtime import Runtime

#: Where names of this package are made. They come with their first use: whoever asks for credentials alone, as a
#: command does, pays for nothing else of the client.
_MODULES: Final = {
    "client._api.authentication": "Authentication AuthenticationBasic AuthenticationTLS AuthenticationToken",
    "client._api.crypto": "CryptoKeyReader EncryptionKeyInfo FileKeyDecryptor",
    "client._api.errors": (
        "AlreadyClosed AuthenticationError AuthorizationError BrokerMetadataError BrokerPersistenceError "
        "ChecksumError ConnectError ConsumerAssignError ConsumerBusy ConsumerNotFound ConsumerNotInitialized "
        "CryptoError CumulativeAcknowledgementNotAllowedError ErrorGettingAuthenticationData ForkedProcess "
        "IncompatibleSchema Interrupted InvalidConfiguration InvalidMessage InvalidTopicName "
        "InvalidTxnStatusError InvalidUrl LookupError MemoryBufferIsFull MessageTooBig NotAllowedError "
        "NotConnected OperationNotSupported ProducerBlockedQuotaExceededError "
        "ProducerBlockedQuotaExceededException ProducerBusy ProducerFenced ProducerNotInitialized "
        "ProducerQueueIsFull PulsarException ReadError ServiceUnitNotReady SubscriptionNotFound Timeout "
        "TooManyLookupRequestException TopicNotFound TopicTerminated TransactionConflict "
        "TransactionCoordinatorNotFoundError TransactionNotFound UnexpectedError UnknownError UnknownOption "
        "UnsupportedVersionError WrongLoop WrongProtocol"
    ),
    "client._api.http_headers": "http_headers",
    "client._api.interceptors": "ProducerInterceptor",
    "client._api.message_id": "MessageId",
    "client._api.oauth2": "AuthenticationOauth2",
    "client._api.opening": "Opening",
    "client._api.options": (
        "BatchingType ClientArguments ClientOptions CompressionType CryptoFailureAction HashingScheme "
        "OutgoingMessage PartitionsRoutingMode ProducerAccessMode ProducerOptions"
    ),
    "client._api.plugins": "authentication_from",
    "client._api.producer": "EntryProducer MessageFields Producer SendCallback",
    "client._api.transaction": "Transaction",
    "client._batch_source": "BatchSource open_batches",
    "client._client": "Client",
    "client._consuming.factory": "Topics",
    "client._entry_stream": "EntryStream",
    "client._messages.consumer": "Consumer",
    "client._messages.consumer_interceptors": "ConsumerInterceptor",
    "client._messages.consumer_options": (
        "BatchReceivePolicy ConsumerArguments ConsumerCryptoFailureAction ConsumerDeadLetterPolicy "
        "ConsumerKeySharedPolicy ConsumerOptions ConsumerType InitialPosition KeySharedMode MessageListener "
        "MultiplierRedeliveryBackoff ReaderArguments RegexSubscriptionMode"
    ),
    "client._messages.entry_batch": "EntryBatch",
    "client._messages.message": "EncryptionContext Message",
    "client._producing.factory": "ProducerArguments",
    "client._reader": "Reader ReaderListener",
    "client._table_view": "TableListener TableView",
    "client.consumer_rules.redelivery_backoff": "RedeliveryBackoff",
    "client.rules.stats": "ConsumerStats",
    "client.rules.transaction": "TransactionState",
    "model.txn_id": "TxnId",
}
_MODULE_OF: Final = {name: f"geminga.{module}" for module, names in _MODULES.items() for name in names.split()}


def connect(
    service_url: str | ServiceUrlProvider, *, runtime: Runtime | None = None, **options: Unpack[ClientArguments]
) -> Client:
    """A client for ``pulsar://host:port[,host:port...]`` (``pulsar+ssl`` for TLS); connects when it is first used.

    A provider of :mod:`geminga.client.failover` instead of a URL moves it between clusters.

    The options are those of :class:`ClientOptions`. ``runtime``: the world it lives in, real unless a simulation gives
    its own. Raises InvalidUrl and InvalidConfiguration.
    """
    from geminga.client._api.options import ClientOptions, options_from
    from geminga.client._api.world import client_runtime
    from geminga.client._client import Client

    given = options_from(ClientOptions, options)
    return Client(service_url, given, runtime or client_runtime(), owns_threads=runtime is None)


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


def __getattr__(name: str) -> object:
    """A name of ``__all__``, with its first use."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
