"""What the query of a socket's URL may say, and what it says: Pulsar's names, bounds and defaults.

Sources: Pulsar's page "WebSocket API", and its service's own reading of the query where the page is silent
(``subscriptionMode``, ``cryptoFailureAction``). A name that is none of these is passed over, as in Pulsar; a value that
can not be is refused with what was expected, where Pulsar passes over some.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from geminga.model.errors import RemoteError
from geminga.model.topic_name import REPLICATOR_PREFIX

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
#: Messages without acknowledgment that one socket is sent, whatever ``receiverQueueSize`` says; Pulsar's.
RECEIVER_QUEUE_MAX: Final = 1000
#: Messages of one producer without receipt, whatever ``maxPendingMessages`` says.
PENDING_MESSAGES_MAX: Final = 10_000
#: Topics that one consumer of several may name.
TOPICS_MAX: Final = 1000
COMPRESSIONS: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
ROUTING_MODES: Final = ("SinglePartition", "RoundRobinPartition", "CustomPartition")
HASHING_SCHEMES: Final = ("JavaStringHash", "Murmur3_32Hash")
SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
SUBSCRIPTION_MODES: Final = ("Durable", "NonDurable")
CRYPTO_FAILURE_ACTIONS: Final = ("FAIL", "DISCARD", "CONSUME")
#: Where a reader may begin, beside at an id.
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


class ParameterError(RemoteError):
    """The query says what can not be: 400."""

    http_status = 400


class ProducerParameters(NamedTuple):
    """Of a producer; times in milliseconds."""

    send_timeout_ms: int
    batching: bool
    batch_messages_max: int
    batch_delay_ms: int
    pending_messages_max: int
    routing_mode: str
    compression: str
    name: str
    #: The first message gets the number behind it; None: behind what the broker remembers of the name.
    initial_sequence_id: int | None
    hashing_scheme: str


class ConsumerParameters(NamedTuple):
    """Of a consumer; times in milliseconds."""

    #: 0: never.
    ack_timeout_ms: int
    subscription_type: str
    is_durable: bool
    receiver_queue_size: int
    name: str
    priority_level: int
    #: None: the client's default.
    negative_ack_delay_ms: int | None
    #: 0: there is no dead-letter topic.
    redeliveries_max: int
    #: Empty: Pulsar's, ``topic-subscription-DLQ``.
    dead_letter_topic: str
    crypto_failure_action: str
    #: Messages come as the socket permits them, and not until it acknowledges.
    pull_mode: bool


class ReaderParameters(NamedTuple):
    """Of a reader."""

    name: str
    receiver_queue_size: int
    #: :data:`EARLIEST`, :data:`LATEST`, or the bytes of a message id.
    start: str | bytes
    crypto_failure_action: str


class TopicsParameters(NamedTuple):
    """What a consumer of several topics is about: one of the two."""

    topics: Sequence[str]
    pattern: str


class _Query:
    """Reads values by name; each raises ParameterError."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self._query = query

    def text(self, name: str) -> str:
        return self._query.get(name, "").strip()

    def number(self, name: str, default: int, least: int = 0, most: int = INT_MAX) -> int:
        found = self.maybe_number(name, least, most)
        return default if found is None else found

    def maybe_number(self, name: str, least: int, most: int) -> int | None:
        text = self.text(name)
        if not text:
            return None
        # No more digits than a number of 64 bits has: int() takes its time for long ones.
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and least <= int(text) <= most):
            raise ParameterError(
                f"Invalid query params: {name}={text[:40]}: expected a whole number from {least} to {most}"
            )
        return int(text)

    def flag(self, name: str) -> bool:
        return self.word(name, ("false", "true"), "false", any_case=True) == "true"

    def word(self, name: str, words: Sequence[str], default: str, *, any_case: bool = False) -> str:
        text = self.text(name)
        if not text:
            return default
        known = text.lower() if any_case else text
        if known not in words:
            raise ParameterError(f"Invalid query params: {name}={text[:40]}: expected one of {', '.join(words)}")
        return known


def producer_parameters(query: Mapping[str, str]) -> ProducerParameters:
    """Raises ParameterError."""
    found = _Query(query)
    if found.text("encryptionKeys"):
        raise ParameterError(
            "Invalid query params: encryptionKeys: a broker holds no keys of its users "
            "(cryptoKeyReaderFactoryClassName names a class of Java); encrypt the payload before it is sent, or use a "
            "client of the binary protocol"
        )
    name = found.text("producerName")
    if name.startswith(REPLICATOR_PREFIX):
        # Some sockets publish as the broker itself, whom that name would be given.
        raise ParameterError(f"Invalid query params: producerName={name[:40]}: that is a replicator between clusters")
    return ProducerParameters(
        send_timeout_ms=found.number("sendTimeoutMillis", 30_000),
        batching=found.flag("batchingEnabled"),
        batch_messages_max=found.number("batchingMaxMessages", 1000, 1, 1 << 20),
        batch_delay_ms=found.number("batchingMaxPublishDelay", 10, 1),
        pending_messages_max=min(found.number("maxPendingMessages", 1000) or 1000, PENDING_MESSAGES_MAX),
        # A router of one's own can not come over a socket; Pulsar passes over CustomPartition, too.
        routing_mode=found.word("messageRoutingMode", ROUTING_MODES, "SinglePartition"),
        compression=found.word("compressionType", COMPRESSIONS, "NONE"),
        name=name,
        initial_sequence_id=found.maybe_number("initialSequenceId", -1, LONG_MAX - 1),
        hashing_scheme=found.word("hashingScheme", HASHING_SCHEMES, "JavaStringHash"),
    )


def consumer_parameters(query: Mapping[str, str]) -> ConsumerParameters:
    """Raises ParameterError."""
    found = _Query(query)
    ack_timeout_ms = found.number("ackTimeoutMillis", 0)
    if 0 < ack_timeout_ms < 1000:
        raise ParameterError(f"Invalid query params: ackTimeoutMillis={ack_timeout_ms}: expected 0 or at least 1000")
    redeliveries_max = found.number("maxRedeliverCount", 0)
    dead_letter_topic = found.text("deadLetterTopic")
    if not redeliveries_max and (dead_letter_topic or found.text("maxRedeliverCount")):
        raise ParameterError("Invalid query params: MaxRedeliverCount must be > 0 where there is a dead-letter topic")
    subscription_type = found.word("subscriptionType", SUBSCRIPTION_TYPES, "Exclusive")
    if redeliveries_max and subscription_type not in ("Shared", "Key_Shared"):
        raise ParameterError(
            f"Invalid query params: maxRedeliverCount goes with subscriptionType Shared or Key_Shared, not "
            f"{subscription_type}: nobody counts what is delivered again there"
        )
    return ConsumerParameters(
        ack_timeout_ms=ack_timeout_ms,
        subscription_type=subscription_type,
        is_durable=found.word("subscriptionMode", SUBSCRIPTION_MODES, "Durable") == "Durable",
        receiver_queue_size=_queue_size(found),
        name=found.text("consumerName"),
        priority_level=found.number("priorityLevel", 0),
        negative_ack_delay_ms=found.maybe_number("negativeAckRedeliveryDelay", 0, INT_MAX),
        redeliveries_max=redeliveries_max,
        dead_letter_topic=dead_letter_topic,
        crypto_failure_action=found.word("cryptoFailureAction", CRYPTO_FAILURE_ACTIONS, "FAIL"),
        pull_mode=found.flag("pullMode"),
    )


def reader_parameters(query: Mapping[str, str]) -> ReaderParameters:
    """Raises ParameterError."""
    found = _Query(query)
    start: str | bytes = found.text("messageId") or LATEST
    if start not in (EARLIEST, LATEST):
        # A plus sign of base64 that nobody encoded for a query comes as a space.
        given = query["messageId"].replace(" ", "+")
        try:
            start = base64.b64decode(given, validate=True)
        except (binascii.Error, ValueError):
            raise ParameterError(
                f"Invalid query params: messageId={given[:40]}: expected earliest, latest, or a message id in base64"
            ) from None
    return ReaderParameters(
        name=found.text("readerName"),
        receiver_queue_size=_queue_size(found),
        start=start,
        crypto_failure_action=found.word("cryptoFailureAction", CRYPTO_FAILURE_ACTIONS, "FAIL"),
    )


def topics_parameters(query: Mapping[str, str]) -> TopicsParameters:
    """Raises ParameterError."""
    found = _Query(query)
    names, pattern = found.text("topics"), found.text("topicsPattern")
    if bool(names) == bool(pattern):
        wrong = "Topics must be null when use topicsPattern" if pattern else "Should set topics or topicsPattern"
        raise ParameterError(f"Invalid query params: {wrong}")
    topics = list(dict.fromkeys(name.strip() for name in names.split(",", TOPICS_MAX) if name.strip()))
    if pattern:
        return TopicsParameters((), pattern)
    if not topics or len(topics) > TOPICS_MAX or any("," in name for name in topics):
        raise ParameterError(f"Invalid query params: topics: expected 1 to {TOPICS_MAX} names, comma separated")
    return TopicsParameters(topics, "")


def _queue_size(found: _Query) -> int:
    """How many messages may be out at once, at least one."""
    return min(found.number("receiverQueueSize", RECEIVER_QUEUE_MAX), RECEIVER_QUEUE_MAX) or 1
