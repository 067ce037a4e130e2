"""Parameters of a socket to what the client is asked for, and its errors to what HTTP answers before there is a socket.

Statuses are Pulsar's (its service's table of errors): 404 for a topic that is not there, 409 for a name that is taken,
503 where there is no room for more, and so on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final

from geminga.broker.websocket.core.frames import EncryptionFields
from geminga.broker.websocket.core.parameters import (
    EARLIEST,
    LATEST,
    ConsumerParameters,
    ProducerParameters,
    ReaderParameters,
)
from geminga.client import (
    AuthenticationError,
    AuthorizationError,
    CompressionType,
    ConsumerArguments,
    ConsumerBusy,
    ConsumerCryptoFailureAction,
    ConsumerDeadLetterPolicy,
    ConsumerType,
    HashingScheme,
    IncompatibleSchema,
    InvalidConfiguration,
    InvalidTopicName,
    Message,
    MessageId,
    OperationNotSupported,
    PartitionsRoutingMode,
    ProducerArguments,
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    ProducerBusy,
    ProducerFenced,
    PulsarException,
    ReaderArguments,
    ServiceUnitNotReady,
    SubscriptionNotFound,
    Timeout,
    TooManyLookupRequestException,
    TopicNotFound,
    TopicTerminated,
)
from geminga.model.errors import RemoteError

#: Messages that a client holds for a socket, of each topic or partition, before they are sent. The broker is not far,
#: so more bring nothing.
PREFETCH_MAX: Final = 16
#: Bytes of them, but for the first.
PREFETCH_BYTES: Final = 64 * 1024
_STATUSES: Final[Mapping[type[PulsarException], int]] = {
    InvalidConfiguration: 400,
    InvalidTopicName: 400,
    AuthenticationError: 401,
    AuthorizationError: 403,
    TopicNotFound: 404,
    SubscriptionNotFound: 404,
    ProducerBusy: 409,
    ConsumerBusy: 409,
    ProducerFenced: 409,
    IncompatibleSchema: 409,
    TooManyLookupRequestException: 429,
    ProducerBlockedQuotaExceededError: 503,
    ProducerBlockedQuotaExceededException: 503,
    TopicTerminated: 503,
    ServiceUnitNotReady: 503,
    Timeout: 504,
}
_TYPES: Final = {
    "Exclusive": ConsumerType.Exclusive,
    "Shared": ConsumerType.Shared,
    "Failover": ConsumerType.Failover,
    "Key_Shared": ConsumerType.KeyShared,
}


class OpeningError(RemoteError):
    """What is to stand behind a socket can not be made."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.http_status = status


def opening_error(error: PulsarException) -> OpeningError:
    """What is answered for an error of the client."""
    status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 500)
    what = "Invalid query params" if status == 400 else "Failed to create producer/consumer"
    return OpeningError(status, f"{what}: {error}")


def producer_arguments(given: ProducerParameters) -> ProducerArguments:
    """Of ``create_producer``."""
    is_round_robin = given.routing_mode == "RoundRobinPartition"
    return {
        "producer_name": given.name,
        "initial_sequence_id": given.initial_sequence_id,
        "send_timeout_millis": given.send_timeout_ms,
        "compression_type": CompressionType[given.compression],
        # How many there are is the session's to say, which stops reading instead of refusing.
        "max_pending_messages": 0,
        "block_if_queue_full": False,
        "batching_enabled": given.batching,
        "batching_max_messages": given.batch_messages_max,
        "batching_max_publish_delay_ms": given.batch_delay_ms,
        "message_routing_mode": PartitionsRoutingMode.RoundRobinDistribution
        if is_round_robin
        else PartitionsRoutingMode.UseSinglePartition,
        "hashing_scheme": HashingScheme[given.hashing_scheme],
    }


def consumer_arguments(given: ConsumerParameters, topic: str, subscription: str) -> ConsumerArguments:
    """Of ``subscribe``; ``topic`` names the dead-letter topic where nothing else does."""
    found: ConsumerArguments = {
        "consumer_type": _TYPES[given.subscription_type],
        "receiver_queue_size": min(given.receiver_queue_size, PREFETCH_MAX),
        "receiver_queue_bytes": PREFETCH_BYTES,
        # What nobody has permitted yet is for other consumers.
        "start_paused": given.pull_mode,
        "consumer_name": given.name,
        "unacked_messages_timeout_ms": given.ack_timeout_ms,
        "is_durable": given.is_durable,
        "priority_level": given.priority_level,
        "crypto_failure_action": ConsumerCryptoFailureAction[given.crypto_failure_action],
    }
    if given.negative_ack_delay_ms is not None:
        found["negative_ack_redelivery_delay_ms"] = given.negative_ack_delay_ms
    if given.redeliveries_max:
        found["dead_letter_policy"] = ConsumerDeadLetterPolicy(
            given.redeliveries_max, given.dead_letter_topic or f"{topic}-{subscription}-DLQ"
        )
    return found


def reader_arguments(given: ReaderParameters) -> ReaderArguments:
    """Of ``create_reader``."""
    return {
        "receiver_queue_size": min(given.receiver_queue_size, PREFETCH_MAX),
        "receiver_queue_bytes": PREFETCH_BYTES,
        "crypto_failure_action": ConsumerCryptoFailureAction[given.crypto_failure_action],
    }


def reader_start(given: ReaderParameters) -> MessageId:
    """Behind which message a reader begins; raises OpeningError."""
    if given.start == EARLIEST:
        return MessageId.earliest
    if given.start == LATEST or isinstance(given.start, str):
        return MessageId.latest
    try:
        return MessageId.deserialize(given.start)
    except ValueError as error:
        raise OpeningError(400, f"Invalid query params: messageId: {error}") from None


async def leads_to_message(work: Awaitable[None]) -> bool:
    """Whether what is done by an id leads to a message of the consumer; raises what else comes of it.

    One that a former socket was told does not say of which topic it is, where there are several: nothing ends for that.
    """
    try:
        await work
    except OperationNotSupported:
        return False
    return True


def encryption_of(message: Message[bytes]) -> EncryptionFields | None:
    """How a message is encrypted that comes as it is; None: it is not."""
    found = message.encryption_context()
    if found is None:
        return None
    kinds = {kind.value: kind.name for kind in CompressionType}
    return EncryptionFields(
        found.keys,
        found.param,
        found.algorithm,
        kinds.get(found.compression_type, "NONE"),
        found.uncompressed_message_size,
        found.batch_size,
    )
