"""The client's errors, named like those of the official Python client.

::

    PulsarException                  root of everything the client raises on purpose
      Timeout                        no answer in time; for a send: whether it was stored is not known
      ConnectError, NotConnected     no connection to a broker
      AlreadyClosed                  the producer, consumer or client was closed
      ForkedProcess                  the client belongs to the parent of this process
      WrongLoop                      the client belongs to another event loop, or to one that is closed
      ProducerQueueIsFull, MemoryBufferIsFull, MessageTooBig, InvalidMessage, CryptoError, ...
      TopicNotFound, ProducerBusy, ConsumerBusy, ...   a broker's ``ServerError``, one class each

``retriable`` tells whether the same request may succeed later without anybody changing anything.
"""

from __future__ import annotations

from typing import Final

from geminga.model.errors import GemingaError, ServerError


class PulsarException(GemingaError):
    """Root of the client's errors."""


class UnknownError(PulsarException):
    """The broker gave no code that says more; the text is the broker's."""

    retriable = True


class UnexpectedError(PulsarException):
    """Something raised what it should not: the application's own code, or a defect of the client; see ``__cause__``."""


class InvalidConfiguration(PulsarException):
    """An option has a value that can not be; the text names option, value and expectation."""


class UnknownOption(InvalidConfiguration, TypeError):
    """There is no option of this name; a TypeError too, as for every unknown argument."""


class InvalidUrl(InvalidConfiguration):
    """Not a service URL; the text says what one looks like."""


class Timeout(PulsarException):
    """Nothing came in time. Of a send the text says whether it is unknown if the message was stored, or it was not."""

    retriable = True


class LookupError(PulsarException):
    """No broker could be found for the topic (redirects without end, a broken answer)."""

    retriable = True


class ConnectError(PulsarException):
    """No connection could be made to any address of the service URL, or the handshake failed."""

    retriable = True


class WrongProtocol(ConnectError):
    """What listens there speaks something else than the service URL says: HTTP, TLS, or no TLS."""

    retriable = False


class ReadError(PulsarException):
    """The peer sent bytes that are no Pulsar protocol; the connection was closed."""

    retriable = True


class NotConnected(PulsarException):
    """The connection was lost before the answer came."""

    retriable = True


class AlreadyClosed(PulsarException):
    """The producer, consumer, reader or client is closed."""


class ForkedProcess(PulsarException):
    """This process was forked from the one that made the client: make another client here."""


class WrongLoop(PulsarException):
    """The client belongs to another event loop, or to a loop in another thread, or its loop is closed."""


class Interrupted(PulsarException):
    """The blocking call was interrupted."""


class AuthenticationError(PulsarException):
    """The broker did not accept who we say we are."""

    server_error = ServerError.AUTHENTICATION_ERROR


class ErrorGettingAuthenticationData(PulsarException):
    """The authentication plug-in could not give its data."""


class AuthorizationError(PulsarException):
    """The broker does not allow this to us."""

    server_error = ServerError.AUTHORIZATION_ERROR


class BrokerMetadataError(PulsarException):
    """The broker could not read or write its metadata."""

    server_error = ServerError.METADATA_ERROR
    retriable = True


class BrokerPersistenceError(PulsarException):
    """The broker could not store or read entries."""

    server_error = ServerError.PERSISTENCE_ERROR
    retriable = True


class ChecksumError(PulsarException):
    """Bytes arrived damaged."""

    server_error = ServerError.CHECKSUM_ERROR
    retriable = True


class ConsumerBusy(PulsarException):
    """The subscription has a consumer already that shares with nobody."""

    server_error = ServerError.CONSUMER_BUSY


class ConsumerNotInitialized(PulsarException):
    """The consumer is not subscribed."""


class ProducerNotInitialized(PulsarException):
    """The producer is not ready."""


class ProducerBusy(PulsarException):
    """A producer of this name is connected already, or the topic takes no more of them."""

    server_error = ServerError.PRODUCER_BUSY


class ProducerFenced(PulsarException):
    """Another producer has exclusive access to the topic: this one will never send again."""

    server_error = ServerError.PRODUCER_FENCED


class ProducerBlockedQuotaExceededError(PulsarException):
    """The topic's backlog quota is used up (policy ``producer_request_hold``)."""

    server_error = ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR
    retriable = True


class ProducerBlockedQuotaExceededException(PulsarException):
    """The topic's backlog quota is used up (policy ``producer_exception``)."""

    server_error = ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION


class ProducerQueueIsFull(PulsarException):
    """``max_pending_messages`` messages wait for their receipts: ``await producer.drain()`` first."""

    retriable = True


class MemoryBufferIsFull(PulsarException):
    """The client's ``memory_limit_bytes`` are in use: ``await producer.drain()`` first."""

    retriable = True


class MessageTooBig(PulsarException):
    """Larger than the broker takes, and chunking is off."""


class InvalidMessage(PulsarException):
    """A field of the message has a value that can not be sent."""


class CryptoError(PulsarException):
    """A message could not be encrypted or decrypted."""


class TooManyLookupRequestException(PulsarException):
    """Too many requests are under way; try again later."""

    server_error = ServerError.TOO_MANY_REQUESTS
    retriable = True


class InvalidTopicName(PulsarException):
    """Not a topic name; the text says what one looks like."""

    server_error = ServerError.INVALID_TOPIC_NAME


class ServiceUnitNotReady(PulsarException):
    """The topic is being loaded, unloaded or moved; try again later."""

    server_error = ServerError.SERVICE_NOT_READY
    retriable = True


class OperationNotSupported(PulsarException):
    """This kind of producer, consumer or subscription can not do it."""


class TopicNotFound(PulsarException):
    """No such topic, and it may not be created on demand."""

    server_error = ServerError.TOPIC_NOT_FOUND


class SubscriptionNotFound(PulsarException):
    """No such subscription, and it may not be created on demand."""

    server_error = ServerError.SUBSCRIPTION_NOT_FOUND


class ConsumerNotFound(PulsarException):
    """The broker does not know the consumer."""

    server_error = ServerError.CONSUMER_NOT_FOUND


class UnsupportedVersionError(PulsarException):
    """The broker does not speak the protocol version or feature."""

    server_error = ServerError.UNSUPPORTED_VERSION_ERROR


class TopicTerminated(PulsarException):
    """The topic was ended: nothing can be published any more."""

    server_error = ServerError.TOPIC_TERMINATED_ERROR


class IncompatibleSchema(PulsarException):
    """The schema does not fit those the topic has."""

    server_error = ServerError.INCOMPATIBLE_SCHEMA


class ConsumerAssignError(PulsarException):
    """The consumer could not be given its key ranges."""

    server_error = ServerError.CONSUMER_ASSIGN_ERROR


class CumulativeAcknowledgementNotAllowedError(PulsarException):
    """Shared and Key_Shared subscriptions can not be acknowledged cumulatively."""


class TransactionCoordinatorNotFoundError(PulsarException):
    """No transaction coordinator."""

    server_error = ServerError.TRANSACTION_COORDINATOR_NOT_FOUND
    retriable = True


class InvalidTxnStatusError(PulsarException):
    """The transaction is in a state that does not allow it."""

    server_error = ServerError.INVALID_TXN_STATUS


class NotAllowedError(PulsarException):
    """The present state or a policy forbids it."""

    server_error = ServerError.NOT_ALLOWED_ERROR


class TransactionConflict(PulsarException):
    """Another transaction acknowledged the same message."""

    server_error = ServerError.TRANSACTION_CONFLICT


class TransactionNotFound(PulsarException):
    """No such transaction."""

    server_error = ServerError.TRANSACTION_NOT_FOUND


#: The class of every code a broker can send.
ERROR_OF_CODE: Final[dict[ServerError, type[PulsarException]]] = {
    ServerError.UNKNOWN_ERROR: UnknownError,
    **{
        kind.server_error: kind
        for kind in list(globals().values())
        if isinstance(kind, type) and issubclass(kind, PulsarException) and "server_error" in vars(kind)
    },
}


def error_from_broker(code: int, message: str) -> PulsarException:
    """The error for a ``ServerError`` number and the broker's text; UnknownError for a number of a later version."""
    try:
        kind = ERROR_OF_CODE[ServerError(code)]
    except ValueError:
        kind = UnknownError
    return kind(message)


def as_client_error(error: Exception, what: str) -> PulsarException:
    """``error`` itself if it is the client's, else an UnexpectedError of ``what`` that has it as its cause."""
    if isinstance(error, PulsarException):
        return error
    unexpected = UnexpectedError(f"{what}: {type(error).__name__}: {error}")
    unexpected.__cause__ = error
    return unexpected
