"""The error tree, with Pulsar's wire codes.

::

    GemingaError
      LocalError               our own bug or misuse; never the peer's fault
        InvariantError         corrupt state: the component stops instead of serving it
        ConfigurationError     a key with a bad value; names key, value, expectation
      RemoteError              the peer broke the protocol or asked for what is not allowed
        ProtocolError, ChecksumMismatchError, NotAllowedError, TopicNotFoundError, ...
      StorageError             entries or metadata could not be written or read
        NoSuchLedgerError, NoSuchEntryError, LedgerFencedError, NotEnoughBookiesError,
        CorruptionError, DiskFullError, BadVersionError, UnknownOutcomeError, ...
      UnavailableError         try again: not ready, closing, too many requests

``retriable`` tells a caller whether the same call may succeed later; ``server_error`` is the
``ServerError`` number of Pulsar's protocol that a client gets, ``http_status`` that of the admin REST. Clients get the
text of a RemoteError or an UnavailableError, which is written for them. What storage and our own code have to say names
ledgers, bookies, files and nodes: of a StorageError or LocalError clients get ``public_text``, and the log the text.
"""

from __future__ import annotations

from enum import IntEnum


class ServerError(IntEnum):
    """``ServerError`` of Pulsar's binary protocol (PulsarApi.proto, enum ServerError)."""

    UNKNOWN_ERROR = 0
    METADATA_ERROR = 1
    PERSISTENCE_ERROR = 2
    AUTHENTICATION_ERROR = 3
    AUTHORIZATION_ERROR = 4
    CONSUMER_BUSY = 5
    SERVICE_NOT_READY = 6
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR = 7
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION = 8
    CHECKSUM_ERROR = 9
    UNSUPPORTED_VERSION_ERROR = 10
    TOPIC_NOT_FOUND = 11
    SUBSCRIPTION_NOT_FOUND = 12
    CONSUMER_NOT_FOUND = 13
    TOO_MANY_REQUESTS = 14
    TOPIC_TERMINATED_ERROR = 15
    PRODUCER_BUSY = 16
    INVALID_TOPIC_NAME = 17
    INCOMPATIBLE_SCHEMA = 18
    CONSUMER_ASSIGN_ERROR = 19
    TRANSACTION_COORDINATOR_NOT_FOUND = 20
    INVALID_TXN_STATUS = 21
    NOT_ALLOWED_ERROR = 22
    TRANSACTION_CONFLICT = 23
    TRANSACTION_NOT_FOUND = 24
    PRODUCER_FENCED = 25


class GemingaError(Exception):
    """Root of every error that Geminga raises on purpose."""

    retriable: bool = False
    server_error: ServerError = ServerError.UNKNOWN_ERROR
    http_status: int = 500
    #: What clients are told instead of the text; empty: the text is written for them.
    public_text: str = ""

    @property
    def told(self) -> str:
        """What clients are told."""
        return self.public_text or str(self) or "The request is refused"


class LocalError(GemingaError):
    """Our own bug or misuse."""

    public_text = "Internal error of the broker"


class InvariantError(LocalError):
    """State that can not be: raised by :func:`invariant`, with the story that led to it."""


class ConfigurationError(LocalError):
    """A configuration key has a bad value; the text names key, value and expectation."""

    http_status = 412


class RemoteError(GemingaError):
    """The peer broke the protocol or asked for what is not allowed."""

    http_status = 400


class ProtocolError(RemoteError):
    """Bytes or commands that the protocol does not allow; the connection is closed."""


class UnsupportedVersionError(RemoteError):
    """A feature or protocol version this broker does not speak."""

    server_error = ServerError.UNSUPPORTED_VERSION_ERROR


class ChecksumMismatchError(RemoteError):
    """The CRC32C of a SEND frame does not match its bytes."""

    server_error = ServerError.CHECKSUM_ERROR
    retriable = True


class AuthenticationError(RemoteError):
    """The peer is not who it says."""

    server_error = ServerError.AUTHENTICATION_ERROR
    http_status = 401


class AuthorizationError(RemoteError):
    """The peer may not do this."""

    server_error = ServerError.AUTHORIZATION_ERROR
    http_status = 403


class NotAllowedError(RemoteError):
    """A valid request that the present state or a policy forbids."""

    server_error = ServerError.NOT_ALLOWED_ERROR
    http_status = 405


class TransactionTopicError(NotAllowedError):
    """The name is that of a log which transactions keep, which is no topic for anybody (Pulsar's words and status)."""

    http_status = 409


class InvalidTopicNameError(RemoteError):
    """Not a topic name; the text says what one looks like."""

    server_error = ServerError.INVALID_TOPIC_NAME
    http_status = 412


class TopicNotFoundError(RemoteError):
    """No such topic, namespace or tenant, and it may not be created on demand."""

    server_error = ServerError.TOPIC_NOT_FOUND
    http_status = 404


class SubscriptionNotFoundError(RemoteError):
    """No such subscription."""

    server_error = ServerError.SUBSCRIPTION_NOT_FOUND
    http_status = 404


class ConsumerNotFoundError(RemoteError):
    """No such consumer on this connection."""

    server_error = ServerError.CONSUMER_NOT_FOUND
    http_status = 404


class ConsumerBusyError(RemoteError):
    """The subscription's type or its consumers do not allow one more."""

    server_error = ServerError.CONSUMER_BUSY
    http_status = 412


class ConsumerAssignError(RemoteError):
    """A Key_Shared consumer could not be given a key range."""

    server_error = ServerError.CONSUMER_ASSIGN_ERROR
    http_status = 412


class ProducerBusyError(RemoteError):
    """A producer of this name is connected already."""

    server_error = ServerError.PRODUCER_BUSY


class ProducerFencedError(RemoteError):
    """Another producer holds exclusive access to the topic."""

    server_error = ServerError.PRODUCER_FENCED


class BacklogQuotaHoldError(RemoteError):
    """The backlog quota is used up and producers are to wait (``producer_request_hold``)."""

    retriable = True
    server_error = ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR
    http_status = 412


class BacklogQuotaExceededError(RemoteError):
    """The backlog quota is used up and producers are to fail (``producer_exception``)."""

    server_error = ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION
    http_status = 412


class TopicTerminatedError(RemoteError):
    """The topic was ended; nothing can be published any more."""

    server_error = ServerError.TOPIC_TERMINATED_ERROR
    http_status = 405


class TransactionCoordinatorNotFoundError(RemoteError):
    """This broker does not serve the transaction's coordinator (now)."""

    server_error = ServerError.TRANSACTION_COORDINATOR_NOT_FOUND
    http_status = 404
    retriable = True


class InvalidTxnStatusError(RemoteError):
    """The transaction is not in a state that allows it: its end is decided."""

    server_error = ServerError.INVALID_TXN_STATUS
    http_status = 409


class TransactionNotFoundError(RemoteError):
    """The coordinator knows no such transaction (any more)."""

    server_error = ServerError.TRANSACTION_NOT_FOUND
    http_status = 404


class TransactionConflictError(RemoteError):
    """Another transaction acknowledged it, or it is acknowledged for good."""

    server_error = ServerError.TRANSACTION_CONFLICT
    http_status = 409


class IncompatibleSchemaError(RemoteError):
    """The schema does not fit those the topic has."""

    server_error = ServerError.INCOMPATIBLE_SCHEMA
    http_status = 409


class InvalidSchemaError(RemoteError):
    """Not a schema: its definition does not parse or does not go with its type."""

    server_error = ServerError.INCOMPATIBLE_SCHEMA
    http_status = 422


class ConflictError(RemoteError):
    """What should be created exists already, or changed meanwhile."""

    server_error = ServerError.METADATA_ERROR
    http_status = 409


class NotFoundError(RemoteError):
    """The named thing does not exist."""

    server_error = ServerError.METADATA_ERROR
    http_status = 404


class PreconditionFailedError(RemoteError):
    """The request is well formed but its values do not fit (HTTP 412)."""

    server_error = ServerError.METADATA_ERROR
    http_status = 412


class NotInThisClusterError(PreconditionFailedError):
    """The namespace lives in other clusters alone, its policies say."""


class StorageError(GemingaError):
    """Entries could not be written or read."""

    public_text = "Stored data can not be read or written now"
    server_error = ServerError.PERSISTENCE_ERROR


class CompactedUnreadableError(StorageError):
    """The ledger of what was compacted of a topic is gone, or can not be read."""

    public_text = "What was compacted of this topic can not be read; DELETE .../compaction gives it up"


class LakeUnreadableError(StorageError):
    """Files of the lake that readers of compacted messages are served from are gone, or can not be read."""

    public_text = "Files of this topic's lake can not be read; the log and statistics of the broker name them"


class EntryFilterError(StorageError):
    """Entry filters can not say what a subscription gets: they raised, took too long, or are not there."""

    public_text = "Entry filters of this subscription fail"
    retriable = True

    def __init__(self, text: str, retry_ms: int = 0) -> None:
        """``retry_ms``: how long to wait before they are asked again; 0: who asked knows."""
        super().__init__(text)
        self.retry_ms = retry_ms


class NoSuchLedgerError(StorageError):
    """The bookie knows for certain that it never had this ledger, or that it was deleted."""

    public_text = "What was stored is not there any more"


class NoSuchEntryError(StorageError):
    """The bookie knows for certain that it does not hold this entry."""

    public_text = "The entry is not there"


class UnknownEntryError(StorageError):
    """The bookie can not tell whether it had this entry or fence (limbo): never read as "no"."""

    retriable = True


class LedgerFencedError(StorageError):
    """Another writer recovered the ledger: this one may not append any more."""

    public_text = "The topic has another owner, look it up again"


class WrongMasterKeyError(StorageError):
    """The ledger has another master key than the one given: whoever asks may not write to it."""


class LedgerClosedError(StorageError):
    """The ledger handle was closed."""

    public_text = "The topic is being closed, look it up again"


class NotEnoughBookiesError(StorageError):
    """Fewer writable bookies than the ensemble needs."""

    public_text = "Too little storage is available now"
    retriable = True

    def __init__(self, text: str = "", cause: str = "") -> None:
        """``cause``: what of it who asked can be told, such as the groups that a namespace keeps to; no bookies."""
        super().__init__(text)
        if cause:
            self.public_text = f"{self.public_text}: {cause}"


class CorruptionError(StorageError):
    """Stored bytes fail their checksum; the text names file and offset. Never served."""

    public_text = "Stored data are damaged"


class DiskFullError(StorageError):
    """No space left: the bookie is read-only until space returns."""

    public_text = "There is no room left to store this"
    retriable = True


class DiskIOError(StorageError):
    """Reading or writing a file failed; never rounded to "no such entry"."""


class MissingFileError(DiskIOError):
    """A file that was written is certainly not there: where it was written can be reached, and does not have it."""

    public_text = "What was stored is not there any more"


class MetadataError(StorageError):
    """The metadata store refused or failed."""

    public_text = "Metadata can not be read or written now"
    server_error = ServerError.METADATA_ERROR


class RefusedPathError(MetadataError):
    """A name that the metadata store never takes, such as ``..`` with ZooKeeper: asking again is of no use."""

    public_text = "The metadata store takes no such name"
    server_error = ServerError.NOT_ALLOWED_ERROR
    http_status = 412


class BadVersionError(MetadataError):
    """Compare-and-set lost: the node has another version, exists already, or is gone."""

    public_text = "Somebody else changed it meanwhile, try again"
    http_status = 409


class NoSuchNodeError(MetadataError):
    """The metadata node does not exist."""

    public_text = "Not found"
    http_status = 404


class NodeNotEmptyError(MetadataError):
    """A node with children can not be deleted."""

    public_text = "It is not empty"


class UnknownOutcomeError(MetadataError):
    """The write may or may not have happened: read before you decide."""

    public_text = "It is not known whether this was stored"
    retriable = True


class SessionExpiredError(MetadataError):
    """The metadata session is over; its ephemeral nodes are gone."""


class DataDirectoryError(StorageError):
    """The data directory is in use, damaged, foreign, or of a newer format."""


class UnavailableError(GemingaError):
    """Try again: starting, closing, overloaded."""

    retriable = True
    server_error = ServerError.SERVICE_NOT_READY
    http_status = 503


class TooManyRequestsError(UnavailableError):
    """A named limit on concurrent requests was reached."""

    server_error = ServerError.TOO_MANY_REQUESTS
    http_status = 429


class MetadataUnavailableError(MetadataError, UnavailableError):
    """The metadata store is closed, or has too many writes waiting: nothing was done."""

    public_text = "Metadata are not available now, try again"
    retriable = True
    server_error = ServerError.SERVICE_NOT_READY
    http_status = 503


class TopicClosingError(UnavailableError):
    """The topic is being unloaded or deleted; look it up again."""


class TopicNotServedError(UnavailableError):
    """The topic is not this broker's; look it up again."""


class TopicMovedError(UnavailableError):
    """The topic is in another cluster now, whose clients come to these addresses."""

    def __init__(self, text: str = "", url: str = "", url_tls: str = "") -> None:
        """``url``, ``url_tls``: of the other cluster's brokers, without and with TLS; empty: there is none."""
        super().__init__(text)
        self.url = url
        self.url_tls = url_tls


def invariant(condition: object, story: str) -> None:
    """Raise :class:`InvariantError` with ``story`` unless ``condition``; works under ``python -O`` too."""
    if not condition:
        raise InvariantError(story)
